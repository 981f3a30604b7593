"""Janitor: expired rows go, in small batches, by one elected worker; nothing that is still needed ever does.

Keys are selected through the index of the expiry column and deleted by primary key, at most ``BATCH`` in one
transaction, with a pause between: a token request waits behind no range lock and no long transaction. A janitor
that is killed leaves whole batches behind and its lease to the next.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Table, delete, not_, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.base import Base
from app.models.client import Client
from app.models.credential import Credential, CredentialUse
from app.models.failed_request import FailedRequest
from app.models.organization import DELETED, PURGED, Organization
from app.operations import audit, clock
from app.operations.directory import root_organization
from app.operations.evidence import sealing
from app.operations.keyring import forget
from app.operations.revocations import settling
from app.operations.rotations import reminders
from app.operations.self_registration.idle import clients_to_look_at, end_if_idle
from app.operations.tenancy.bounds import standing_bounds
from app.operations.transaction import read, transaction
from app.operations.upkeep import leases
from app.operations.upkeep.sweeps import (
    CLIENT_ROWS,
    DELETED_CLIENTS,
    SWEEPS,
    Sweep,
    tables_of_an_organization,
)
from app.rules.actor import Actor
from app.rules.identifiers import first_id_at
from app.rules.tenancy.settings import effective
from app.tenant_fence import ACROSS

BATCH = 500
PAUSE_SECONDS = 0.05
MOST_TURNS = 3
LEASE = "janitor"
LEASE_SECONDS = 60
AUDIT_LEASE = "janitor-audit"
AUDIT_LEASE_SECONDS = 86_400

Key = tuple[Any, ...]


class _LeaseLost(Exception):
    """Another janitor has taken over."""


def purge(
    actor: Actor,
    *,
    holder: str | None = None,
    batch: int = BATCH,
    pause: float = PAUSE_SECONDS,
    stopped: Callable[[], bool] = lambda: False,
) -> Counter[str] | None:
    """Rows whose time is over are gone; returns how many by table, or None when another janitor is at work.

    ``holder`` names this janitor in the lease; ``stopped`` is asked between batches. Audit:
    ``organization.purged`` for each organization whose thirty days are over.
    """
    actor.require("instance:write")
    me = holder or secrets.token_hex(8)
    if not leases.take(LEASE, me, LEASE_SECONDS):
        return None
    gone: Counter[str] = Counter()
    try:
        for table, count in _work(actor, me, batch):
            gone[table] += count
            if stopped():
                break
            time.sleep(pause)
    except _LeaseLost:
        return gone
    finally:
        leases.give_back(LEASE, me)
    return gone


def _work(actor: Actor, me: str, batch: int) -> Iterator[tuple[str, int]]:
    for sweep in SWEEPS:
        yield from _until_done(partial(_sweep_batch, sweep, me, batch), sweep.table.name, batch)
    yield from _ended_sessions(me)
    yield from _reminders(actor, me)
    yield from _idle_clients(me, batch)
    for organization_id, client_id in _deleted_clients(batch):
        yield from _client_rows(organization_id, client_id, me, batch)
    for organization_id in _ended_organizations(batch):
        yield from _organization_rows(actor, organization_id, me, batch)
    # Retention is each organization's own, so this alone asks every one of them: once a day, by a lease that is kept.
    if leases.take(AUDIT_LEASE, secrets.token_hex(8), AUDIT_LEASE_SECONDS):
        for organization_id, before, logs_before in _horizons():
            if sealing.has_ended(organization_id, before):
                yield from _until_done(
                    partial(_audit_batch, organization_id, before, me, batch), "audit_events", batch
                )
            yield from _old_logs(organization_id, logs_before, me, batch)


def _until_done(step: Callable[[], int], name: str, batch: int) -> Iterator[tuple[str, int]]:
    while True:
        count = step()
        if count:
            yield name, count
        if count < batch:
            return


def _idle_clients(me: str, batch: int) -> Iterator[tuple[str, int]]:
    """Clients that registered themselves and that nobody uses end; their rows go with those of other ended ones."""
    while True:
        due, ended = clients_to_look_at(batch), 0
        for organization_id, client_id in due:
            if not leases.keep(LEASE, me, LEASE_SECONDS):
                raise _LeaseLost
            ended += end_if_idle(Actor.system(organization_id, "idle clients"), client_id)
        if ended:
            yield "idle clients", ended
        if len(due) < batch:
            return


def _reminders(actor: Actor, me: str) -> Iterator[tuple[str, int]]:
    """Administrators hear of secrets that end soon while they are in use."""
    for count in reminders.remind(actor):
        if not leases.keep(LEASE, me, LEASE_SECONDS):
            raise _LeaseLost
        if count:
            yield "reminders", count


def _ended_sessions(me: str) -> Iterator[tuple[str, int]]:
    """Sign-ins that ended with a whole organization's are cleared, and clients hear of it."""
    for count in settling.settle():
        if not leases.keep(LEASE, me, LEASE_SECONDS):
            raise _LeaseLost
        if count:
            yield "sessions", count


