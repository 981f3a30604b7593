"""Rotation of signing keys: the next key is published before it signs, and an old one after it has signed."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import and_, delete, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased

from app.database import ACROSS
from app.extensions import db
from app.models import token as token_model
from app.models.base import has_key
from app.models.organization import ACTIVE, Organization
from app.models.token import SigningKey
from app.operations.directory import lookups
from app.operations.directory.lookups import current_limits
from app.operations.grants.signing_keys import (
    NewKey,
    ensure_key,
    find_key_in_slot,
    generate_key,
    record_key_event,
    store_key,
)
from app.operations.store import clock, leases
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.organizations.instance_limits import Bounds
from app.rules.organizations.settings import effective_settings

# Verifiers cache key sets. This long after its publication every verifier knows a key.
PUBLISHED_BEFORE_USE = timedelta(days=1)
# The maximum lifetime of ID tokens and JWT access tokens, plus an hour for clock differences and for a worker that
# signed with the old key in the second of its retirement.
PUBLISHED_AFTER_RETIREMENT = timedelta(days=1, hours=1)
LEASE_NAME = "key-rotation"
CHECK_INTERVAL_SECONDS = 3600
_PAGE_SIZE = 500
_log = logging.getLogger("gatehouse.keys")


class _LostRace(Exception):
    """Another worker took the same step first."""


class _Key(Struct, frozen=True):
    limits: Bounds
    organization_id: str
    id: UUID
    algorithm: str
    activated_at: datetime
    settings: dict[str, Any]
    successor_created_at: datetime | None

    @property
    def due_at(self) -> datetime:
        """When its successor must be published or activated."""
        if self.successor_created_at is not None:
            return self.successor_created_at + PUBLISHED_BEFORE_USE
        seconds: int = effective_settings(self.settings, self.limits)["oauth"]["signing"]["rotation_seconds"]
        return self.activated_at + timedelta(seconds=seconds) - PUBLISHED_BEFORE_USE


def advance_rotation(actor: Actor, algorithm: str) -> str:
    """Publish a successor of the active key, or activate one published for a day. Return its ``kid``.

    The retired key stays published until nothing it signed can still be valid. Calling this too early or
    concurrently changes nothing. Audit: ``signing_key.created``, or ``.activated`` and ``.retired``.
    """
    ensure_key(actor, algorithm, token_model.NEXT)
    try:
        return _step(actor, algorithm)
    except _LostRace:
        return _active_kid(actor.organization_id, algorithm)


def replace_key_immediately(actor: Actor, algorithm: str) -> str:
    """Replace every key of the algorithm, the next one included, and return the new ``kid`` (KY-5).

    Signatures of the removed keys no longer verify once verifiers fetch the key set again. Raises Conflict if
    another caller replaced the keys at the same time. Audit: ``signing_key.removed`` for each,
    ``signing_key.created``.
    """
    key = generate_key(actor.organization_id, algorithm)
    try:
        _replace(actor, key)
    except IntegrityError as error:
        raise Conflict(
            "The keys were changed at the same time. Check the current keys, then try again."
        ) from error
    return key.kid


def rotate_due_keys(actor: Actor) -> list[str]:
    """Take the next rotation step for every key that is due. Return the ``kid`` of each successor.

    Every worker calls this, and a lease lets one of them run it once an hour. A key that cannot be rotated is
    logged and does not affect the others. Raises Forbidden. Audit: as ``advance_rotation``.
    """
    actor.require("instance:write")
    if not leases.acquire(LEASE_NAME, secrets.token_hex(8), CHECK_INTERVAL_SECONDS):
        return []
    now = clock.now()
    due = [key for key in _iterate_active_keys() if (at := _find_due_time(key)) is not None and at <= now]
    return [kid for kid in map(_advance, due) if kid is not None]


def next_rotation_at() -> datetime | None:
    """Return when the first key of any organization is due, or None if there are none."""
    times = (_find_due_time(key) for key in _iterate_active_keys())
    return min((at for at in times if at is not None), default=None)


@transaction
def _step(actor: Actor, algorithm: str) -> str:
    now = clock.now()
    successor = find_key_in_slot(actor.organization_id, algorithm, token_model.NEXT)
    if successor is None:
        raise _LostRace
    if successor.created_at > now - PUBLISHED_BEFORE_USE:
        return successor.kid
    lookups.touch_organization(actor.organization_id)
    retired = find_key_in_slot(actor.organization_id, algorithm, token_model.ACTIVE)
    if retired is not None:
        remove_at = now + PUBLISHED_AFTER_RETIREMENT
        _move(retired, None, state=token_model.RETIRED, retired_at=now, remove_at=remove_at)
    _move(successor, token_model.ACTIVE, state=token_model.ACTIVE, activated_at=now)
    if retired is not None:
        record_key_event(actor, "retired", retired.kid, algorithm)
    record_key_event(actor, "activated", successor.kid, algorithm)
    return successor.kid


def _move(key: SigningKey, slot: str | None, **values: Any) -> None:
    # Concurrent callers read the same rows. The condition on the slot lets only the first one change them.
    changed = count_changed(
        update(SigningKey)
        .where(has_key(SigningKey, key.organization_id, key.id), SigningKey.slot == key.slot)
        .values(slot=slot, **values)
    )
    if changed != 1:
        raise _LostRace


@transaction
def _active_kid(organization_id: str, algorithm: str) -> str:
    active = find_key_in_slot(organization_id, algorithm, token_model.ACTIVE)
    if active is None:
        raise Conflict("The keys were changed at the same time. Check the current keys, then try again.")
    return active.kid


@transaction
def _replace(actor: Actor, key: NewKey) -> None:
    lookups.touch_organization(actor.organization_id)
    same_algorithm = (
        SigningKey.organization_id == actor.organization_id,
        SigningKey.algorithm == key.algorithm,
    )
    is_published = or_(SigningKey.remove_at.is_(None), SigningKey.remove_at > clock.now())
    published = db.session.execute(
        select(SigningKey.id, SigningKey.kid).where(*same_algorithm, is_published)
    ).all()
    count_changed(delete(SigningKey).where(*same_algorithm))
    store_key(actor, key, token_model.ACTIVE)
    for _, kid in published:
        record_key_event(actor, "removed", kid, key.algorithm, emergency=True)


def _find_due_time(key: _Key) -> datetime | None:
    try:
        return key.due_at
    except Exception:  # noqa: BLE001 - the key of one organization must not keep those of the others from rotating
        _log.warning("it is unknown when a signing key of %s is due", key.organization_id, exc_info=True)
        return None


def _advance(key: _Key) -> str | None:
    try:
        return advance_rotation(Actor.system(key.organization_id, "key rotation"), key.algorithm)
    except Exception:  # noqa: BLE001 - as above
        # The organization was just deleted, or the row was sealed under another master key.
        _log.warning("a signing key of %s was not rotated", key.organization_id, exc_info=True)
        return None


def _iterate_active_keys() -> Iterator[_Key]:
    page: list[_Key] = []
    while True:
        page = _page_after(page[-1] if page else None)
        yield from page
        if len(page) < _PAGE_SIZE:
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
                successor.slot == token_model.NEXT,
            ),
        )
        .where(
            SigningKey.slot == token_model.ACTIVE,
            Organization.status == ACTIVE,
            lookups.is_served_here(SigningKey.organization_id),
        )
        .order_by(SigningKey.organization_id, SigningKey.id)
        .limit(_PAGE_SIZE)
        .execution_options(**ACROSS)
    )
    if last is not None:
        same = and_(SigningKey.organization_id == last.organization_id, SigningKey.id > last.id)
        statement = statement.where(or_(SigningKey.organization_id > last.organization_id, same))
    limits = current_limits()
    return [_Key(limits, *row) for row in db.session.execute(statement)]
