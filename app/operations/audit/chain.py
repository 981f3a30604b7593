"""The hash chain of the audit log: elected workers seal events a few seconds after their commit (AU-3).

Each shard of organizations has one sealer at a time, so that several nodes share the work.

Sealing in the request would make one row per organization a bottleneck. Removing, changing, adding or moving events in
the database afterwards breaks the chain. A change within the seconds before the sealing is not detected.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from sqlalchemy import ColumnElement, Select, delete, exists, insert, not_, select
from sqlalchemy.exc import IntegrityError

from app.config import command_line
from app.database import ACROSS
from app.extensions import db
from app.models.audit import AuditChain, AuditEvent, AuditLink, InstanceFact
from app.models.organization import DELETED, PURGED, Organization
from app.operations.store import clock, keyring, leases
from app.operations.store.leases import LeaseLost, Shard
from app.operations.store.transactions import MAX_ATTEMPTS, insert_or_update, read, transaction
from app.rules.actor import Actor
from app.rules.audit.events import GENESIS, head_mac, link_mac, serialize_event
from app.rules.errors import Conflict, NotFound, Unavailable
from app.rules.identifiers import first_id_at
from app.rules.sealing import UnsealError

LEASE = "audit-sealer"
LEASE_SECONDS = 30
BATCH = 1000
# How long after its own time an event may be committed: longer than any transaction takes.
MAX_COMMIT_DELAY = timedelta(minutes=2)
_PROGRESS = "audit sealer"
# How old the progress may become while nothing happens.
_MAX_PROGRESS_AGE = timedelta(minutes=1)
# For how long nobody may have sealed before it is noticed that the database's clock was set back.
_MAX_PAUSE = timedelta(days=1)
_COLUMNS = [column.name for column in AuditEvent.__table__.columns]
# Both ends of a chain without links.
_EMPTY: Mapping[str, Any] = MappingProxyType({"length": 0, "head": GENESIS, "removed": 0, "anchor": GENESIS})
_log = logging.getLogger("gatehouse.audit")


class _Run(Struct):
    """One run of the sealer: what it looks at, what it has done, and what it leaves to others or to a later run."""

    since: datetime | None = None
    heads: dict[str, ChainHead] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    left: set[Shard] = field(default_factory=set)
    stalled: list[datetime] = field(default_factory=list)


class ChainHead(Struct, frozen=True):
    """The end of an organization's chain, as a checkpoint in the log has it."""

    organization_id: str
    length: int
    mac: bytes


def seal_pending_events(actor: Actor, *, holder: str) -> dict[str, ChainHead] | None:
    """Add every committed event to its organization's chain, and return the chains that grew.

    Returns None if there are events and other workers are the sealers of all their shards. ``holder`` names this worker
    in the leases.
    """
    actor.require("instance:write")
    run = _Run()
    while True:
        started_at, through = clock.measured_now(), sealed_through()
        run.since = _find_start(started_at, through)
        waiting = _find_unsealed(run)
        firsts: dict[Shard, datetime] = {}
        for row in waiting:
            firsts.setdefault(Shard.of(row.organization_id), row.at)
        for shard in leases.shuffled(firsts):
            with leases.held(f"{LEASE}-{shard.number}", holder, LEASE_SECONDS) as renew:
                if renew is None or not _seal_shard(run, shard, renew):
                    run.left.add(shard)
                    run.stalled.append(firsts[shard])
        is_done = len(waiting) < BATCH
        # Nothing is skipped: the next run begins where a chain could not be extended.
        reached = min([started_at if is_done else min(started_at, waiting[-1].at), *run.stalled])
        if waiting or through is None or abs(started_at - through) > _MAX_PROGRESS_AGE:
            _set_progress(reached)
        if is_done:
            return None if run.left and not run.heads else run.heads


