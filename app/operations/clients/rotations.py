"""Reminders: administrators hear once that a secret ends soon while it is still in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import literal, select, true, tuple_, update

from app.extensions import db
from app.models.client import ACTIVE, Client
from app.models.credential import Credential
from app.operations.clients.client_records import change_row, get_row, require_not_above, still_changing
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credential_rows import CredentialRecord, records_of, rows_of
from app.operations.clients.credentials import MOST_LISTED, cancel_rotation
from app.operations.directory.lookups import get_organization_by_id
from app.operations.mail.administrator_notices import notify_administrators
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.clients.credentials import (
    EARLIEST_REMINDER,
    RotationTerms,
    SecretUse,
    reminder_due,
    rotation_terms,
    rotation_verdict,
)
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import format_client_id, public_id
from app.tenant_fence import ACROSS


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation has come to; without ``old`` secrets none is under way, and all else is empty.

    ``new`` is the newest secret that works and does not end. ``is_safe`` says that the old ones can end now,
    ``verdict`` why in words.
    """

    old: tuple[CredentialRecord, ...]
    new: CredentialRecord | None
    started_at: datetime | None
    ends_at: datetime | None
    is_safe: bool
    verdict: str | None

    @property
    def is_under_way(self) -> bool:
        """Whether a secret is about to end by a rotation."""
        return bool(self.old)


@read
def get_rotation(actor: Actor, client_id: str) -> Rotation:
    """The client's rotation. Raises NotFound, Forbidden."""
    return rotation_of(get_row(actor, client_id, "credentials:read"))


@read
def rotation_of(client: Client) -> Rotation:
    """The rotation of a client whose row the caller may see."""
    settings = get_organization_by_id(client.organization_id).settings
    live = [record for record in records_of(rows_of(client, limit=MOST_LISTED), settings) if record.is_live]
    old = tuple(record for record in live if record.is_retiring)
    if not old:
        return Rotation((), None, None, None, False, None)
    started = max(record.retiring_since for record in old if record.retiring_since is not None)
    new = _new(live, started)
    verdict = rotation_verdict(
        clock.now(), new=None if new is None else _use(new), old=[_use(record) for record in old]
    )
    return Rotation(
        old=old,
        new=new,
        started_at=started,
        ends_at=min(record.expires_at for record in old if record.expires_at is not None),
        is_safe=verdict.is_safe,
        verdict=verdict.words,
    )


def _new(live: Sequence[CredentialRecord], started: datetime) -> CredentialRecord | None:
    made_since = [record for record in live if not record.is_retiring and record.created_at >= started]
    return made_since[0] if made_since else None


def _use(record: CredentialRecord) -> SecretUse:
    return SecretUse(record.first_used_at, record.last_used_at, len(record.addresses))


_MOST_RACES = 10


def steer_rotation(actor: Actor, client_id: str, fields: Mapping[str, Any]) -> Rotation:
    """The old secrets end ``ends_in_seconds`` from now, at once with 0; ``revoke_tokens`` says whether what they
    minted ends with them. What is left out stays.

    Raises InvalidInput naming every wrong field, Conflict when no rotation is under way, NotFound, Forbidden. Audit:
    ``credential.retired`` for each that is moved, ``credential.revoked`` for each that ends now.
    """
    terms = rotation_terms(fields)
    rotation = _move(actor, client_id, terms)
    if terms.ends_in_seconds != 0:
        return rotation
    for record in rotation.old:
        revoke_credentials(
            actor, client_id, credential_id=record.public_id, revoke_tokens=record.takes_tokens
        )
    return get_rotation(actor, client_id)


@transaction
def _move(actor: Actor, client_id: str, terms: RotationTerms) -> Rotation:
    """The rotation with its new terms; an end right now is the caller's to bring about."""
    for _ in range(_MOST_RACES):
        client = get_row(actor, client_id, "credentials:write")
        require_not_above(actor, client)
        rotation = _under_way(rotation_of(client))
        if not change_row(client, {}):
            continue
        for record in rotation.old:
            _move_one(actor, client, record, terms)
        return rotation_of(client)
    raise still_changing()


def _move_one(actor: Actor, client: Client, record: CredentialRecord, terms: RotationTerms) -> None:
    ends = record.expires_at
    if terms.ends_in_seconds:
        ends = clock.now() + timedelta(seconds=terms.ends_in_seconds)
    takes = record.takes_tokens if terms.revoke_tokens is None else terms.revoke_tokens
    if (ends, takes) == (record.expires_at, record.takes_tokens):
        return
    moved = count_changed(
        update(Credential)
        .where(
            Credential.organization_id == client.organization_id,
            Credential.id == record.id,
            Credential.revoked_at.is_(None),
        )
        .values(expires_at=ends, takes_tokens=takes, notified_at=None)
    )
    if moved:
        audit.record(
            actor,
            "credential.retired",
            target_type="credential",
            target_id=record.public_id,
            before=_facts(record.expires_at, record.takes_tokens),
            after={"client_id": format_client_id(client.organization_id, client.id), **_facts(ends, takes)},
        )


