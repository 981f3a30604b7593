"""The hash chain of the audit log: one elected worker seals events a few seconds after their commit, and verification
finds every later change (AU-3).

Sealing in the request would make one row per organization a bottleneck. Removing, changing, adding or moving events in
the database afterwards breaks the chain. A change within the seconds before the sealing is not detected.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.config import current
from app.extensions import db
from app.models.audit import AuditChain, AuditEvent, AuditLink, InstanceFact
from app.models.organization import Organization
from app.operations.audit.audit_events import PREFIX
from app.operations.store import clock, keyring, leases
from app.operations.store.checkpoints import find_epoch, write_private_file
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.audit.events import GENESIS, PROBLEMS, head_mac, link_mac, serialize_event
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import first_id_at, public_id
from app.rules.organizations.organizations import ROOT_SLUG
from app.tenant_fence import ACROSS

LEASE = "audit-sealer"
LEASE_SECONDS = 30
BATCH = 1000
# How long after its own time an event may be committed: longer than any transaction takes.
MAX_COMMIT_DELAY = timedelta(minutes=2)
_PROGRESS = "audit sealer"
_COLUMNS = [column.name for column in AuditEvent.__table__.columns]
_log = logging.getLogger("gatehouse.audit")
MAX_EVENTS_CHECKED = 5_000
MAX_PROBLEMS = 100
_BATCH = 500
# Events are sealed almost in the order of their times. One that is further behind was inserted later.
_MAX_DISORDER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of an organization's chain, as a checkpoint in the log has it."""

    organization_id: str
    length: int
    mac: bytes


def seal_pending_events(actor: Actor, *, holder: str) -> dict[str, ChainHead] | None:
    """Add every committed event to its organization's chain, and return the chains that grew.

    Returns None if another worker is the sealer. ``holder`` names this worker in the lease.
    """
    actor.require("instance:write")
    if not leases.acquire(LEASE, holder, LEASE_SECONDS):
        return None
    heads: dict[str, ChainHead] = {}
    skipped: set[str] = set()
    stalled: list[datetime] = []
    while leases.renew(LEASE, holder, LEASE_SECONDS):
        started_at, through = clock.now(), sealed_through()
        rows = _find_unsealed(None if through is None else through - MAX_COMMIT_DELAY, skipped)
        for organization_id, group in groupby(sorted(rows, key=_organization_id), key=_organization_id):
            waiting = list(group)
            try:
                head = _try_append(organization_id, waiting)
            except NotFound:
                # The organization was purged in the meantime.
                skipped.add(organization_id)
                continue
            if head is None:
                skipped.add(organization_id)
                stalled.append(min(row.at for row in waiting))
            else:
                heads[organization_id] = head
        is_done = len(rows) < BATCH
        # Nothing is skipped: the next run begins where a chain could not be extended.
        _set_progress(min([started_at if is_done else min(started_at, rows[-1].at), *stalled]))
        if is_done:
            break
    return heads


def seal_all_events(actor: Actor, organization_id: str) -> None:
    """Seal all events of one organization, however old, such as imported ones.

    The regular sealing never looks that far back.
    """
    actor.require("instance:write")
    while rows := _find_unsealed_of(organization_id):
        _try_append(organization_id, rows)


@read
def sealed_through() -> datetime | None:
    """Return the time before which all events are sealed except late commits, or None before the first sealing."""
    fact = db.session.get(InstanceFact, _PROGRESS)
    return None if fact is None else datetime.fromisoformat(fact.value["through"])


def chain_key(organization_id: str) -> bytes:
    """Return the organization's key. Raises NotFound if its data key was destroyed."""
    return keyring.derive_organization_key(organization_id, "audit chain")


def serialize_row(row: Any) -> bytes:
    """Serialize the row of an event as its link covers it."""
    return serialize_event({name: getattr(row, name) for name in _COLUMNS})


def has_events_before(organization_id: str, before: datetime) -> bool:
    """Return whether the oldest event of the chain is older than ``before``."""
    return bool(_find_oldest(organization_id, before, 1))


