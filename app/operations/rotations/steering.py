"""Steering a rotation: ending the old secrets now, later, or with what they minted; or calling it off."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import update

from app.models.client import Client
from app.models.credential import Credential
from app.operations import audit, clock
from app.operations.registration.client_records import change_row, get_row, still_changing
from app.operations.registration.client_rights import require_not_above
from app.operations.registration.credential_ends import revoke_credentials
from app.operations.registration.credential_rows import CredentialRecord
from app.operations.registration.credentials import cancel_rotation
from app.operations.rotations.progress import Rotation, get_rotation, rotation_of
from app.operations.transaction import count_changed, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.identifiers import client_id_of
from app.rules.registration.credential_terms import RotationTerms, rotation_terms

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
            after={"client_id": client_id_of(client.organization_id, client.id), **_facts(ends, takes)},
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
