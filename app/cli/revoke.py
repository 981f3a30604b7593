"""``flask --app wsgi revoke``: revoke the tokens of a client, a user or an organization."""

from __future__ import annotations

from typing import Any

import click
from flask.cli import with_appcontext

from app.cli.operator import OperatorCommand, operator
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.tokens.revocation import Receipt
from app.operations.users.users import find_user_record
from app.rules.errors import InvalidInput


@click.command("revoke", cls=OperatorCommand)
@click.option("--organization", required=True, help="ID of the organization.")
@click.option("--client", help="Tokens of this client_id.")
@click.option("--user", help="Tokens of this user (email or usr_…). Also signs the user out.")
@click.option("--all", "everything", is_flag=True, help="All tokens of the organization.")
@click.option("--sessions/--no-sessions", default=None, help="Also end sessions.")
@click.option("--issued-before", help="A time with time zone, like 2030-01-31T12:00:00Z (default: now).")
@click.option("--reason", help="Stored on the receipt.")
@click.option("--dry-run", is_flag=True, help="Only count; change nothing.")
@with_appcontext
def revoke_command(
    organization: str,
    client: str | None,
    user: str | None,
    everything: bool,
    sessions: bool | None,
    issued_before: str | None,
    reason: str | None,
    dry_run: bool,
) -> None:
    """Revoke the tokens of a client, a user or the whole organization, on every worker at once.

    Only a cutoff time is stored, so one token and millions cost the same. Consents are not deleted.
    """
    if sum((client is not None, user is not None, everything)) != 1:
        raise InvalidInput("Use exactly one of --client, --user and --all.")
    actor = operator(organization)
    order: dict[str, Any] = {
        "client_id": client,
        "user_id": None if user is None else find_user_record(actor, user).user.public_id,
        "all": True if everything else None,
        "include_sessions": sessions,
        "issued_before": issued_before,
        "reason": reason,
        "dry_run": dry_run,
    }
    _show(bulk_revoke(actor, organization, order).receipt)


def _show(receipt: Receipt) -> None:
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in receipt.counts.items())
    verb = "Would revoke" if receipt.public_id is None else "Revoked"
    click.echo(f"{verb} everything issued before {receipt.issued_before:%Y-%m-%dT%H:%M:%SZ}: {counted}.")
    if receipt.public_id is not None:
        click.echo(receipt.public_id)