@transaction
def remove_events_before(organization_id: str, before: datetime, limit: int) -> int:
    """Delete up to ``limit`` of the oldest events of the chain with their links, and return how many.

    The chain then begins after them. Events that were never sealed are kept as evidence. Runs in the janitor's
    transaction.
    """
    key = chain_key(organization_id)
    links = _find_oldest(organization_id, before, limit)
    if not links:
        return 0
    chain = _find_chain(organization_id)
    last = links[-1]
    ids = [link.id for link in links]
    _update_chain(key, organization_id, chain, {"removed": last.position, "anchor": last.mac})
    for model in (AuditLink, AuditEvent):
        table = model.__table__
        db.session.execute(
            delete(model).where(table.c.organization_id == organization_id, table.c.id.in_(ids)),
            execution_options={"synchronize_session": False},
        )
    return len(links)


def _organization_id(row: Any) -> str:
    return str(row.organization_id)


@read
def _find_unsealed(since: datetime | None, skipped: Collection[str]) -> list[Any]:
    event, link = AuditEvent.__table__.c, AuditLink.__table__.c
    found = (
        select(AuditEvent.__table__)
        .outerjoin(
            AuditLink.__table__, (link.organization_id == event.organization_id) & (link.id == event.id)
        )
        .where(link.id.is_(None), event.organization_id.not_in(skipped))
        # This is the order of the index, because an index in MariaDB ends with the primary key.
        .order_by(event.at, event.organization_id, event.id)
        .limit(BATCH)
        .execution_options(**ACROSS)
    )
    return list(db.session.execute(found if since is None else found.where(event.at >= since)).all())


@read
def _find_unsealed_of(organization_id: str) -> list[Any]:
    event, link = AuditEvent.__table__.c, AuditLink.__table__.c
    sealed = select(link.id).where(link.organization_id == organization_id)
    found = (
        select(AuditEvent.__table__)
        .where(event.organization_id == organization_id, event.id.not_in(sealed))
        .order_by(event.at, event.id)
        .limit(BATCH)
    )
    return list(db.session.execute(found).all())


def _try_append(organization_id: str, rows: Sequence[Any]) -> ChainHead | None:
    """Return the new head of the chain, or None if retention changed the chain at the same time."""
    key = chain_key(organization_id)
    try:
        return _append(key, organization_id, rows)
    except (Conflict, IntegrityError):
        _log.warning(
            "the chain of %s was changed concurrently, its events are sealed in the next run", organization_id
        )
        return None


@transaction
def _append(key: bytes, organization_id: str, rows: Sequence[Any]) -> ChainHead:
    chain = _find_chain(organization_id)
    if chain is None:
        ends: dict[str, Any] = {"length": 0, "head": GENESIS, "removed": 0, "anchor": GENESIS}
        first = {"organization_id": organization_id, "mac": head_mac(key, **ends), "grown_at": clock.now()}
        db.session.execute(insert(AuditChain).values(**first, **ends))
        chain = _find_chain(organization_id)
    position, mac = chain.length, chain.head
    links = []
    for row in rows:
        position += 1
        mac = link_mac(key, mac, position, serialize_row(row))
        links.append({"organization_id": organization_id, "id": row.id, "position": position, "mac": mac})
    db.session.execute(insert(AuditLink), links)
    _update_chain(key, organization_id, chain, {"length": position, "head": mac})
    return ChainHead(organization_id, position, mac)


def _update_chain(key: bytes, organization_id: str, chain: Any, changes: Mapping[str, Any]) -> None:
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
        raise Conflict("The chain was changed by another process.")


@read
def _find_oldest(organization_id: str, before: datetime, limit: int) -> list[Any]:
    rows = db.session.execute(
        select(AuditLink.__table__)
        .where(AuditLink.organization_id == organization_id)
        .order_by(AuditLink.position)
        .limit(limit)
    ).all()
    bound: UUID = first_id_at(before)
    expired = []
    for row in rows:
        # The chain must stay contiguous, so events behind one that is still retained wait for it.
        if row.id >= bound:
            break
        expired.append(row)
    return expired


