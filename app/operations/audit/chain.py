"""The sealer: one elected worker chains audit events, a few seconds after they were committed (AU-3).

In the request it would make one row of each organization a queue. Who removes, changes, adds or moves events in the
database afterwards breaks the chain; what an intruder does in the seconds before is sealed as it is found then.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.audit import AuditChain, AuditEvent, AuditLink
from app.models.event import InstanceFact
from app.models.organization import Organization
from app.operations.audit.audit_events import PREFIX
from app.operations.store import clock, keyring, leases
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.audit.chain import GENESIS, PROBLEMS, event_bytes, head_mac, link_mac
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import first_id_at, public_id
from app.tenant_fence import ACROSS

LEASE = "audit-sealer"
LEASE_SECONDS = 30
BATCH = 1000
# How long after its own time an event may be committed: longer than any unit of work lives.
LATE = timedelta(minutes=2)
_PROGRESS = "audit sealer"
_COLUMNS = [column.name for column in AuditEvent.__table__.columns]
_log = logging.getLogger("gatehouse.audit")


@dataclass(frozen=True, slots=True)
class Head:
    """Where an organization's chain ends: what a checkpoint in the log says."""

    organization_id: str
    length: int
    mac: bytes


def seal_waiting(actor: Actor, *, holder: str) -> dict[str, Head] | None:
    """Every event that was committed is part of its organization's chain; returns the chains that grew.

    None when another worker is the sealer; ``holder`` names this one in the lease.
    """
    actor.require("instance:write")
    if not leases.acquire(LEASE, holder, LEASE_SECONDS):
        return None
    grown: dict[str, Head] = {}
    left_out: set[str] = set()
    stalled: list[datetime] = []
    while leases.renew(LEASE, holder, LEASE_SECONDS):
        begun, through = clock.now(), sealed_through()
        rows = _unsealed(None if through is None else through - LATE, left_out)
        for organization_id, group in groupby(sorted(rows, key=_organization), key=_organization):
            waiting = list(group)
            try:
                head = _appended(organization_id, waiting)
            except NotFound:
                # The organization was purged meanwhile.
                left_out.add(organization_id)
                continue
            if head is None:
                left_out.add(organization_id)
                stalled.append(min(row.at for row in waiting))
            else:
                grown[organization_id] = head
        is_done = len(rows) < BATCH
        # Nothing is passed over: where a chain could not grow, the next turn begins.
        _advance(min([begun if is_done else min(begun, rows[-1].at), *stalled]))
        if is_done:
            break
    return grown


def seal_rest(actor: Actor, organization_id: str) -> None:
    """Every event of one organization is in its chain, however old it is; what an import brought in, and what it did.

    The sealer at work never looks that far back.
    """
    actor.require("instance:write")
    while rows := _unsealed_of(organization_id):
        _appended(organization_id, rows)


@read
def sealed_through() -> datetime | None:
    """The time before which nothing waits to be sealed, but for what is LATE; None before the first sealing."""
    fact = db.session.get(InstanceFact, _PROGRESS)
    return None if fact is None else datetime.fromisoformat(fact.value["through"])


def chain_key(organization_id: str) -> bytes:
    """The organization's key. Raises NotFound for one whose data key was destroyed."""
    return keyring.derive_organization_key(organization_id, "audit chain")


def bytes_of(row: Any) -> bytes:
    """An event's row as its link covers it."""
    return event_bytes({name: getattr(row, name) for name in _COLUMNS})


def has_ended(organization_id: str, before: datetime) -> bool:
    """Whether the oldest event of the chain is older than ``before``."""
    return bool(_oldest(organization_id, before, 1))


@transaction
def remove_before(organization_id: str, before: datetime, most: int) -> int:
    """The oldest events of the chain, those before the time and at most so many, are gone with their links.

    The chain begins after them from then on. An event that was never sealed stays: it is evidence. Part of the
    janitor's transaction; returns how many links went.
    """
    key = chain_key(organization_id)
    going = _oldest(organization_id, before, most)
    if not going:
        return 0
    chain = _chain(organization_id)
    last = going[-1]
    ids = [link.id for link in going]
    _replace(key, organization_id, chain, {"removed": last.position, "anchor": last.mac})
    for model in (AuditLink, AuditEvent):
        table = model.__table__
        db.session.execute(
            delete(model).where(table.c.organization_id == organization_id, table.c.id.in_(ids)),
            execution_options={"synchronize_session": False},
        )
    return len(going)


def _organization(row: Any) -> str:
    return str(row.organization_id)


