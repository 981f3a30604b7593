"""Client secrets: the ledger, making, viewing, rotating and revoking. Hashed to verify, sealed to reveal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update

from app.extensions import db
from app.models.client import ACTIVE, Client
from app.models.credential import Credential
from app.operations.clients.client_records import (
    change_row,
    get_row,
    metadata_of,
    require_not_above,
    still_changing,
)
from app.operations.clients.credential_revocation import RevokedCredentials, revoke_credentials
from app.operations.clients.credential_rows import (
    AddressUse,
    CredentialRecord,
    add_credential,
    live_condition,
    may_reveal,
    records_of,
    rows_of,
    unseal,
)
from app.operations.directory.lookups import get_organization_by_id
from app.operations.mail.administrator_notices import notify_administrators
from app.operations.sign_in.reauthentication import require_fresh_sign_in, require_fresh_user_sign_in
from app.operations.store import audit, clock
from app.operations.store.rate_limits import Limit, bucket_key, record_attempt, withdraw_attempts
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.clients.credentials import rotation_terms
from app.rules.clients.credentials import validate_secret_terms as check_terms
from app.rules.errors import Conflict, DomainError, NotFound, TooManyRequests
from app.rules.identifiers import format_client_id, parse_public_id, public_id
from app.rules.sealing import UnsealError
from app.rules.sign_in.lockout import Lockout

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
        withdraw_attempts(actor.organization_id, claimed)
        raise
    return _open(actor, client_id, row_ids)


def _claim_places(actor: Actor, wanted: int) -> list[UUID]:
    """So many of the hour's views are the actor's: written before they are counted, or calls at once would pass.

    Returns what ``take_back`` takes. Raises TooManyRequests.
    """
    who = audit.actor_public_id(actor)
    claimed: list[UUID] = []
    for _ in range(wanted if who is not None else 0):
        claim = record_attempt(actor.organization_id, Limit(bucket_key(_REVEALED, who or ""), _HOURLY))
        if claim.retry_after:
            withdraw_attempts(actor.organization_id, claimed)
            words = f"At most {MOST_AN_HOUR} secrets can be viewed in an hour."
            raise TooManyRequests(words, retry_after=claim.retry_after)
        claimed += claim.attempts
    return claimed


@read
def _require_revealable(actor: Actor, client_id: str, credential_ids: Sequence[str]) -> None:
    _revealable(actor, client_id, credential_ids)


@transaction
def _admit(actor: Actor, client_id: str, credential_ids: Sequence[str]) -> dict[str, UUID]:
    client, found = _revealable(actor, client_id, credential_ids)
    public_client_id = format_client_id(client.organization_id, client.id)
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
    if not may_reveal(get_organization_by_id(actor.organization_id).settings):
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
        except UnsealError as error:
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


__all__ = [
    "AddressUse",
    "CredentialRecord",
    "NewCredential",
    "RevokedCredentials",
    "cancel_rotation",
    "create_credential",
    "get_credential",
    "list_credentials",
    "reveal_credential",
    "reveal_credentials",
    "revoke_credentials",
    "rotate_credential",
]

MOST_LISTED = 50
_MOST_RACES = 10


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A new secret, in clear; ``retired`` are the secrets before it that now have an end."""

    credential: CredentialRecord
    secret: str
    retired: tuple[CredentialRecord, ...]


@read
def list_credentials(actor: Actor, client_id: str) -> list[CredentialRecord]:
    """The ledger: the client's newest 50 secrets, ended ones included, newest first. Never in clear.

    Raises NotFound, Forbidden.
    """
    client = get_row(actor, client_id, "credentials:read")
    return records_of(rows_of(client, limit=MOST_LISTED), _settings(actor))


@read
def get_credential(actor: Actor, client_id: str, credential_id: str) -> CredentialRecord:
    """One entry of the ledger. Raises NotFound, Forbidden."""
    client = get_row(actor, client_id, "credentials:read")
    row_id = parse_public_id("sec", credential_id)
    row = None if row_id is None else db.session.get(Credential, (client.organization_id, row_id))
    if row is None or row.client_id != client.id:
        raise NotFound("There is no such secret.")
    return records_of([row], _settings(actor))[0]


@transaction
def create_credential(
    actor: Actor,
    client_id: str,
    *,
    name: str | None = None,
    expires_at: datetime | str | None = None,
    retire_others_in_seconds: int | None = None,
    revoke_tokens: bool = False,
) -> NewCredential:
    """A further secret works; with ``retire_others_in_seconds`` those before it end then, if not earlier.

    With ``revoke_tokens`` what they minted ends with them.

    Raises InvalidInput naming every wrong field, Conflict when the client keeps no secret, is disabled or has as
    many live ones as the organization allows, NotFound, Forbidden; FreshSignInRequired when a person signed in
    too long ago. Audit: ``credential.created``, ``credential.retired`` for each that got an end.
    """
    for _ in range(_MOST_RACES):
        client = get_row(actor, client_id, "credentials:write")
        require_not_above(actor, client)
        # What it makes can replace every secret that works today: who is at the keyboard counts (PO-4).
        require_fresh_user_sign_in(actor)
        settings = _settings(actor)
        rules = settings["oauth"]["clients"]
        now = clock.now()
        ends = check_terms(
            now,
            name=name,
            expires_at=expires_at,
            retire_others_in_seconds=retire_others_in_seconds,
            longest_seconds=rules["secret_ttl_seconds"],
        )
        _require_keeps_secrets(client)
        # The version claimed first: of two that count the same live secrets one has to count again.
        if not change_row(client, {}):
            continue
        _require_room(client, now, rules["max_secrets"])
        retired = (
            []
            if retire_others_in_seconds is None
            else _retire(actor, client, now, retire_others_in_seconds, revoke_tokens)
        )
        credential, secret = add_credential(actor, client, settings, name=name, expires_at=ends)
        _record(actor, "credential.created", credential.id, client, after=_facts(credential))
        return NewCredential(credential, secret, tuple(records_of(retired, settings)))
    raise still_changing()