@transaction
def _set_progress(through: datetime) -> None:
    fact = db.session.get(InstanceFact, _PROGRESS)
    value = {"through": through.isoformat()}
    if fact is None:
        db.session.add(InstanceFact(name=_PROGRESS, value=value, updated_at=clock.now()))
    else:
        fact.value, fact.updated_at = value, clock.now()


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """One place where log and chain differ; ``kind`` is one of rules/audit/chain.PROBLEMS."""

    kind: str
    position: int | None = None
    event_id: str | None = None

    @property
    def message(self) -> str:
        """The problem in words."""
        return PROBLEMS[self.kind]


@dataclass(slots=True)
class ChainVerification:
    """The result of a verification. ``removed`` of ``length`` links were deleted by retention, ``pending`` are not
    sealed yet.

    ``head`` is the MAC of the last link in hexadecimal digits. ``next_position`` is where to continue, or None if the
    end of the chain was reached.
    """

    length: int = 0
    removed: int = 0
    head: str | None = None
    checked: int = 0
    pending: int = 0
    problems: list[ChainProblem] = field(default_factory=list)
    next_position: int | None = None

    @property
    def is_intact(self) -> bool:
        """Return whether no problem was found."""
        return not self.problems


def remember_heads(heads: Collection[ChainHead]) -> None:
    """Write each head into a file of the instance folder, so that this host recognizes a chain that was put back."""
    epoch = _current_epoch() if heads else None
    for head in heads:
        document = {"epoch": epoch, "length": head.length, "mac": head.mac.hex()}
        write_private_file(_head_file(head.organization_id), document, durable=False)