@read
def _unsealed(since: datetime | None, left_out: Collection[str]) -> list[Any]:
    event, link = AuditEvent.__table__.c, AuditLink.__table__.c
    found = (
        select(AuditEvent.__table__)
        .outerjoin(
            AuditLink.__table__, (link.organization_id == event.organization_id) & (link.id == event.id)
        )
        .where(link.id.is_(None), event.organization_id.not_in(left_out))
        # The order of the index: an index of MariaDB ends with the primary key.
        .order_by(event.at, event.organization_id, event.id)
        .limit(BATCH)
        .execution_options(**ACROSS)
    )
    return list(db.session.execute(found if since is None else found.where(event.at >= since)).all())


@read
def _unsealed_of(organization_id: str) -> list[Any]:
    event, link = AuditEvent.__table__.c, AuditLink.__table__.c
    sealed = select(link.id).where(link.organization_id == organization_id)
    found = (
        select(AuditEvent.__table__)
        .where(event.organization_id == organization_id, event.id.not_in(sealed))
        .order_by(event.at, event.id)
        .limit(BATCH)
    )
    return list(db.session.execute(found).all())


def _appended(organization_id: str, rows: Sequence[Any]) -> Head | None:
    """The chain's new head; None when somebody else changed the chain at the same moment, as retention does."""
    key = chain_key(organization_id)
    try:
        return _append(key, organization_id, rows)
    except (Conflict, IntegrityError):
        _log.warning("the chain of %s was changed at the same moment; its events wait", organization_id)
        return None


@transaction
def _append(key: bytes, organization_id: str, rows: Sequence[Any]) -> Head:
    chain = _chain(organization_id)
    if chain is None:
        ends: dict[str, Any] = {"length": 0, "head": GENESIS, "removed": 0, "anchor": GENESIS}
        first = {"organization_id": organization_id, "mac": head_mac(key, **ends), "grown_at": clock.now()}
        db.session.execute(insert(AuditChain).values(**first, **ends))
        chain = _chain(organization_id)
    position, mac = chain.length, chain.head
    links = []
    for row in rows:
        position += 1
        mac = link_mac(key, mac, position, bytes_of(row))
        links.append({"organization_id": organization_id, "id": row.id, "position": position, "mac": mac})
    db.session.execute(insert(AuditLink), links)
    _replace(key, organization_id, chain, {"length": position, "head": mac})
    return Head(organization_id, position, mac)


def _replace(key: bytes, organization_id: str, chain: Any, changes: Mapping[str, Any]) -> None:
    names = ("length", "head", "removed", "anchor")
    ends = {name: getattr(chain, name) for name in names} | dict(changes)
    changed = count_changed(
        update(AuditChain)
        .where(
            AuditChain.organization_id == organization_id,
            AuditChain.length == chain.length,
            AuditChain.removed == chain.removed,
        )
        .values(**ends, mac=head_mac(key, **ends), grown_at=clock.now())
    )
    if changed != 1:
        raise Conflict("The chain grew at the same moment.")


def _chain(organization_id: str) -> Any:
    return db.session.execute(
        select(AuditChain.__table__).where(AuditChain.organization_id == organization_id)
    ).first()


@read
def _oldest(organization_id: str, before: datetime, most: int) -> list[Any]:
    rows = db.session.execute(
        select(AuditLink.__table__)
        .where(AuditLink.organization_id == organization_id)
        .order_by(AuditLink.position)
        .limit(most)
    ).all()
    bound: UUID = first_id_at(before)
    ended = []
    for row in rows:
        # The chain stays whole: what stands behind an event that is still kept waits for it.
        if row.id >= bound:
            break
        ended.append(row)
    return ended


@transaction
def _advance(through: datetime) -> None:
    fact = db.session.get(InstanceFact, _PROGRESS)
    value = {"through": through.isoformat()}
    if fact is None:
        db.session.add(InstanceFact(name=_PROGRESS, value=value, updated_at=clock.now()))
    else:
        fact.value, fact.updated_at = value, clock.now()


MOST_CHECKED = 5_000
MOST_PROBLEMS = 100
_BATCH = 500
# Events are chained nearly in the order of their times; one that is further behind was slipped in.
_DISORDER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Problem:
    """One place where log and chain differ; ``kind`` is one of rules/audit/chain.PROBLEMS."""

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
    key, chain = chain_key(here), _chain_of(here)
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
    chain = _chain_of(actor.organization_id)
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
    old, found.waiting = _unsealed_entries(organization_id, bound)
    found.problems += [Problem("inserted", None, public_id(PREFIX, row_id)) for row_id in old]


@read
def _unsealed_entries(organization_id: str, bound: datetime | None) -> tuple[list[UUID], int]:
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
def _chain_of(organization_id: str) -> Any:
    return db.session.execute(
        select(AuditChain.__table__).where(AuditChain.organization_id == organization_id)
    ).first()
