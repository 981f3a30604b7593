"""Scheduled rotation: a signing key that has grown old gets its successor without anybody asking (KY-1)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import aliased

from app.extensions import db
from app.models import signing_key as key_model
from app.models.organization import ACTIVE, Organization
from app.models.signing_key import SigningKey
from app.operations import clock
from app.operations.protocol.signing_keys import rotate
from app.operations.transaction import read
from app.operations.upkeep import leases
from app.rules.actor import Actor
from app.rules.tenancy.settings import effective

LEASE = "key-rotation"
EVERY_SECONDS = 3600
# A key is published so long before it signs, that every verifier has met it.
PUBLISHED_BEFORE = timedelta(days=1)
_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Key:
    organization_id: str
    id: UUID
    algorithm: str
    activated_at: datetime
    settings: dict[str, Any]
    next_made_at: datetime | None

    def is_due(self, now: datetime) -> bool:
        """Whether its successor must be published, or was so for long enough to take over."""
        seconds: int = effective(self.settings)["oauth"]["signing"]["rotation_seconds"]
        if now < self.activated_at + timedelta(seconds=seconds) - PUBLISHED_BEFORE:
            return False
        return self.next_made_at is None or self.next_made_at <= now - PUBLISHED_BEFORE


def rotate_due_keys(actor: Actor) -> list[str]:
    """Every key that is due has its next step behind it; returns the ``kid`` of each successor.

    Asked of every worker and done by one, once an hour: by a lease that is kept. Audit: as ``signing_keys.rotate``.
    """
    actor.require("instance:write")
    if not leases.take(LEASE, secrets.token_hex(8), EVERY_SECONDS):
        return []
    now = clock.now()
    due = [key for key in _active_keys() if key.is_due(now)]
    return [rotate(Actor.system(key.organization_id, "key rotation"), key.algorithm) for key in due]


def _active_keys() -> Iterator[_Key]:
    page: list[_Key] = []
    while True:
        page = _page_after(page[-1] if page else None)
        yield from page
        if len(page) < _PAGE:
            return


@read
def _page_after(last: _Key | None) -> list[_Key]:
    successor = aliased(SigningKey)
    statement = (
        select(
            SigningKey.organization_id,
            SigningKey.id,
            SigningKey.algorithm,
            SigningKey.activated_at,
            Organization.settings,
            successor.created_at,
        )
        .join(Organization, Organization.id == SigningKey.organization_id)
        .outerjoin(
            successor,
            and_(
                successor.organization_id == SigningKey.organization_id,
                successor.algorithm == SigningKey.algorithm,
                successor.slot == key_model.NEXT,
            ),
        )
        .where(SigningKey.slot == key_model.ACTIVE, Organization.status == ACTIVE)
        .order_by(SigningKey.organization_id, SigningKey.id)
        .limit(_PAGE)
    )
    if last is not None:
        same = and_(SigningKey.organization_id == last.organization_id, SigningKey.id > last.id)
        statement = statement.where(or_(SigningKey.organization_id > last.organization_id, same))
    return [_Key(*row) for row in db.session.execute(statement)]