def _read_head(organization_id: str) -> tuple[int, bytes, str | None] | None:
    """Return length, MAC and epoch of the head that this host has seen last, or None."""
    try:
        seen = json.loads(_head_file(organization_id).read_text())
        return int(seen["length"]), bytes.fromhex(seen["mac"]), seen["epoch"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _find_rollback(
    organization_id: str, chain: Any, seen: tuple[int, bytes, str | None] | None
) -> list[ChainProblem]:
    """Return the problem that the chain does not contain the head that this host has seen last, if it does not.

    A head from before a restore of a backup is ignored: ``maintenance restore`` begins a new epoch.
    """
    if seen is None:
        return []
    length, mac, epoch = seen
    current_epoch = _current_epoch()
    if current_epoch is not None and epoch != current_epoch:
        return []
    if chain is not None and (
        length < chain.removed or (length <= chain.length and _mac_at(chain, length) == mac)
    ):
        return []
    return [] if chain is None and _is_purged(organization_id) else [ChainProblem("rolled_back", length)]


def _head_file(organization_id: str) -> Path:
    return current().instance / "chains" / f"{organization_id}.json"


@read
def _current_epoch() -> str | None:
    root_id = db.session.scalar(select(Organization.id).where(Organization.slug == ROOT_SLUG))
    return None if root_id is None else find_epoch(root_id)


def verify_audit_log(actor: Actor, *, after: int = 0, limit: int = MAX_EVENTS_CHECKED) -> ChainVerification:
    """Verify up to ``limit`` events after the position against the chain, and report up to MAX_PROBLEMS problems.

    The end of the chain, and events outside of it, are checked when the end is reached.
    """
    actor.require("audit:read")
    here = actor.organization_id
    # The head before the chain: a worker of this host may append to the chain and remember its new head meanwhile.
    seen = _read_head(here)
    key, chain = chain_key(here), _find_chain(here)
    found = ChainVerification()
    if chain is None:
        found.problems += _find_rollback(here, None, seen)
        _check_unsealed_events(here, found)
        if not found.pending and _should_have_chain(here):
            found.problems.insert(0, ChainProblem("chain_missing"))
        return found
    found.length, found.removed, found.head = chain.length, chain.removed, bytes(chain.head).hex()
    ends = {name: getattr(chain, name) for name in ("length", "head", "removed", "anchor")}
    if head_mac(key, **ends) != chain.mac:
        found.problems.append(ChainProblem("head_changed"))
    last, mac = _check_links(key, chain, found, max(after, chain.removed), limit)
    if found.next_position is not None:
        return found
    if last < chain.length or (last == chain.length and mac != chain.head):
        found.problems.append(ChainProblem("truncated", last))
    found.problems += _find_rollback(here, chain, seen)
    _check_unsealed_events(here, found)
    del found.problems[MAX_PROBLEMS:]
    return found


def matches_checkpoint(actor: Actor, position: int, mac: bytes) -> bool:
    """Return whether the chain matches a checkpoint. True where retention has deleted that position since."""
    actor.require("audit:read")
    chain = _find_chain(actor.organization_id)
    if chain is None:
        return _is_purged(actor.organization_id)
    if position < chain.removed:
        return True
    return position <= chain.length and _mac_at(chain, position) == mac


def _check_links(
    key: bytes, chain: Any, found: ChainVerification, after: int, limit: int
) -> tuple[int, bytes | None]:
    """Check the links and return (position, mac) of the last one."""
    here = chain.organization_id
    mac: bytes | None = _mac_at(chain, after)
    newest: datetime | None = None
    for row in _links(here, after, chain.length):
        if len(found.problems) >= MAX_PROBLEMS:
            break
        if found.checked == limit:
            found.next_position = after
            break
        event_id = public_id(PREFIX, row.id)
        if row.position != after + 1:
            anchor = _anchor_before(here, row.position)
            if anchor is None:
                found.problems.append(ChainProblem("link_missing", after + 1))
            mac = anchor
        if row.at is None:
            found.problems.append(ChainProblem("missing", row.position, event_id))
        elif mac is not None and link_mac(key, mac, row.position, serialize_row(row)) != row.mac:
            found.problems.append(ChainProblem("changed", row.position, event_id))
        elif newest is not None and row.at < newest - _MAX_DISORDER:
            found.problems.append(ChainProblem("inserted", row.position, event_id))
        if row.at is not None:
            newest = row.at if newest is None else max(newest, row.at)
        # The next event is checked against the stored link, so that each change is reported once and where it is.
        after, mac = row.position, row.mac
        found.checked += 1
    return after, mac


def _links(organization_id: str, after: int, last: int) -> Iterator[Any]:
    while True:
        rows = _find_link_batch(organization_id, after, last)
        yield from rows
        if len(rows) < _BATCH:
            return
        after = rows[-1].position


@read
def _find_link_batch(organization_id: str, after: int, last: int) -> list[Any]:
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


def _check_unsealed_events(organization_id: str, found: ChainVerification) -> None:
    """Check events without a link: recent ones wait for the sealer, older ones were inserted later."""
    through = sealed_through()
    bound = None if through is None else through - MAX_COMMIT_DELAY
    old, found.pending = _find_unsealed_entries(organization_id, bound)
    found.problems += [ChainProblem("inserted", None, public_id(PREFIX, row_id)) for row_id in old]


@read
def _find_unsealed_entries(organization_id: str, bound: datetime | None) -> tuple[list[UUID], int]:
    """Return the ids of those before the bound, and the number of the others."""
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
    old = db.session.scalars(alone.where(event.at < bound).order_by(event.id).limit(MAX_PROBLEMS)).all()
    fresh = alone.where(event.at >= bound).subquery()
    return list(old), int(db.session.scalar(select(func.count()).select_from(fresh)) or 0)


@read
def _should_have_chain(organization_id: str) -> bool:
    through = sealed_through()
    made = db.session.scalar(select(Organization.created_at).where(Organization.id == organization_id))
    return through is not None and made is not None and made < through - MAX_COMMIT_DELAY


@read
def _is_purged(organization_id: str) -> bool:
    wrapped = db.session.execute(
        select(Organization.data_key).where(Organization.id == organization_id)
    ).first()
    return wrapped is not None and wrapped.data_key is None


@read
def _anchor_before(organization_id: str, position: int) -> bytes | None:
    """Return the anchor if retention has just removed everything before the position."""
    return db.session.scalar(
        select(AuditChain.anchor).where(
            AuditChain.organization_id == organization_id, AuditChain.removed == position - 1
        )
    )


@read
def _find_chain(organization_id: str) -> Any:
    return db.session.execute(
        select(AuditChain.__table__).where(AuditChain.organization_id == organization_id)
    ).first()
