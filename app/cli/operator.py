"""Commands of the operator: who they act as, and how an error ends them."""

from __future__ import annotations

from typing import Any

import click
from flask.cli import AppGroup

from app.config import command_line
from app.database_errors import DATABASE_ERRORS
from app.operations.directory.lookups import get_organization_by_slug, get_root_organization
from app.operations.maintenance.doctor import has_pending_migrations
from app.rules.actor import Actor
from app.rules.errors import DomainError, Unavailable


class OperatorCommand(click.Command):
    """A command that a DomainError ends: exit status 1, and its description or one line for each invalid field.

    So does a database without the tables of this release.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DomainError as error:
            lines = [f"{wrong.field}: {wrong.message}" for wrong in error.errors] or [error.description]
            if type(error) is Unavailable:
                lines.append(f"To find out why, type: {command_line('doctor')}")
            raise click.ClickException("\n       ".join(lines)) from None
        except DATABASE_ERRORS:
            if not has_pending_migrations():
                raise
            raise click.ClickException(
                f"The schema is not up to date. Type: {command_line('db upgrade')}"
            ) from None


class OperatorGroup(AppGroup):
    """A group of these commands."""

    command_class = OperatorCommand


def operator(slug: str | None = None) -> Actor:
    """Return the operator as an actor in the organization, or in root. Raises NotFound."""
    organization = get_root_organization() if slug is None else get_organization_by_slug(slug)
    return Actor.system(organization.id, "command line")
