"""``flask --app wsgi users``: the users of an organization."""

from __future__ import annotations

import click
from flask.cli import AppGroup

from app.cli.errors import report_errors
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.store.pagination import MAX_LIMIT
from app.operations.users import user_changes, users
from app.operations.users import user_changes as changes
from app.operations.users.factor_resets import reset_user_factors
from app.operations.users.users import UserRecord, find_user_record
from app.rules.actor import Actor
from app.rules.users.profile import STATUSES

users_commands = AppGroup("users", help="Users of an organization.")
_organization = click.option("--organization", required=True, help="ID of the organization.")
_user = click.argument("user")


@users_commands.command("list")
@_organization
@click.option("--search", help="Part of an email or a name.")
@click.option("--status", type=click.Choice(STATUSES))
@report_errors
def list_command(organization: str, search: str | None, status: str | None) -> None:
    """List users by email: ID, status, email, roles."""
    actor = _operator(organization)
    filters = {"status": status} if status else {}
    after = None
    while True:
        page = users.list_users(actor, limit=MAX_LIMIT, after=after, query=search, filters=filters)
        for record in page.items:
            click.echo(_line(record))
        after = page.next_cursor_key
        if after is None:
            return


@users_commands.command("create")
@_organization
@click.argument("email")
@click.option("--name", default="")
@report_errors
def create_command(organization: str, email: str, name: str) -> None:
    """Create a user, and send or print the link to choose a password."""
    actor = _operator(organization)
    record = changes.add_user(actor, {"email": email, "name": name})
    click.echo(_line(record))
    made = user_changes.issue_user_reset_link(actor, record.user.public_id)
    click.echo(made.link or f"The link was sent to {record.user.email}.")


@users_commands.command("disable")
@_organization
@_user
@report_errors
def disable_command(organization: str, user: str) -> None:
    """Disable USER (email or usr_…): end all sessions and tokens, and reject further sign-ins."""
    _set_status(organization, user, "disabled")


@users_commands.command("enable")
@_organization
@_user
@report_errors
def enable_command(organization: str, user: str) -> None:
    """Enable USER (email or usr_…) again."""
    _set_status(organization, user, "active")


@users_commands.command("reset-second-factors")
@_organization
@_user
@report_errors
def reset_second_factors_command(organization: str, user: str) -> None:
    """Remove all second factors of USER (email or usr_…), and end all sessions and tokens."""
    actor = _operator(organization)
    found = find_user_record(actor, user)
    reset = reset_user_factors(actor, found.user.public_id)
    click.echo(f"{found.user.public_id} {','.join(reset.methods) or 'none'}")


def _set_status(organization: str, user: str, status: str) -> None:
    actor = _operator(organization)
    found = find_user_record(actor, user)
    updated = changes.update_user(actor, found.user.public_id, {"status": status})
    click.echo(_line(updated.record))


def _operator(slug: str) -> Actor:
    return Actor.system(get_organization_by_slug(slug).id, "command line")


def _line(record: UserRecord) -> str:
    user = record.user
    return f"{user.public_id} {user.status} {user.email} {','.join(record.roles)}".rstrip()
