"""Viewing a client secret in clear: first the evidence, committed, and only then the secret (SE-4)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.client import Client
from app.models.credential import Credential
from app.operations import audit, clock
from app.operations.directory import organization_by_id
from app.operations.mail.administrator_notices import notify_administrators
from app.operations.people.attempts import Limit, bucket_of, claim_attempt, take_back
from app.operations.people.freshness import require_fresh_sign_in
from app.operations.registration.client_records import get_row
from app.operations.registration.client_rights import require_not_above
from app.operations.registration.credential_rows import live_condition, may_reveal, unseal
from app.operations.transaction import read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError, NotFound, TooManyRequests
from app.rules.identifiers import client_id_of, parse_public_id, public_id
from app.rules.people.lockout import Lockout
from app.rules.sealing import CannotOpen

MOST_AN_HOUR = 10
_REVEALED = "credential.revealed"
_HOUR = timedelta(hours=1)
_HOURLY = Lockout(MOST_AN_HOUR, _HOUR, _HOUR, _HOUR)


class NotRevealable(Conflict):
    """The organization shows secrets once, or the secret has ended: there is no copy to open."""

    code = "not_revealable"


def reveal_credential(actor: Actor, client_id: str, credential_id: str) -> str:
    """The secret in clear. Raises NotFound, Forbidden, NotRevealable, TooManyRequests, and from the portal
    FreshSignInRequired. Audit: ``credential.revealed``, committed before the copy is opened."""
    return reveal_credentials(actor, client_id, [credential_id])[credential_id]


def reveal_credentials(actor: Actor, client_id: str, credential_ids: Sequence[str]) -> dict[str, str]:
    """The secrets in clear, by their ids; all or none. See ``reveal_credential``."""
    _require_revealable(actor, client_id, credential_ids)
    claimed = _claim_places(actor, len(credential_ids))
    try:
        row_ids = _admit(actor, client_id, credential_ids)
    except DomainError:
        take_back(actor.organization_id, claimed)
        raise
    return _open(actor, client_id, row_ids)


def _claim_places(actor: Actor, wanted: int) -> list[UUID]:
    """So many of the hour's views are the actor's: written before they are counted, or calls at once would pass.

    Returns what ``take_back`` takes. Raises TooManyRequests.
    """
    who = audit.actor_public_id(actor)
    claimed: list[UUID] = []
    for _ in range(wanted if who is not None else 0):
        claim = claim_attempt(actor.organization_id, Limit(bucket_of(_REVEALED, who or ""), _HOURLY))
        if claim.wait:
            take_back(actor.organization_id, claimed)
            words = f"At most {MOST_AN_HOUR} secrets can be viewed in an hour."
            raise TooManyRequests(words, retry_after=claim.wait)
        claimed += claim.attempts
    return claimed


@read
def _require_revealable(actor: Actor, client_id: str, credential_ids: Sequence[str]) -> None:
    _revealable(actor, client_id, credential_ids)


@transaction
def _admit(actor: Actor, client_id: str, credential_ids: Sequence[str]) -> dict[str, UUID]:
    client, found = _revealable(actor, client_id, credential_ids)
    public_client_id = client_id_of(client.organization_id, client.id)
    for row_id in found.values():
        audit.record(
            actor,
            _REVEALED,
            target_type="credential",
            target_id=public_id("sec", row_id),
            after={"client_id": public_client_id},
        )
    notify_administrators(actor, "secret_revealed", public_client_id, {"client": client.name})
    return found


def _revealable(
    actor: Actor, client_id: str, credential_ids: Sequence[str]
) -> tuple[Client, dict[str, UUID]]:
    client = get_row(actor, client_id, "credentials:read")
    require_not_above(actor, client)
    if actor.session_id is not None:
        require_fresh_sign_in(actor)
    if not may_reveal(organization_by_id(actor.organization_id).settings):
        raise NotRevealable("This organization shows a secret once, when it is made.")
    found = {}
    for credential_id in credential_ids:
        row = _find(client, credential_id)
        if row is None:
            raise NotFound("There is no such secret.")
        if row.sealed is None:
            raise NotRevealable("Of this secret no copy is kept.")
        found[credential_id] = row.id
    return client, found


@read
def _open(actor: Actor, client_id: str, row_ids: dict[str, UUID]) -> dict[str, str]:
    client = get_row(actor, client_id, "credentials:read")
    secrets = {}
    for credential_id in row_ids:
        row = _find(client, credential_id)
        if row is None or row.sealed is None:
            raise NotFound("There is no such secret.")
        try:
            secrets[credential_id] = unseal(client, row)
        except CannotOpen as error:
            raise NotRevealable("The copy of this secret cannot be opened. Make a new secret.") from error
    return secrets


def _find(client: Client, credential_id: str) -> Credential | None:
    row_id = parse_public_id("sec", credential_id)
    if row_id is None:
        return None
    condition = live_condition(client, clock.now()) & (Credential.id == row_id)
    return db.session.scalar(
        select(Credential).where(condition), execution_options={"populate_existing": True}
    )