def _client_rows(organization_id: str, client_id: UUID, me: str, batch: int) -> Iterator[tuple[str, int]]:
    def rows(model: type[Base], condition: ColumnElement[bool]) -> Iterator[tuple[str, int]]:
        table = Base.metadata.tables[model.__tablename__]
        own = table.c.organization_id == organization_id
        return _until_done(partial(_delete_batch, table, own & condition, me, batch), table.name, batch)

    for model, column in CLIENT_ROWS:
        yield from rows(model, Base.metadata.tables[model.__tablename__].c[column] == client_id)
    of_client = select(Credential.id).where(
        Credential.organization_id == organization_id, Credential.client_id == client_id
    )
    yield from rows(CredentialUse, CredentialUse.credential_id.in_(of_client))
    yield from rows(Credential, Credential.client_id == client_id)
    yield from rows(Client, Client.id == client_id)


def _organization_rows(actor: Actor, organization_id: str, me: str, batch: int) -> Iterator[tuple[str, int]]:
    for turn in range(MOST_TURNS):
        try:
            for table in tables_of_an_organization():
                own = table.c.organization_id == organization_id
                yield from _until_done(partial(_delete_batch, table, own, me, batch), table.name, batch)
            break
        except IntegrityError:
            # What was refused a moment ago is written when its table is empty already.
            if turn == MOST_TURNS - 1:
                raise
    _bury(actor, organization_id)
    forget(organization_id)


def _old_logs(organization_id: str, before: datetime, me: str, batch: int) -> Iterator[tuple[str, int]]:
    """Refusals that were to be kept for longer go, too, once the organization keeps them for less."""
    table = Base.metadata.tables[FailedRequest.__tablename__]
    old = (table.c.organization_id == organization_id) & (table.c.id < first_id_at(before))
    yield from _until_done(partial(_delete_batch, table, old, me, batch), table.name, batch)


@transaction
def _sweep_batch(sweep: Sweep, me: str, batch: int) -> int:
    condition = sweep.ends < clock.now() - sweep.kept
    if sweep.unless is not None:
        condition &= not_(sweep.unless())
    return _delete(sweep.table, condition, me, batch, order=sweep.ends, before=sweep.before)


@transaction
def _delete_batch(table: Table, condition: ColumnElement[bool], me: str, batch: int) -> int:
    return _delete(table, condition, me, batch)


@transaction
def _audit_batch(organization_id: str, before: datetime, me: str, batch: int) -> int:
    if not leases.keep(LEASE, me, LEASE_SECONDS):
        raise _LeaseLost
    return sealing.remove_before(organization_id, before, batch)


def _delete(
    table: Table,
    condition: ColumnElement[bool],
    me: str,
    batch: int,
    order: Any = None,
    before: Callable[[Actor, Sequence[UUID]], None] | None = None,
) -> int:
    """Rows that fit the condition are gone, at most a batch of them; returns how many were found."""
    if not leases.keep(LEASE, me, LEASE_SECONDS):
        raise _LeaseLost
    columns = list(table.primary_key.columns)
    found = select(*columns).where(condition).limit(batch).execution_options(**ACROSS)
    keys: list[Key] = [
        tuple(row) for row in db.session.execute(found if order is None else found.order_by(order))
    ]
    *leading, last = columns
    # One statement for each organization: MariaDB reads (a, b) IN (…) as a scan of the whole table.
    for shared, group in groupby(sorted(keys), key=lambda key: key[:-1]):
        ids = [key[-1] for key in group]
        if before is not None:
            before(Actor.system(shared[0], "janitor"), ids)
        those = [column == value for column, value in zip(leading, shared, strict=True)]
        db.session.execute(
            delete(table).where(*those, last.in_(ids)), execution_options={"synchronize_session": False}
        )
    return len(keys)


@read
def _deleted_clients(batch: int) -> list[tuple[str, UUID]]:
    due = DELETED_CLIENTS.ends < clock.now() - DELETED_CLIENTS.kept
    found = select(Client.organization_id, Client.id).where(due).limit(batch)
    rows = db.session.execute(found.execution_options(**ACROSS))
    return [(organization_id, client_id) for organization_id, client_id in rows]


@read
def _ended_organizations(batch: int) -> list[str]:
    due = (Organization.purge_at < clock.now()) & (Organization.status == DELETED)
    return list(db.session.scalars(select(Organization.id).where(due).limit(batch)))


@transaction
def _bury(actor: Actor, organization_id: str) -> None:
    """Nothing of the organization is left but the tombstone of its slug; its data key is destroyed (SE-8)."""
    organization = db.session.get(Organization, organization_id)
    if organization is None or organization.status != DELETED:
        return
    # Its own log is gone with it; root's says so.
    root = replace(actor, organization_id=root_organization().id)
    audit.record(root, "organization.purged", target_type="organization", target_id=organization.slug)
    db.session.execute(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == DELETED)
        .values(status=PURGED, data_key=None, settings={}, purge_at=None, updated_at=clock.now())
    )


def _horizons() -> Iterator[tuple[str, datetime, datetime]]:
    """(organization, the times before which its audit events and its failed requests go), a page at a time."""
    after, bounds = "", standing_bounds()
    while True:
        page = _settings_page(after)
        for organization_id, settings in page:
            kept = effective(settings, bounds)["audit"]
            now = clock.now()
            days, log_days = kept["retention_days"], kept["log_retention_days"]
            yield organization_id, now - timedelta(days=days), now - timedelta(days=log_days)
        if not page:
            return
        after = page[-1][0]


@read
def _settings_page(after: str) -> list[tuple[str, dict[str, Any]]]:
    columns = select(Organization.id, Organization.settings)
    rows = db.session.execute(columns.where(Organization.id > after).order_by(Organization.id).limit(500))
    return [(organization_id, settings) for organization_id, settings in rows]
