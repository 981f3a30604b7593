"""The hash chain of the audit log: one elected worker seals events a few seconds after their commit (AU-3).

Sealing in the request would make one row per organization a bottleneck. Removing, changing, adding or moving events in
the database afterwards breaks the chain. A change within the seconds before the sealing is not detected.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.audit import AuditChain, AuditEvent, AuditLink, InstanceFact
from app.operations.store import clock, keyring, leases
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.audit.events import GENESIS, head_mac, link_mac, serialize_event
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import first_id_at
from app.tenant_fence import ACROSS

LEASE = "audit-sealer"
LEASE_SECONDS = 30
BATCH = 1000
# How long after its own time an event may be committed: longer than any transaction takes.
MAX_COMMIT_DELAY = timedelta(minutes=2)
_PROGRESS = "audit sealer"
_COLUMNS = [column.name for column in AuditEvent.__table__.columns]
_log = logging.getLogger("gatehouse.audit")


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
    chain = find_chain(organization_id)
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
    chain = find_chain(organization_id)
    if chain is None:
        ends: dict[str, Any] = {"length": 0, "head": GENESIS, "removed": 0, "anchor": GENESIS}
        first = {"organization_id": organization_id, "mac": head_mac(key, **ends), "grown_at": clock.now()}
        db.session.execute(insert(AuditChain).values(**first, **ends))
        chain = find_chain(organization_id)
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


@read
def find_chain(organization_id: str) -> Any:
    """Return the row of the organization's chain, or None before the first sealing."""
    return db.session.execute(
        select(AuditChain.__table__).where(AuditChain.organization_id == organization_id)
    ).first()
