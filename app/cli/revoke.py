"""``flask --app wsgi revoke``: everything that was issued before a moment is dead, for one thing or all of them."""

from __future__ import annotations

from typing import Any

import click
from flask.cli import with_appcontext

from app.cli.refusals import refusing
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.tokens.bulk_revocation import revoke_widely
from app.operations.tokens.revocation_receipts import Receipt
from app.operations.users.users import find_user_record
from app.rules.actor import Actor
from app.rules.errors import InvalidInput

_NOUNS = {
    "access_tokens": "access tokens",
    "refresh_tokens": "refresh tokens",
    "grants": "grants",
    "sessions": "sign-ins",
    "codes": "codes",
}


@click.command("revoke")
@click.option("--organization", required=True, help="Id of the organization.")
@click.option("--client", help="Of this client_id.")
@click.option("--user", help="Of this user, an e-mail or usr_…; signs them out, too.")
@click.option("--all", "everything", is_flag=True, help="Of everybody in the organization.")
@click.option("--sessions/--no-sessions", default=None, help="End sign-ins, too.")
@click.option("--issued-before", help="A time with its zone, like 2030-01-31T12:00:00Z; now when left out.")
@click.option("--reason", help="Kept on the receipt.")
@click.option("--dry-run", is_flag=True, help="Count, and change nothing.")
@with_appcontext
@refusing
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
    """End the tokens of a client, a user or the whole organization, on every worker at once.

    A moment is kept, so it costs the same for one token and for millions. What users allowed stays.
    """
    if sum((client is not None, user is not None, everything)) != 1:
        raise InvalidInput("Name exactly one of --client, --user and --all.")
    actor = Actor.system(get_organization_by_slug(organization).id, "command line")
    order: dict[str, Any] = {
        "client_id": client,
        "user_id": None if user is None else find_user_record(actor, user).user.public_id,
        "all": True if everything else None,
        "include_sessions": sessions,
        "issued_before": issued_before,
        "reason": reason,
        "dry_run": dry_run,
    }
    _show(revoke_widely(actor, organization, order).receipt)


def _show(receipt: Receipt) -> None:
    counted = ", ".join(f"{receipt.counts[name]} {noun}" for name, noun in _NOUNS.items())
    verb = "Would end" if receipt.public_id is None else "Ended"
    click.echo(f"{verb} what was issued before {receipt.issued_before:%Y-%m-%dT%H:%M:%SZ}: {counted}.")
    if receipt.public_id is not None:
        click.echo(receipt.public_id)
