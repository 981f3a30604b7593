"""The hash chain of the audit log: one elected worker seals events a few seconds after their commit (AU-3).

Sealing in the request would make one row per organization a bottleneck. Removing, changing, adding or moving events in
the database afterwards breaks the chain. A change within the seconds before the sealing is not detected.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.audit import AuditChain, AuditEvent, AuditLink, InstanceFact
from app.operations.store import clock, keyring, leases
from app.operations.store.transactions import MAX_ATTEMPTS, insert_or_update, read, transaction
from app.rules.actor import Actor
from app.rules.audit.events import GENESIS, head_mac, link_mac, serialize_event
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import first_id_at
from app.rules.sealing import UnsealError
from app.tenant_fence import ACROSS

LEASE = "audit-sealer"
LEASE_SECONDS = 30
BATCH = 1000
# How long after its own time an event may be committed: longer than any transaction takes.
MAX_COMMIT_DELAY = timedelta(minutes=2)
_PROGRESS = "audit sealer"
_COLUMNS = [column.name for column in AuditEvent.__table__.columns]
# Both ends of a chain without links.
_EMPTY: Mapping[str, Any] = MappingProxyType({"length": 0, "head": GENESIS, "removed": 0, "anchor": GENESIS})
_log = logging.getLogger("gatehouse.audit")


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of an organization's chain, as a checkpoint in the log has it."""

    organization_id: str
    length: int
    mac: bytes


class _LeaseLost(Exception):
    """Another sealer has taken over."""


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
    while True:
        started_at, through = clock.now(), sealed_through()
        rows = _find_unsealed(None if through is None else through - MAX_COMMIT_DELAY, skipped)
        waiting = _group_by_organization(rows)
        keys, unreadable = _find_keys(waiting)
        try:
            grown = _try_append(keys, {name: waiting[name] for name in keys}, holder)
        except _LeaseLost:
            return heads
        heads |= grown
        # Those without a key were purged in the meantime.
        skipped |= waiting.keys() - grown.keys()
        stalled += [
            min(row.at for row in waiting[organization_id])
            for organization_id in (keys.keys() | unreadable) - grown.keys()
        ]
        is_done = len(rows) < BATCH
        # Nothing is skipped: the next run begins where a chain could not be extended.
        _set_progress(min([started_at if is_done else min(started_at, rows[-1].at), *stalled]))
        if is_done:
            break
    return heads


def seal_all_events(actor: Actor, organization_id: str) -> None:
    """Seal all events of one organization, however old, such as imported ones.

    The regular sealing never looks that far back. Raises Conflict if the chain has links that its end does not know of.
    """
    actor.require("instance:write")
    attempts = 0
    while rows := _find_unsealed_of(organization_id):
        if _try_append({organization_id: chain_key(organization_id)}, {organization_id: rows}):
            attempts = 0
            continue
        # Another sealer may have been faster.
        attempts += 1
        if attempts == MAX_ATTEMPTS:
            raise Conflict(
                f"The audit log of {organization_id} cannot be sealed: its chain is damaged. Verify it with"
                " 'flask audit verify'."
            )


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
    chain = _lock_chains([organization_id]).get(organization_id)
    links = _find_oldest(organization_id, before, limit)
    if chain is None or not links:
        return 0
    last = links[-1]
    ids = [link.id for link in links]
    _replace_chains(
        {organization_id: key}, {organization_id: chain | {"removed": last.position, "anchor": last.mac}}
    )
    for model in (AuditLink, AuditEvent):
        table = model.__table__
        db.session.execute(
            delete(model).where(table.c.organization_id == organization_id, table.c.id.in_(ids)),
            execution_options={"synchronize_session": False},
        )
    return len(links)


