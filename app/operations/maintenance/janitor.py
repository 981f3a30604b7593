"""Janitor: elected workers delete expired rows in batches.

One of all hosts works at a time. It deletes the oldest rows first, at most ``BATCH`` in a transaction, and rests after
each for a multiple of the time that it took, so that requests hardly notice it. If a janitor is killed, it leaves only
complete batches, and another one takes over when its lease expires.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from sqlalchemy import (
    ColumnElement,
    Table,
    exists,
    func,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from app.database import ACROSS
from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import (
    CacheInvalidation,
    FailedRequest,
    OutboxMessage,
    RevocationReceipt,
    WebhookDelivery,
)
from app.models.base import Base, is_same
from app.models.client import Client, Credential, CredentialUse
from app.models.organization import DELETED, PURGED, Organization
from app.operations.audit import chain
from app.operations.audit.webhook_publishing import MIN_RETENTION
from app.operations.clients import rotations
from app.operations.clients.dynamic_registration import (
    delete_client_if_idle,
    find_clients_to_check,
    postpone_idle_check,
)
from app.operations.clients.scopes import find_without_identity_scopes, seed_identity_scopes
from app.operations.directory.lookups import current_limits, get_root_organization, is_served_here
from app.operations.maintenance.batches import delete_by_key, delete_first
from app.operations.maintenance.purge_rules import (
    CLIENT_ROWS,
    DELETED_CLIENTS,
    PURGE_RULES,
    PurgeRule,
    organization_tables,
)
from app.operations.store import audit, clock, leases
from app.operations.store.containment import contained
from app.operations.store.keyring import clear_cached_keys
from app.operations.store.leases import LeaseLost
from app.operations.store.rows import iterate_rows
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.tokens import cutoffs
from app.operations.users.deletion import finish_deletions
from app.rules.actor import Actor
from app.rules.identifiers import first_id_at
from app.rules.organizations.instance_limits import Bounds
from app.rules.organizations.settings import effective_settings

# About ten milliseconds of work, of which the COMMIT is a small part.
BATCH = 250
# How long it rests after a batch, as a multiple of the batch's time. One that has worked for longer than
# PATIENCE_SECONDS has a backlog, and rests only once.
RESTS = 3
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.01
_MAX_PAUSE_SECONDS = 1.0
MAX_ORGANIZATION_PASSES = 3
LEASE = "janitor"
LEASE_SECONDS = 60
AUDIT_LEASE = "janitor-audit"
AUDIT_LEASE_SECONDS = 86_400
# Columns of a tombstone that say who the organization and its administrators were, and what opens its secrets (SE-8).
_ERASED: Mapping[str, str | None] = {
    "name": "",
    "created_by": None,
    "settings_updated_by": None,
    "data_key": None,
}

Renew = Callable[[], None]


class _NotDue(Exception):
    """The organization is not to be purged any more."""


def purge_expired(
    actor: Actor,
    *,
    holder: str | None = None,
    batch: int = BATCH,
    pause: float = PAUSE_SECONDS,
    should_stop: Callable[[], bool] = lambda: False,
) -> Counter[str] | None:
    """Delete expired rows and return how many by table, or None if another janitor is doing it.

    ``holder`` names this janitor in the lease. ``should_stop`` is called between batches, before a rest of at least
    ``pause`` seconds; 0 means no rest. Audit: ``organization.purged`` for each organization that was deleted thirty
    days ago.
    """
    actor.require("instance:write")
    deleted: Counter[str] = Counter()
    with leases.held(LEASE, holder or secrets.token_hex(8), LEASE_SECONDS) as renew:
        if renew is None:
            return None
        began = started = time.monotonic()
        with contextlib.suppress(LeaseLost):
            for table, count in _work(actor, renew, batch):
                deleted[table] += count
                if should_stop():
                    break
                if pause:
                    now = time.monotonic()
                    rests = RESTS if now - started < PATIENCE_SECONDS else 1
                    time.sleep(max(pause, min(rests * (now - began), _MAX_PAUSE_SECONDS)))
                began = time.monotonic()
    return deleted


@read
def lags() -> dict[str, timedelta]:
    """Return by table for how long its oldest row has been due for deletion."""
    now = clock.now()
    # Whether the others may be deleted depends on further rows.
    rules = [rule for rule in PURGE_RULES if rule.unless is None]
    oldest = [db.session.scalar(select(func.min(rule.ends)).execution_options(**ACROSS)) for rule in rules]
    return {
        rule.table.name: max(timedelta(), now - rule.retention - ends) if ends else timedelta()
        for rule, ends in zip(rules, oldest, strict=True)
    }


def _work(actor: Actor, renew: Renew, batch: int) -> Iterator[tuple[str, int]]:
    """Delete everything that is due, and yield after each batch. What takes long comes last."""
    due = list(_find_due_rules())
    while due:
        rule, count = due[0], 0
        with contained("the deletion of expired rows", rule.table.name):
            count = _purge_batch(rule, renew, batch)
        if count:
            yield rule.table.name, count
        if count >= batch:
            break
        del due[0]
    if (pruned := _prune_cache_invalidations(renew)) > 0:
        yield CacheInvalidation.__tablename__, pruned
    # Sessions that were revoked with a whole organization: clients are notified.
    yield from _renewing(cutoffs.delete_cut_off_sessions(), "sessions", renew)
    # Administrators are reminded of secrets that expire soon while they are in use.
    yield from _renewing(rotations.send_expiry_reminders(actor), "reminders", renew)
    yield from _delete_idle_clients(renew, batch)
    for organization_id, client_id in _find_deleted_clients(batch):
        with contained("the deletion of a client", organization_id):
            yield from _delete_client_rows(organization_id, client_id, renew, batch)
    for organization_id in _find_organizations_to_purge(batch):
        with contained("the purge", organization_id):
            yield from _delete_organization_rows(actor, organization_id, renew, batch)
    for organization_id in _find_leftovers(batch):
        with contained("the deletion of the rows", organization_id):
            yield from _delete_leftovers(organization_id, renew, batch)
    # Retention is a setting of each organization, so check each of them once a day. The lease is not released. It lasts
    # for the day once all were checked: a later run goes on where this one has to stop.
    checker = secrets.token_hex(8)
    if leases.acquire(AUDIT_LEASE, checker, LEASE_SECONDS, longest=AUDIT_LEASE_SECONDS):
        bounds = current_limits()
        for organization_id, settings in _iterate_settings():
            with contained("the deletion of old audit events", organization_id):
                yield from _delete_old_records(organization_id, settings, bounds, renew, batch)
        _complete_upgrade(batch)
        leases.renew(AUDIT_LEASE, checker, AUDIT_LEASE_SECONDS)
    for rule in due:
        with contained("the deletion of expired rows", rule.table.name):
            yield from _repeat(partial(_purge_batch, rule, renew, batch), rule.table.name, batch)


def _repeat(step: Callable[[], int], name: str, batch: int) -> Iterator[tuple[str, int]]:
    while True:
        count = step()
        if count:
            yield name, count
        if count < batch:
            return


def _delete_all(
    table: Table,
    condition: ColumnElement[bool],
    renew: Renew,
    batch: int,
    is_due: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[str, int]]:
    """Delete the rows in batches. Raises _NotDue once ``is_due``, asked in the transaction of each, is false."""
    return _repeat(partial(_delete_batch, table, condition, renew, batch, is_due), table.name, batch)


def _delete_idle_clients(renew: Renew, batch: int) -> Iterator[tuple[str, int]]:
    """Delete unused dynamically registered clients. Their rows are deleted with conditions of other deleted clients."""
    while True:
        due, ended = find_clients_to_check(batch), 0
        for organization_id, client_id in due:
            renew()
            is_checked = False
            with contained("the check of an idle client", organization_id):
                ended += delete_client_if_idle(Actor.system(organization_id, "idle clients"), client_id)
                is_checked = True
            if not is_checked:
                postpone_idle_check(organization_id, client_id)
        if ended:
            yield "idle clients", ended
        if len(due) < batch:
            return


def _renewing(counts: Iterable[int], name: str, renew: Renew) -> Iterator[tuple[str, int]]:
    """Yield the counts of batches that another module works off, and renew the lease after each."""
    for count in counts:
        renew()
        if count:
            yield name, count


def _delete_client_rows(
    organization_id: str, client_id: UUID, renew: Renew, batch: int
) -> Iterator[tuple[str, int]]:
    of_client = select(Credential.id).where(
        Credential.organization_id == organization_id, Credential.client_id == client_id
    )
    conditions: tuple[tuple[type[Base], ColumnElement[bool]], ...] = (
        *((model, getattr(model, column) == client_id) for model, column in CLIENT_ROWS),
        (CredentialUse, CredentialUse.credential_id.in_(of_client)),
        (Credential, Credential.client_id == client_id),
        (Client, Client.id == client_id),
    )
    for model, condition in conditions:
        table = Base.metadata.tables[model.__tablename__]
        own = (table.c.organization_id == organization_id) & condition
        yield from _delete_all(table, own, renew, batch)


def _delete_organization_rows(
    actor: Actor, organization_id: str, renew: Renew, batch: int
) -> Iterator[tuple[str, int]]:
    for turn in range(MAX_ORGANIZATION_PASSES):
        try:
            yield from _empty(organization_id, _continue_purge, renew, batch)
            break
        except _NotDue:
            return
        except IntegrityError:
            # A request that was rejected just now may be stored after its table was emptied.
            if turn == MAX_ORGANIZATION_PASSES - 1:
                raise
    _write_tombstone(actor, organization_id)
    clear_cached_keys(organization_id)


def _delete_leftovers(organization_id: str, renew: Renew, batch: int) -> Iterator[tuple[str, int]]:
    """Delete the rows that an interrupted import or move left in a tombstone."""
    try:
        yield from _empty(organization_id, _hold_leftovers, renew, batch)
    except _NotDue:
        return
    _hold_leftovers(organization_id, purge_at=None, **_ERASED)


def _empty(
    organization_id: str, is_due: Callable[[str], bool], renew: Renew, batch: int
) -> Iterator[tuple[str, int]]:
    """Delete all rows of the organization. Raises _NotDue once ``is_due``, asked in each transaction, is false."""
    for table in organization_tables():
        own = table.c.organization_id == organization_id
        yield from _delete_all(table, own, renew, batch, partial(is_due, organization_id))


def _delete_old_records(
    organization_id: str, settings: Mapping[str, Any], bounds: Bounds, renew: Renew, batch: int
) -> Iterator[tuple[str, int]]:
    """Delete the audit events and logs that the organization keeps no longer.

    A retention period may have been shortened, and rows of logs expire by the one that they were written with.
    """
    now, own = clock.now(), effective_settings(settings, bounds)["audit"]
    before = now - timedelta(days=own["retention_days"])
    if chain.has_events_before(organization_id, before):
        step = partial(_delete_audit_batch, organization_id, before, renew, batch)
        yield from _repeat(step, "audit_events", batch)
    logs_before = now - timedelta(days=own["log_retention_days"])
    old: tuple[tuple[type[Base], ColumnElement[bool]], ...] = (
        (FailedRequest, FailedRequest.at < logs_before),
        (WebhookDelivery, _is_sent_before(min(logs_before, now - MIN_RETENTION))),
        (
            RevocationReceipt,
            (RevocationReceipt.id < first_id_at(before)) & (RevocationReceipt.created_at < before),
        ),
    )
    for model, condition in old:
        table = Base.metadata.tables[model.__tablename__]
        yield from _delete_all(table, (table.c.organization_id == organization_id) & condition, renew, batch)
    yield from _repeat(partial(_finish_deletions, organization_id, renew, batch), "users", batch)


def _is_sent_before(before: datetime) -> ColumnElement[bool]:
    """Return whether a delivery was created and last attempted before, and waits for no attempt.

    The id has the time of a machine, whose clock may be wrong: it only keeps the search short.
    """
    delivery = WebhookDelivery
    is_waiting = exists().where(
        is_same(OutboxMessage.id, delivery.message_id), OutboxMessage.done_at.is_(None)
    )
    is_old = (delivery.created_at < before) & or_(
        delivery.attempted_at.is_(None), delivery.attempted_at < before
    )
    return (delivery.id < first_id_at(before)) & is_old & ~is_waiting


def _is_due(rule: PurgeRule) -> ColumnElement[bool]:
    due = rule.ends < clock.now() - rule.retention
    return due if rule.unless is None else due & not_(rule.unless())


@read
def _find_due_rules() -> Sequence[PurgeRule]:
    """Return the rules that have rows to delete, found by one statement.

    Rows that other rows still need may not need them any more when those have been deleted.
    """
    columns = [
        exists().where(_is_due(replace(rule, unless=None))).label(f"rule_{number}")
        for number, rule in enumerate(PURGE_RULES)
    ]
    row = db.session.execute(select(*columns).execution_options(**ACROSS)).one()
    return [rule for rule, is_due in zip(PURGE_RULES, row, strict=True) if is_due]


@transaction
def _purge_batch(rule: PurgeRule, renew: Renew, batch: int) -> int:
    renew()
    if rule.before is None:
        return delete_first(rule.table, _is_due(rule), rule.ends, batch)
    return delete_by_key(rule.table, _is_due(rule), batch, rule.before)


@transaction
def _prune_cache_invalidations(renew: Renew) -> int:
    renew()
    return cache_invalidation.prune()


@transaction
def _delete_batch(
    table: Table,
    condition: ColumnElement[bool],
    renew: Renew,
    batch: int,
    is_due: Callable[[], bool],
) -> int:
    if not is_due():
        raise _NotDue
    renew()
    return delete_by_key(table, condition, batch)


@transaction
def _hold_leftovers(organization_id: str, **values: Any) -> bool:
    """Return whether the tombstone may be emptied; an import or move that begins waits until this commits."""
    holding = update(Organization).where(Organization.id == organization_id, _has_leftovers())
    return count_changed(holding.values(version=Organization.version + 1, **values)) == 1


def _has_leftovers() -> ColumnElement[bool]:
    # A move that has prepared the tombstone may have been decided, so its rows are the organization.
    due = (Organization.purge_at <= clock.now()) & (Organization.status == PURGED)
    return due & Organization.moving_until.is_(None)


@read
def _find_named_tombstones(batch: int) -> list[str]:
    """Return the purged organizations with a name, which a host with an earlier release leaves during an upgrade."""
    return list(db.session.scalars(select(Organization.id).where(_is_named_tombstone()).limit(batch)))


def _complete_upgrade(batch: int) -> None:
    """Complete what hosts with release 0.1 created or purged during an upgrade."""
    for organization_id in _find_named_tombstones(batch):
        _mark_leftovers(organization_id)
    for organization_id in find_without_identity_scopes(batch):
        with contained("the scopes of an organization", organization_id):
            seed_identity_scopes(organization_id)


@transaction
def _mark_leftovers(organization_id: str) -> None:
    """Let the next run erase the name, and the rows of tables that the release before does not know."""
    named = update(Organization).where(Organization.id == organization_id, _is_named_tombstone())
    count_changed(named.values(purge_at=clock.now()))


def _is_named_tombstone() -> ColumnElement[bool]:
    # One that is about to be filled has a time of its purge, or was not deleted.
    empty = Organization.purge_at.is_(None) & Organization.deleted_at.is_not(None)
    return (Organization.status == PURGED) & (Organization.name != "") & empty


def _continue_purge(organization_id: str) -> bool:
    """Return whether the organization is still to be purged. If so, it can't be restored from now on.

    This writes the organization's row at each call, so that a transaction that restores it or moves it back waits or
    fails. Call it before the transaction writes anything else.
    """
    purging = (
        update(Organization)
        .where(Organization.id == organization_id, _is_organization_due())
        # Far in the past, so that a process whose clock is a little behind refuses to restore it too.
        .values(version=Organization.version + 1, purge_at=Organization.deleted_at)
    )
    return count_changed(purging) == 1


@transaction
def _finish_deletions(organization_id: str, renew: Renew, batch: int) -> int:
    renew()
    return finish_deletions(organization_id, batch)


@transaction
def _delete_audit_batch(organization_id: str, before: datetime, renew: Renew, batch: int) -> int:
    renew()
    return chain.remove_events_before(organization_id, before, batch)


@read
def _find_deleted_clients(batch: int) -> list[tuple[str, UUID]]:
    due = DELETED_CLIENTS.ends < clock.now() - DELETED_CLIENTS.retention
    here = is_served_here(Client.organization_id)
    found = select(Client.organization_id, Client.id).where(due, here).limit(batch)
    rows = db.session.execute(found.execution_options(**ACROSS))
    return [(organization_id, client_id) for organization_id, client_id in rows]


@read
def _find_organizations_to_purge(batch: int) -> list[str]:
    return list(db.session.scalars(select(Organization.id).where(_is_organization_due()).limit(batch)))


@read
def _find_leftovers(batch: int) -> list[str]:
    return list(db.session.scalars(select(Organization.id).where(_has_leftovers()).limit(batch)))


def _is_organization_due() -> ColumnElement[bool]:
    return (Organization.purge_at <= clock.now()) & (Organization.status == DELETED)


@transaction
def _write_tombstone(actor: Actor, organization_id: str) -> None:
    """Keep only a tombstone with the organization's ids and times, and destroy its data key (SE-8, TN-8)."""
    if not _continue_purge(organization_id):
        return
    organization = db.session.get_one(Organization, organization_id)
    # Its own audit log is deleted with it, so record the event in root's.
    root = replace(actor, organization_id=get_root_organization().id)
    audit.record(root, "organization.purged", "organization", organization.slug)
    db.session.execute(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == DELETED)
        .values(status=PURGED, settings={}, purge_at=None, updated_at=clock.now(), **_ERASED)
    )


def _iterate_settings() -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over (organization, settings) of the organizations that are here."""
    # Rows that a move brings belong to a tombstone.
    is_here = Organization.moved_to.is_(None) & (Organization.status != PURGED)
    return iterate_rows(select(Organization.id, Organization.settings).where(is_here), Organization.id)
