"""One step of a rotation: a key is next, then active, then retired, then gone (KY-1); or replaced at once (KY-5)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, or_, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models import signing_key as key_model
from app.models.signing_key import SigningKey
from app.operations import audit, clock, directory, view_changes
from app.operations.signing import making
from app.operations.transaction import count_changed, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict

# A key is published so long before it signs that every verifier has met it.
PUBLISHED_BEFORE = timedelta(days=1)
# The ceiling of an ID token's life, and of a JWT access token's; an hour more for clocks that differ and for a
# worker that signed with the old key in the very second of its retirement.
PUBLISHED_AFTER = timedelta(days=1, hours=1)


class _Overtaken(Exception):
    """Another worker made the same step first."""


def advance(actor: Actor, algorithm: str) -> str:
    """The successor of the active key is published; or, published for a day, it signs. Returns its ``kid``.

    What signed before stays published until nothing that it signed can still be valid. Asked again too early, or by
    many at once, nothing more happens. Audit: ``signing_key.created``, or ``.activated`` and ``.retired``.
    """
    making.stand(actor, algorithm, key_model.NEXT)
    try:
        return _step(actor, algorithm)
    except _Overtaken:
        return _active_kid(actor.organization_id, algorithm)


def replace_at_once(actor: Actor, algorithm: str) -> str:
    """A fresh key signs, and every other of the algorithm is gone, the next one too: they lay side by side (KY-5).

    What those had signed verifies no more, nowhere, as soon as verifiers ask for the keys again. Returns the new
    ``kid``. Raises Conflict when another replaced them at the same moment. Audit: ``signing_key.removed`` for each,
    ``signing_key.created``.
    """
    fresh = making.generate(actor.organization_id, algorithm)
    try:
        _replace(actor, fresh)
    except IntegrityError as error:
        raise Conflict("A key was made at the same moment. Look at the keys, and try again.") from error
    return fresh.kid


def note_removals(actor: Actor, ids: Sequence[UUID]) -> None:
    """These retired keys go: ``actor`` is the janitor, whose transaction it is. Audit: ``signing_key.removed``."""
    organization_id = actor.organization_id
    rows = db.session.execute(
        select(SigningKey.kid, SigningKey.algorithm).where(
            SigningKey.organization_id == organization_id, SigningKey.id.in_(ids)
        )
    ).all()
    view_changes.mark(organization_id)
    for kid, algorithm in rows:
        _note(actor, "removed", kid, algorithm)


@transaction
def _step(actor: Actor, algorithm: str) -> str:
    moment = clock.now()
    successor = making.find_in_slot(actor.organization_id, algorithm, key_model.NEXT)
    if successor is None:
        raise _Overtaken
    kid, row_id = successor.kid, successor.id
    if successor.created_at > moment - PUBLISHED_BEFORE:
        return kid
    retired = making.find_in_slot(actor.organization_id, algorithm, key_model.ACTIVE)
    if retired is not None:
        _move(
            retired.organization_id,
            retired.id,
            key_model.ACTIVE,
            state=key_model.RETIRED,
            slot=None,
            retired_at=moment,
            remove_at=moment + PUBLISHED_AFTER,
        )
    _move(
        actor.organization_id,
        row_id,
        key_model.NEXT,
        state=key_model.ACTIVE,
        slot=key_model.ACTIVE,
        activated_at=moment,
    )
    directory.touch_organization(actor.organization_id)
    if retired is not None:
        _note(actor, "retired", retired.kid, algorithm)
    _note(actor, "activated", kid, algorithm)
    return kid


def _move(organization_id: str, row_id: UUID, out_of: str, **values: Any) -> None:
    # Two that make the same step read the same rows; the slot that a row still holds tells who was first.
    changed = count_changed(
        update(SigningKey)
        .where(
            SigningKey.organization_id == organization_id,
            SigningKey.id == row_id,
            SigningKey.slot == out_of,
        )
        .values(**values)
    )
    if changed != 1:
        raise _Overtaken


@transaction
def _active_kid(organization_id: str, algorithm: str) -> str:
    active = making.find_in_slot(organization_id, algorithm, key_model.ACTIVE)
    if active is None:
        raise Conflict("The keys were replaced at the same moment. Look at them, and try again.")
    return active.kid


@transaction
def _replace(actor: Actor, fresh: making.NewKey) -> None:
    mine = SigningKey.organization_id == actor.organization_id, SigningKey.algorithm == fresh.algorithm
    standing = db.session.execute(
        select(SigningKey.id, SigningKey.kid).where(*mine, _is_published(clock.now()))
    ).all()
    count_changed(delete(SigningKey).where(*mine))
    making.store(actor, fresh, key_model.ACTIVE)
    directory.touch_organization(actor.organization_id)
    for _, kid in standing:
        _note(actor, "removed", kid, fresh.algorithm, emergency=True)


def _is_published(now: datetime) -> Any:
    return or_(SigningKey.remove_at.is_(None), SigningKey.remove_at > now)


def _note(actor: Actor, what: str, kid: str, algorithm: str, **more: Any) -> None:
    after = {"algorithm": algorithm, **more}
    audit.record(actor, f"signing_key.{what}", target_type="signing_key", target_id=kid, after=after)