@transaction
def rotate_credential(actor: Actor, client_id: str, fields: Mapping[str, Any] | None = None) -> NewCredential:
    """A new secret works, and those before it end after ``ends_in_seconds``, or the organization's overlap.

    With ``revoke_tokens`` what they minted ends with them; otherwise it lives out its time. Raises InvalidInput, and
    as ``create_credential``.
    """
    terms = rotation_terms(fields or {})
    overlap = _settings(actor)["oauth"]["clients"]["rotation_overlap_seconds"]
    return create_credential(
        actor,
        client_id,
        retire_others_in_seconds=overlap if terms.ends_in_seconds is None else terms.ends_in_seconds,
        revoke_tokens=bool(terms.revoke_tokens),
    )


@transaction
def cancel_rotation(actor: Actor, client_id: str) -> list[CredentialRecord]:
    """The secrets that a rotation was about to end keep the end they had before; the new one stays, too.

    Raises Conflict when no rotation is under way, NotFound, Forbidden. Audit: ``credential.kept`` for each.
    """
    for _ in range(_MOST_RACES):
        client = get_row(actor, client_id, "credentials:write")
        require_not_above(actor, client)
        now = clock.now()
        retiring = [row for row in _live(client, now) if row.retiring_since is not None]
        if not retiring:
            raise Conflict("No rotation is under way.", code="no_rotation")
        if not change_row(client, {}):
            continue
        for row in retiring:
            _set_end(row, row.previous_expires_at, retiring_since=None, previous=None)
            _record(actor, "credential.kept", row.id, client)
        return records_of(_live(client, now), _settings(actor))
    raise still_changing()


def _require_keeps_secrets(client: Client) -> None:
    metadata = metadata_of(client)
    if not metadata.uses_secret:
        raise Conflict(
            f"This client authenticates by {metadata.token_endpoint_auth_method} and keeps no secret.",
            code="no_secret_kept",
        )
    if client.status != ACTIVE:
        raise Conflict("The client is disabled. Enable it first.", code="client_disabled")


def _require_room(client: Client, now: datetime, most: int) -> None:
    live = db.session.scalar(select(func.count()).where(live_condition(client, now))) or 0
    if live >= most:
        raise Conflict(
            f"The client has {live} live secrets, as many as this organization allows. Revoke one first.",
            code="too_many_secrets",
            details={"max_secrets": most},
        )


def _retire(
    actor: Actor, client: Client, now: datetime, seconds: int, takes_tokens: bool
) -> list[Credential]:
    ends = now + timedelta(seconds=seconds)
    retired = []
    for row in _live(client, now):
        if row.expires_at is not None and row.expires_at <= ends:
            continue
        # A second rotation within the first keeps what cancelling is to restore.
        previous = row.expires_at if row.retiring_since is None else row.previous_expires_at
        _set_end(row, ends, retiring_since=now, previous=previous, takes_tokens=takes_tokens)
        _record(actor, "credential.retired", row.id, client, after={"expires_at": ends.isoformat()})
        retired.append(row)
    return _live_or_ended(retired)


def _set_end(
    row: Credential,
    ends: datetime | None,
    *,
    retiring_since: datetime | None,
    previous: datetime | None,
    takes_tokens: bool = False,
) -> None:
    count_changed(
        update(Credential)
        .where(
            Credential.organization_id == row.organization_id,
            Credential.id == row.id,
            Credential.revoked_at.is_(None),
        )
        .values(
            expires_at=ends,
            retiring_since=retiring_since,
            previous_expires_at=previous,
            takes_tokens=takes_tokens,
            notified_at=None,
        )
    )


def _live(client: Client, now: datetime) -> list[Credential]:
    statement = select(Credential).where(live_condition(client, now)).order_by(Credential.id.desc())
    return list(db.session.scalars(statement, execution_options={"populate_existing": True}))


def _live_or_ended(rows: list[Credential]) -> list[Credential]:
    for row in rows:
        db.session.refresh(row)
    return rows


def _settings(actor: Actor) -> Mapping[str, Any]:
    return get_organization_by_id(actor.organization_id).settings


def _facts(credential: CredentialRecord) -> dict[str, Any]:
    ends = credential.expires_at
    return {
        "name": credential.name,
        "hint": credential.hint,
        "expires_at": ends.isoformat() if ends else None,
    }


def _record(
    actor: Actor, action: str, credential_id: UUID, client: Client, after: Mapping[str, Any] | None = None
) -> None:
    audit.record(
        actor,
        action,
        target_type="credential",
        target_id=public_id("sec", credential_id),
        after={"client_id": format_client_id(client.organization_id, client.id), **(after or {})},
    )