def _find_start(now: datetime, through: datetime | None) -> datetime | None:
    """Return since when there may be events without a link, or None to search all events.

    If the database's clock was set back, new events have times that were sealed before.
    """
    if through is None:
        return None
    if through > now + clock.MAX_ERROR:
        return now - _MAX_PAUSE
    return min(now, through) - MAX_COMMIT_DELAY


def _seal_shard(run: _Run, shard: Shard, renew: Callable[[], None]) -> bool:
    """Seal the shard's events; return False if another sealer has taken over."""
    while True:
        rows = _find_unsealed(run, shard)
        waiting = _group_by_organization(rows)
        keys, unreadable = _find_keys(waiting)
        try:
            grown = _try_append(keys, {name: waiting[name] for name in keys}, renew) if keys else {}
        except LeaseLost:
            return False
        run.heads |= grown
        # Those without a key were purged in the meantime, or an import empties their tombstone.
        run.skipped |= waiting.keys() - grown.keys()
        run.stalled += [
            min(row.at for row in waiting[organization_id])
            for organization_id in (keys.keys() | unreadable) - grown.keys()
        ]
        if len(rows) < BATCH:
            return True


def seal_all_events(actor: Actor, organization_id: str, renew: Callable[[], None] = lambda: None) -> None:
    """Seal all events of one organization, however old, such as imported ones.

    The regular sealing never looks that far back. ``renew`` is called in the transaction of each batch. Raises Conflict
    if the chain has links that its end does not know of, and LeaseLost if ``renew`` does.
    """
    actor.require("instance:write")
    attempts, oldest = 0, ""
    while rows := _find_unsealed_of(organization_id):
        # The chain grows as long as another event is the oldest one, even if other sealers are faster each time.
        attempts = attempts + 1 if rows[0].id == oldest else 0
        oldest = rows[0].id
        if attempts == MAX_ATTEMPTS:
            raise Conflict(
                f"The audit log of {organization_id} cannot be sealed: its chain is damaged. Verify it with: "
                f"{command_line('audit verify')}"
            )
        _try_append({organization_id: chain_key(organization_id)}, {organization_id: rows}, renew)


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
    """Return whether the oldest event of the chain may be older than ``before``."""
    bound = first_id_at(before)
    oldest = _find_oldest(organization_id, 1)
    return any(row.id < bound or (row.at is not None and row.at < before) for row in oldest)


@transaction
def remove_events_before(organization_id: str, before: datetime, limit: int) -> int:
    """Delete up to ``limit`` of the oldest events of the chain with their links, and return how many.

    The chain then begins after them. Events that were never sealed are kept as evidence. Runs in the janitor's
    transaction.
    """
    key = chain_key(organization_id)
    chain = _lock_chains([organization_id]).get(organization_id)
    if chain is None:
        return 0
    links = _select_expired(key, chain, _find_oldest(organization_id, limit), before)
    if not links:
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


def select_unsealed(*columns: Any) -> Select[Any]:
    """Select columns of the events without a link."""
    event, link = AuditEvent.__table__.c, AuditLink.__table__.c
    own = (link.organization_id == event.organization_id) & (link.id == event.id)
    events = AuditEvent.__table__.outerjoin(AuditLink.__table__, own)
    return select(*columns).select_from(events).where(link.id.is_(None))


@read
def _find_unsealed(run: _Run, shard: Shard | None = None) -> list[Any]:
    """Return the oldest events without a link: all columns of those of the shard, or who has some in which shard."""
    event = AuditEvent.__table__.c
    found = (
        select_unsealed(*((event.organization_id, event.at) if shard is None else event))
        .where(event.organization_id.not_in(run.skipped), not_(_is_of_purged_organization(event)))
        # This is the order of the index, because an index in MariaDB ends with the primary key.
        .order_by(event.at, event.organization_id, event.id)
        .limit(BATCH)
        .execution_options(**ACROSS)
    )
    if run.since is not None:
        found = found.where(event.at >= run.since)
    found = found.where(*(not_(each.holds(event.organization_id)) for each in run.left))
    if shard is not None:
        found = found.where(shard.holds(event.organization_id))
    return list(db.session.execute(found).all())