def _facts(ends: datetime | None, takes_tokens: bool) -> dict[str, Any]:
    return {"expires_at": ends.isoformat() if ends else None, "revokes_tokens": takes_tokens}


@transaction
def call_off_rotation(actor: Actor, client_id: str, *, revoke_new: bool = False) -> list[CredentialRecord]:
    """The old secrets keep the end they had before; with ``revoke_new`` the new one works no more.

    Returns the secrets that work. Raises Conflict when no rotation is under way, NotFound, Forbidden. Audit:
    ``credential.kept`` for each old one, ``credential.revoked`` for the new one.
    """
    new = _under_way(rotation_of(get_row(actor, client_id, "credentials:write"))).new
    kept = cancel_rotation(actor, client_id)
    if not revoke_new or new is None:
        return kept
    revoke_credentials(actor, client_id, credential_id=new.public_id)
    return [record for record in kept if record.id != new.id]


def _under_way(rotation: Rotation) -> Rotation:
    if not rotation.is_under_way:
        raise Conflict("No rotation is under way.", code="no_rotation")
    return rotation


BATCH = 200
_Position = tuple[datetime, str, UUID]
_KINDS = (Credential.expires_at.type, Credential.organization_id.type, Credential.id.type)


def remind(actor: Actor, batch: int = BATCH) -> Iterator[int]:
    """Whether each secret that is due gave rise to a reminder, 1 or 0; none is given twice for the same end.

    ``actor`` is the janitor.
    """
    after: _Position | None = None
    while True:
        due, after = _page(batch, after)
        for organization_id, credential_id in due:
            yield int(_remind(Actor.system(organization_id, actor.label), credential_id))
        if after is None:
            return


@read
def _page(batch: int, after: _Position | None) -> tuple[list[tuple[str, UUID]], _Position | None]:
    """(the secrets of a page that are due, where the next page begins): others' that are not yet due hide none."""
    now = clock.now()
    position = tuple_(Credential.expires_at, Credential.organization_id, Credential.id)
    begin = true() if after is None else position > tuple_(*map(literal, after, _KINDS))
    rows = db.session.execute(
        select(
            Credential.organization_id,
            Credential.id,
            Credential.created_at,
            Credential.retiring_since,
            Credential.expires_at,
            Credential.last_used_at,
        )
        .where(
            Credential.expires_at > now,
            Credential.expires_at < now + EARLIEST_REMINDER,
            Credential.revoked_at.is_(None),
            Credential.notified_at.is_(None),
            Credential.last_used_at > now - EARLIEST_REMINDER,
            begin,
        )
        .order_by(Credential.expires_at, Credential.organization_id, Credential.id)
        .limit(batch)
        .execution_options(**ACROSS)
    ).all()
    due = [
        (row.organization_id, row.id)
        for row in rows
        if reminder_due(
            now,
            began_at=row.retiring_since or row.created_at,
            ends_at=row.expires_at,
            last_used_at=row.last_used_at,
        )
    ]
    last = rows[-1] if len(rows) == batch else None
    return due, None if last is None else (last.expires_at, last.organization_id, last.id)


@transaction
def _remind(actor: Actor, credential_id: UUID) -> bool:
    organization_id = actor.organization_id
    now = clock.now()
    claimed = count_changed(
        update(Credential)
        .where(
            Credential.organization_id == organization_id,
            Credential.id == credential_id,
            Credential.notified_at.is_(None),
            Credential.revoked_at.is_(None),
            Credential.expires_at > now,
        )
        .values(notified_at=now)
    )
    if claimed != 1:
        return False
    row = db.session.execute(
        select(
            Credential.name,
            Credential.expires_at,
            Credential.last_used_at,
            Client.name.label("client"),
            Client.id,
        )
        .join(
            Client,
            (Client.organization_id == Credential.organization_id) & (Client.id == Credential.client_id),
        )
        .where(
            Credential.organization_id == organization_id,
            Credential.id == credential_id,
            Client.status == ACTIVE,
        )
    ).first()
    try:
        organization = get_organization_by_id(organization_id)
    except NotFound:
        return False
    if row is None or not organization.is_active:
        return False
    client_id = format_client_id(organization_id, row.id)
    told = {
        "client": row.client,
        "secret": row.name,
        "ends": row.expires_at.isoformat(),
        "used": row.last_used_at.isoformat(),
        "link": f"{organization.base_url}/portal/{organization.slug}/clients/{client_id}/credentials",
    }
    notify_administrators(actor, "secret_ends", public_id("sec", credential_id), told)
    return True
