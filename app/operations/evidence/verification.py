"""Verification of an organization's audit log against its hash chain (AU-4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.extensions import db
from app.models.audit import AuditChain, AuditEvent, AuditLink
from app.models.organization import Organization
from app.operations.evidence.audit_events import PREFIX
from app.operations.evidence.sealing import LATE, bytes_of, chain_key, sealed_through
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.evidence.chain import GENESIS, PROBLEMS, head_mac, link_mac
from app.rules.identifiers import public_id

MOST_CHECKED = 5_000
MOST_PROBLEMS = 100
_BATCH = 500
# Events are chained nearly in the order of their times; one that is further behind was slipped in.
_DISORDER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Problem:
    """One place where log and chain differ; ``kind`` is one of rules/evidence/chain.PROBLEMS."""

    kind: str
    position: int | None = None
    event_id: str | None = None

    @property
    def words(self) -> str:
        """What is wrong, for people."""
        return PROBLEMS[self.kind]


@dataclass(slots=True)
class Verification:
    """What was found. ``removed``: so many of the ``length`` went by retention; ``waiting``: not yet sealed.

    ``next_position`` is where to go on, or None when the end of the chain was reached.
    """

    length: int = 0
    removed: int = 0
    checked: int = 0
    waiting: int = 0
    problems: list[Problem] = field(default_factory=list)
    next_position: int | None = None

    @property
    def is_intact(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.problems


def verify_audit_log(actor: Actor, *, after: int = 0, most: int = MOST_CHECKED) -> Verification:
    """The events after the position, at most so many, were held against the chain; up to MOST_PROBLEMS are told.

    What lies at the end of the chain, and what belongs to no chain, is looked at when the end is reached.
    """
    actor.require("audit:read")
    here = actor.organization_id
    key, chain = chain_key(here), _chain(here)
    found = Verification()
    if chain is None:
        _look_beside(here, found)
        if not found.waiting and _should_have_chain(here):
            found.problems.insert(0, Problem("chain_missing"))
        return found
    found.length, found.removed = chain.length, chain.removed
    ends = {name: getattr(chain, name) for name in ("length", "head", "removed", "anchor")}
    if head_mac(key, **ends) != chain.mac:
        found.problems.append(Problem("head_changed"))
    last, mac = _walk(key, chain, found, max(after, chain.removed), most)
    if found.next_position is not None:
        return found
    if last < chain.length or (last == chain.length and mac != chain.head):
        found.problems.append(Problem("truncated", last))
    _look_beside(here, found)
    del found.problems[MOST_PROBLEMS:]
    return found


def checkpoint_fits(actor: Actor, position: int, mac: bytes) -> bool:
    """Whether the chain is the one that a checkpoint saw at the position; True where retention has been since."""
    actor.require("audit:read")
    chain = _chain(actor.organization_id)
    if chain is None:
        return _is_purged(actor.organization_id)
    if position < chain.removed:
        return True
    return position <= chain.length and _mac_at(chain, position) == mac


def _walk(key: bytes, chain: Any, found: Verification, after: int, most: int) -> tuple[int, bytes | None]:
    """(position, mac) of the last link that stands."""
    here = chain.organization_id
    mac: bytes | None = _mac_at(chain, after)
    newest: datetime | None = None
    for row in _links(here, after, chain.length):
        if len(found.problems) >= MOST_PROBLEMS:
            break
        if found.checked == most:
            found.next_position = after
            break
        event_id = public_id(PREFIX, row.id)
        if row.position != after + 1:
            anchor = _anchor_before(here, row.position)
            if anchor is None:
                found.problems.append(Problem("link_missing", after + 1))
            mac = anchor
        if row.at is None:
            found.problems.append(Problem("missing", row.position, event_id))
        elif mac is not None and link_mac(key, mac, row.position, bytes_of(row)) != row.mac:
            found.problems.append(Problem("changed", row.position, event_id))
        elif newest is not None and row.at < newest - _DISORDER:
            found.problems.append(Problem("inserted", row.position, event_id))
        if row.at is not None:
            newest = row.at if newest is None else max(newest, row.at)
        # What follows is held against the link as it stands: each change is told once, at its own place.
        after, mac = row.position, row.mac
        found.checked += 1
    return after, mac


def _links(organization_id: str, after: int, last: int) -> Iterator[Any]:
    while True:
        rows = _batch(organization_id, after, last)
        yield from rows
        if len(rows) < _BATCH:
            return
        after = rows[-1].position


@read
def _batch(organization_id: str, after: int, last: int) -> list[Any]:
    event, link = AuditEvent.__table__.c, AuditLink.__table__.c
    others = [column for column in event if column.name not in {"organization_id", "id"}]
    return list(
        db.session.execute(
            select(link.organization_id, link.id, link.position, link.mac, *others)
            .select_from(AuditLink.__table__)
            .outerjoin(
                AuditEvent.__table__,
                (event.organization_id == link.organization_id) & (event.id == link.id),
            )
            .where(link.organization_id == organization_id, link.position > after, link.position <= last)
            .order_by(link.position)
            .limit(_BATCH)
        ).all()
    )


@read
def _mac_at(chain: Any, position: int) -> bytes:
    if position == chain.removed:
        return bytes(chain.anchor)
    mac = db.session.scalar(
        select(AuditLink.mac).where(
            AuditLink.organization_id == chain.organization_id, AuditLink.position == position
        )
    )
    return GENESIS if mac is None else mac


def _look_beside(organization_id: str, found: Verification) -> None:
    """Events without a link: those of the last moments wait for the sealer, older ones were slipped in."""
    through = sealed_through()
    bound = None if through is None else through - LATE
    old, found.waiting = _unsealed(organization_id, bound)
    found.problems += [Problem("inserted", None, public_id(PREFIX, row_id)) for row_id in old]


@read
def _unsealed(organization_id: str, bound: datetime | None) -> tuple[list[UUID], int]:
    """(ids of those before the bound, number of the others)."""
    event, link = AuditEvent.__table__.c, AuditLink.__table__.c
    alone = (
        select(event.id)
        .select_from(AuditEvent.__table__)
        .outerjoin(
            AuditLink.__table__, (link.organization_id == event.organization_id) & (link.id == event.id)
        )
        .where(event.organization_id == organization_id, link.id.is_(None))
    )
    if bound is None:
        return [], int(db.session.scalar(select(func.count()).select_from(alone.subquery())) or 0)
    old = db.session.scalars(alone.where(event.at < bound).order_by(event.id).limit(MOST_PROBLEMS)).all()
    fresh = alone.where(event.at >= bound).subquery()
    return list(old), int(db.session.scalar(select(func.count()).select_from(fresh)) or 0)


@read
def _should_have_chain(organization_id: str) -> bool:
    through = sealed_through()
    made = db.session.scalar(select(Organization.created_at).where(Organization.id == organization_id))
    return through is not None and made is not None and made < through - LATE


@read
def _is_purged(organization_id: str) -> bool:
    wrapped = db.session.execute(
        select(Organization.data_key).where(Organization.id == organization_id)
    ).first()
    return wrapped is not None and wrapped.data_key is None


@read
def _anchor_before(organization_id: str, position: int) -> bytes | None:
    """The anchor, where retention has just removed all that stood before the position."""
    return db.session.scalar(
        select(AuditChain.anchor).where(
            AuditChain.organization_id == organization_id, AuditChain.removed == position - 1
        )
    )


@read
def _chain(organization_id: str) -> Any:
    return db.session.execute(
        select(AuditChain.__table__).where(AuditChain.organization_id == organization_id)
    ).first()
