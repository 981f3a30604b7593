"""``flask --app wsgi users``: the people of an organization."""

from __future__ import annotations

import click
from flask.cli import AppGroup

from app.cli.refusals import refusing
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.store.pagination import MAX_LIMIT
from app.operations.users import user_changes, users
from app.operations.users import user_changes as changes
from app.operations.users.factor_resets import reset_user_factors
from app.operations.users.users import UserRecord, find_user_record
from app.rules.actor import Actor
from app.rules.users.profile import STATUSES

users_commands = AppGroup("users", help="People of an organization.")
_organization = click.option("--organization", required=True, help="Id of the organization.")
_user = click.argument("user")


@users_commands.command("list")
@_organization
@click.option("--search", help="A part of an address or a name.")
@click.option("--status", type=click.Choice(STATUSES))
@refusing
def list_command(organization: str, search: str | None, status: str | None) -> None:
    """Show users by address: id, status, e-mail, roles."""
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
@refusing
def create_command(organization: str, email: str, name: str) -> None:
    """Make a user, and print the link with which they choose their password, or mail it where there is a server."""
    actor = _operator(organization)
    record = changes.add_user(actor, {"email": email, "name": name})
    click.echo(_line(record))
    made = user_changes.issue_user_reset_link(actor, record.user.public_id)
    click.echo(made.link or f"The link went to {record.user.email}.")


@users_commands.command("disable")
@_organization
@_user
@refusing
def disable_command(organization: str, user: str) -> None:
    """End the sign-ins and apps of USER, an e-mail or usr_…, who cannot sign in from now on."""
    _set_status(organization, user, "disabled")


@users_commands.command("enable")
@_organization
@_user
@refusing
def enable_command(organization: str, user: str) -> None:
    """Let USER, an e-mail or usr_…, sign in again."""
    _set_status(organization, user, "active")


@users_commands.command("reset-second-factors")
@_organization
@_user
@refusing
def reset_second_factors_command(organization: str, user: str) -> None:
    """Take away all second factors of USER, an e-mail or usr_…, and end their sign-ins and apps."""
    actor = _operator(organization)
    found = find_user_record(actor, user)
    reset = reset_user_factors(actor, found.user.public_id)
    click.echo(f"{found.user.public_id} {','.join(reset.methods) or 'had none'}")


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