def _is_of_purged_organization(event: Any) -> ColumnElement[bool]:
    # A tombstone with events is being moved here, and its events are sealed where it is served. This process may still
    # have the key of an earlier stay. While the events of an organization are purged, links would be left.
    is_being_purged = (Organization.status == DELETED) & (Organization.purge_at <= clock.now())
    return exists().where(
        Organization.id == event.organization_id, (Organization.status == PURGED) | is_being_purged
    )


@read
def count_unsealed() -> int:
    """Return how many events wait to be sealed, up to ``BATCH``."""
    through = sealed_through()
    return len(_find_unsealed(_Run(None if through is None else through - MAX_COMMIT_DELAY)))


@read
def _find_unsealed_of(organization_id: str) -> list[Any]:
    event = AuditEvent.__table__.c
    own = select_unsealed(*event).where(event.organization_id == organization_id)
    return list(db.session.execute(own.order_by(event.at, event.id).limit(BATCH)).all())


def _try_append(
    keys: Mapping[str, bytes],
    rows: Mapping[str, Sequence[Any]],
    renew: Callable[[], None] = lambda: None,
) -> dict[str, ChainHead]:
    """Append each organization's rows to its chain, and return the new heads of the chains that accepted them.

    One that fails is logged. Raises LeaseLost if ``renew`` does, because another worker is the sealer now, and
    Unavailable.
    """
    try:
        return _append(keys, rows, renew)
    except (LeaseLost, Unavailable):
        raise
    except Exception as error:  # noqa: BLE001 - no other chain may wait for one that is damaged
        if len(rows) > 1:
            return {
                name: head
                for organization_id, own in rows.items()
                for name, head in _try_append(keys, {organization_id: own}, renew).items()
            }
        if isinstance(error, IntegrityError):
            # It has links that its end does not know of.
            _log.warning(
                "the chain of %s was changed concurrently, its events are sealed in the next run", *rows
            )
        else:
            _log.exception("the events of %s could not be sealed", *rows)
        return {}


@transaction
def _append(
    keys: Mapping[str, bytes], rows: Mapping[str, Sequence[Any]], renew: Callable[[], None]
) -> dict[str, ChainHead]:
    """Append with the same number of statements for any number of organizations.

    The lease is renewed in this transaction and the chains are locked, so that a sealer that stalled adds nothing after
    another has taken over. Even without locks no chain forks: a position of a chain is unique.
    """
    renew()
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
def _find_oldest(organization_id: str, limit: int) -> Sequence[Any]:
    return db.session.execute(
        select_linked_events(organization_id).order_by(AuditLink.position).limit(limit)
    ).all()


def select_linked_events(organization_id: str) -> Select[Any]:
    """Select the links of the chain, each with the columns of its event, which are None if it is missing."""
    event, link = AuditEvent.__table__.c, AuditLink.__table__.c
    own = (event.organization_id == link.organization_id) & (event.id == link.id)
    columns = [column for column in event if column.name not in link]
    linked = AuditLink.__table__.outerjoin(AuditEvent.__table__, own)
    return select(*link, *columns).select_from(linked).where(link.organization_id == organization_id)


def _select_expired(
    key: bytes, chain: Mapping[str, Any], rows: Sequence[Any], before: datetime
) -> Sequence[Any]:
    """Return those of the chain's first links whose events are older than ``before``.

    The database's clock decides (CK-1), because ids have the time of a machine. The id decides about an event that was
    changed or deleted in the database, whose time proves nothing.
    """
    bound, mac = first_id_at(before), chain["anchor"]
    for number, row in enumerate(rows):
        is_intact = row.at is not None and link_mac(key, mac, row.position, serialize_row(row)) == row.mac
        # The chain must stay contiguous, so events behind one that is still retained wait for it.
        if not (row.at < before if is_intact else row.id < bound):
            return rows[:number]
        mac = row.mac
    return rows


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
