"""A rotation under way: the new secret, those that end, and what their use says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.models.client import Client
from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.registration.client_records import get_row
from app.operations.registration.credential_rows import CredentialRecord, records_of, rows_of
from app.operations.registration.credentials import MOST_LISTED
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.registration.rotation_verdict import SecretUse, rotation_verdict


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
    settings = organization_by_id(client.organization_id).settings
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
