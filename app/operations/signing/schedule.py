"""Scheduled rotation: signing keys grow old and are succeeded without anybody asking (KY-1).

Once an hour one worker looks at every key that signs: when a day is left of its ``rotation_seconds`` its successor
is published, and a successor that has been published for a day takes over, whoever had it made.
"""

from __future__ import annotations

import logging
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
from app.operations.signing.rotation import PUBLISHED_BEFORE, advance
from app.operations.tenancy.bounds import standing_bounds
from app.operations.transaction import read
from app.operations.upkeep import leases
from app.rules.actor import Actor
from app.rules.errors import DomainError
from app.rules.sealing import CannotOpen
from app.rules.tenancy.ceilings import Bounds
from app.rules.tenancy.settings import effective
from app.tenant_fence import ACROSS

LEASE = "key-rotation"
EVERY_SECONDS = 3600
_PAGE = 500
_log = logging.getLogger("gatehouse.keys")


@dataclass(frozen=True, slots=True)
class _Key:
    bounds: Bounds
    organization_id: str
    id: UUID
    algorithm: str
    activated_at: datetime
    settings: dict[str, Any]
    next_made_at: datetime | None

    def is_due(self, now: datetime) -> bool:
        """Whether its successor must be published, or was so for long enough to take over."""
        if self.next_made_at is not None:
            return self.next_made_at <= now - PUBLISHED_BEFORE
        seconds: int = effective(self.settings, self.bounds)["oauth"]["signing"]["rotation_seconds"]
        return now >= self.activated_at + timedelta(seconds=seconds) - PUBLISHED_BEFORE


def rotate_due_keys(actor: Actor) -> list[str]:
    """Every key that is due has its next step behind it; returns the ``kid`` of each successor.

    Asked of every worker and done by one, once an hour: by a lease that is kept. A key that could not be rotated is
    logged and keeps nobody else's waiting. Audit: as ``rotation.advance``.
    """
    actor.require("instance:write")
    if not leases.take(LEASE, secrets.token_hex(8), EVERY_SECONDS):
        return []
    now = clock.now()
    due = [key for key in _active_keys() if key.is_due(now)]
    return [kid for kid in map(_advance, due) if kid is not None]


def _advance(key: _Key) -> str | None:
    try:
        return advance(Actor.system(key.organization_id, "key rotation"), key.algorithm)
    except (DomainError, CannotOpen):
        # An organization that was deleted just now, or a row of another master key.
        _log.warning("a signing key of %s was not rotated", key.organization_id, exc_info=True)
        return None


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
        .execution_options(**ACROSS)
    )
    if last is not None:
        same = and_(SigningKey.organization_id == last.organization_id, SigningKey.id > last.id)
        statement = statement.where(or_(SigningKey.organization_id > last.organization_id, same))
    bounds = standing_bounds()
    return [_Key(bounds, *row) for row in db.session.execute(statement)]