def _group_by_organization(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Group the rows, the organizations in the order in which every transaction locks their chains."""
    groups: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        groups[row.organization_id].append(row)
    return dict(sorted(groups.items()))


def _find_keys(organization_ids: Collection[str]) -> tuple[dict[str, bytes], set[str]]:
    """Return the keys of the chains, and the organizations whose data key cannot be unwrapped.

    Organizations whose data key was destroyed are in neither.
    """
    keyring.cache_data_keys(organization_ids)
    keys: dict[str, bytes] = {}
    unreadable: set[str] = set()
    for organization_id in organization_ids:
        try:
            keys[organization_id] = chain_key(organization_id)
        except NotFound:
            continue
        except UnsealError:
            unreadable.add(organization_id)
            _log.error("the data key of %s cannot be unwrapped, its events are not sealed", organization_id)
    return keys, unreadable


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
def count_unsealed() -> int:
    """Return how many events wait to be sealed, up to ``BATCH``."""
    return len(
        _find_unsealed(None if (through := sealed_through()) is None else through - MAX_COMMIT_DELAY, ())
    )


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


def _try_append(
    keys: Mapping[str, bytes], rows: Mapping[str, Sequence[Any]], holder: str | None = None
) -> dict[str, ChainHead]:
    """Append each organization's rows to its chain, and return the new heads of the chains that accepted them.

    Raises _LeaseLost if ``holder`` is no longer the sealer.
    """
    try:
        return _append(keys, rows, holder)
    except IntegrityError:
        if len(rows) > 1:
            # One chain has links that its end does not know of, so no other chain may wait for it.
            return {
                name: head
                for organization_id, own in rows.items()
                for name, head in _try_append(keys, {organization_id: own}, holder).items()
            }
        _log.warning("the chain of %s was changed concurrently, its events are sealed in the next run", *rows)
        return {}


@transaction
def _append(
    keys: Mapping[str, bytes], rows: Mapping[str, Sequence[Any]], holder: str | None
) -> dict[str, ChainHead]:
    """Append with the same number of statements for any number of organizations.

    The lease is renewed in this transaction and the chains are locked, so that a sealer that stalled adds nothing after
    another has taken over. Even without locks no chain forks: a position of a chain is unique.
    """
    if holder is not None and not leases.renew(LEASE, holder, LEASE_SECONDS):
        raise _LeaseLost
    chains = _lock_chains(rows)
    links: list[dict[str, Any]] = []
    for organization_id, own in rows.items():
        key, chain = keys[organization_id], chains.get(organization_id, _EMPTY)
        position, mac = chain["length"], chain["head"]
        for row in own:
            position += 1
            mac = link_mac(key, mac, position, serialize_row(row))
            links.append({"organization_id": organization_id, "id": row.id, "position": position, "mac": mac})
        chains[organization_id] = {**chain, "length": position, "head": mac}
    if links:
        db.session.execute(insert(AuditLink), links)
        _replace_chains(keys, chains)
    return {name: ChainHead(name, chain["length"], chain["head"]) for name, chain in chains.items()}


def _lock_chains(organization_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return both ends of the chains that exist. No other transaction can change them until this one ends."""
    columns = [AuditChain.__table__.c[name] for name in ("organization_id", *_EMPTY)]
    found = (
        select(*columns)
        .where(columns[0].in_(organization_ids))
        .order_by(columns[0])
        .with_for_update()
        .execution_options(**ACROSS)
    )
    rows = db.session.execute(found).mappings()
    return {row["organization_id"]: {name: row[name] for name in _EMPTY} for row in rows}


def _replace_chains(keys: Mapping[str, bytes], chains: Mapping[str, Mapping[str, Any]]) -> None:
    """Write both ends of chains that are locked or new.

    The rows are deleted and inserted because no UPDATE that every engine knows takes different values for many rows.
    """
    db.session.execute(
        delete(AuditChain).where(AuditChain.organization_id.in_(list(chains))),
        execution_options={"synchronize_session": False, **ACROSS},
    )
    now = clock.now()
    db.session.execute(
        insert(AuditChain),
        [
            {"organization_id": name, **chain, "mac": head_mac(keys[name], **chain), "grown_at": now}
            for name, chain in chains.items()
        ],
    )


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
    values = {"value": {"through": through.isoformat()}, "updated_at": clock.now()}
    insert_or_update(InstanceFact, {"name": _PROGRESS}, values)


@read
def find_chain(organization_id: str) -> Any:
    """Return the row of the organization's chain, or None before the first sealing."""
    return db.session.execute(
        select(AuditChain.__table__).where(AuditChain.organization_id == organization_id)
    ).first()
