"""Janitor: one elected worker deletes expired rows in small batches.

It selects keys through the index of the expiry column and deletes by primary key, at most ``BATCH`` rows per
transaction with a pause between, so that no token request waits for a range lock or a long transaction. If a janitor is
killed, it leaves only complete batches, and another one takes over when its lease expires.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Table, and_, delete, exists, not_, or_, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import (
    CacheInvalidation,
    FailedRequest,
    IdempotencyKey,
    OutboxMessage,
    Revocation,
    RevocationReceipt,
    SampledRequest,
    UsageCounter,
    UsedIdentifier,
    Webhook,
    WebhookDelivery,
)
from app.models.base import Base
from app.models.client import (
    Client,
    ClientAccess,
    ClientLogo,
    ClientRegistration,
    ClientRequest,
    Credential,
    CredentialUse,
    RegistrationToken,
)
from app.models.grant import AuthorizationCode, AuthorizationRequest, Consent, Grant, PlaygroundRun
from app.models.organization import DELETED, PURGED, Organization
from app.models.second_factor import PendingSignIn, SecondFactorTry
from app.models.session import Attempt, KnownBrowser, RequestCount, Session, SessionClient
from app.models.token import (
    AccessToken,
    DeviceCode,
    PushedRequest,
    SigningKey,
    StatusList,
    StatusListEntry,
)
from app.models.user import (
    AccountLink,
    AppRoleAssignment,
    Invitation,
    Registration,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.operations.audit import chain
from app.operations.clients import rotations
from app.operations.clients.dynamic_registration import delete_client_if_idle, find_clients_to_check
from app.operations.directory.lookups import current_limits, get_root_organization
from app.operations.grants.signing_keys import record_key_removals
from app.operations.store import audit, clock, leases, usage_counters
from app.operations.store.keyring import clear_cached_keys
from app.operations.store.transactions import read, transaction
from app.operations.tokens import cutoffs
from app.rules.actor import Actor
from app.rules.identifiers import first_id_at
from app.rules.organizations.settings import effective_settings
from app.tenant_fence import ACROSS

# Expired rows are kept for a day: a replayed token is still recognized, and a wrong clock does no harm (F18).
RETENTION = timedelta(days=1)
# Rows of deleted clients are kept for a month, so that their secrets can still be identified.
DELETED_CLIENT_RETENTION = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class PurgeRule:
    """One table: rows whose ``ends`` is longer ago than ``retention`` are deleted, unless ``unless`` says they are
    needed.

    ``before`` is called with the janitor as actor and the rows of an organization that are about to be deleted, in the
    same transaction.
    """

    table: Table
    ends: ColumnElement[datetime]
    retention: timedelta = RETENTION
    unless: Callable[[], ColumnElement[bool]] | None = None
    before: Callable[[Actor, Sequence[UUID]], None] | None = None


def _rule(
    model: type[Base],
    column: str,
    retention: timedelta = RETENTION,
    unless: Callable[[], ColumnElement[bool]] | None = None,
    before: Callable[[Actor, Sequence[UUID]], None] | None = None,
) -> PurgeRule:
    table = Base.metadata.tables[model.__tablename__]
    return PurgeRule(table, table.c[column], retention, unless, before)


def _grant_has_tokens() -> ColumnElement[bool]:
    return exists().where(
        AccessToken.organization_id == Grant.organization_id, AccessToken.grant_id == Grant.id
    )


def _is_not_sent() -> ColumnElement[bool]:
    return OutboxMessage.done_at.is_(None)


def _has_deliveries() -> ColumnElement[bool]:
    return exists().where(
        WebhookDelivery.organization_id == Webhook.organization_id, WebhookDelivery.webhook_id == Webhook.id
    )


def _import_has_rows() -> ColumnElement[bool]:
    return or_(
        *(
            exists().where(
                table.organization_id == UserImport.organization_id, table.import_id == UserImport.id
            )
            for table in (UserImportPart, UserImportRefusal)
        )
    )


# Children before their parents. Each column named here has an index.
PURGE_RULES = (
    _rule(AccessToken, "expires_at"),
    # Readers may allow for a difference of clocks.
    _rule(StatusListEntry, "expires_at", timedelta(hours=1)),
    _rule(StatusList, "expires_at", timedelta()),
    _rule(AuthorizationCode, "purge_at", timedelta()),
    _rule(DeviceCode, "expires_at"),
    _rule(FailedRequest, "expires_at", timedelta()),
    _rule(SampledRequest, "expires_at", timedelta()),
    _rule(ClientRequest, "expires_at", timedelta()),
    # Created by unauthenticated requests and not used after they expire.
    _rule(AuthorizationRequest, "expires_at", timedelta()),
    _rule(PlaygroundRun, "expires_at", timedelta()),
    # Created by unauthenticated requests. One that was used in time may be completed up to half an hour later.
    _rule(PushedRequest, "expires_at", timedelta(hours=1)),
    _rule(Grant, "expires_at", unless=_grant_has_tokens),
    _rule(Session, "expires_at"),
    _rule(SessionClient, "expires_at"),
    _rule(Attempt, "expires_at"),
    _rule(RequestCount, "expires_at", timedelta()),
    _rule(KnownBrowser, "expires_at", timedelta()),
    _rule(AccountLink, "expires_at", timedelta()),
    _rule(Registration, "expires_at", timedelta()),
    _rule(PendingSignIn, "expires_at", timedelta()),
    _rule(SecondFactorTry, "expires_at", timedelta()),
    _rule(Invitation, "expires_at", DELETED_CLIENT_RETENTION),
    _rule(RegistrationToken, "expires_at", DELETED_CLIENT_RETENTION),
    # Personal data: uploaded rows and rejected rows.
    _rule(UserImportPart, "expires_at", timedelta()),
    _rule(UserImportRefusal, "expires_at", timedelta()),
    _rule(UserImport, "expires_at", timedelta(), unless=_import_has_rows),
    _rule(IdempotencyKey, "expires_at"),
    _rule(CredentialUse, "expires_at"),
    _rule(UsedIdentifier, "expires_at", timedelta()),
    _rule(UsageCounter, "starts_at", usage_counters.RETENTION),
    _rule(OutboxMessage, "expires_at", unless=_is_not_sent),
    _rule(WebhookDelivery, "expires_at", timedelta()),
    # A worker with an outdated cache may still create a delivery for a deleted webhook.
    _rule(Webhook, "deleted_at", timedelta(minutes=15), unless=_has_deliveries),
    _rule(Revocation, "expires_at"),
    _rule(RevocationReceipt, "expires_at", timedelta()),
    _rule(SigningKey, "remove_at", timedelta(), before=record_key_removals),
)

# The rows of one client, children first; the column that names it.
CLIENT_ROWS = (
    (AccessToken, "client_id"),
    (AuthorizationCode, "client_id"),
    (AuthorizationRequest, "client_id"),
    (PlaygroundRun, "client_id"),
    (PushedRequest, "client_id"),
    (DeviceCode, "client_id"),
    (FailedRequest, "client_id"),
    (UsageCounter, "client_id"),
    (SampledRequest, "client_id"),
    (ClientRequest, "client_id"),
    (ClientAccess, "client_id"),
    (AppRoleAssignment, "client_id"),
    (Consent, "client_id"),
    (SessionClient, "client_id"),
    (Grant, "client_id"),
    (ClientRegistration, "id"),
    (ClientLogo, "id"),
)

DELETED_CLIENTS = _rule(Client, "deleted_at", DELETED_CLIENT_RETENTION)


def organization_tables() -> list[Table]:
    """List every table with rows of organizations, children first, except that of cache invalidations.

    Those may only be pruned.
    """
    pruned = CacheInvalidation.__tablename__
    tables = reversed(Base.metadata.sorted_tables)
    return [table for table in tables if "organization_id" in table.c and table.name != pruned]


BATCH = 500
PAUSE_SECONDS = 0.05
MAX_ORGANIZATION_PASSES = 3
LEASE = "janitor"
LEASE_SECONDS = 60
AUDIT_LEASE = "janitor-audit"
AUDIT_LEASE_SECONDS = 86_400

Key = tuple[Any, ...]


class _LeaseLost(Exception):
    """Another janitor has taken over."""


def purge_expired(
    actor: Actor,
    *,
    holder: str | None = None,
    batch: int = BATCH,
    pause: float = PAUSE_SECONDS,
    should_stop: Callable[[], bool] = lambda: False,
) -> Counter[str] | None:
    """Delete expired rows and return how many by table, or None if another janitor is running.

    ``holder`` names this janitor in the lease; ``should_stop`` is called between batches. Audit:
    ``organization.purged`` for each organization that was deleted thirty days ago.
    """
    actor.require("instance:write")
    holder_id = holder or secrets.token_hex(8)
    if not leases.acquire(LEASE, holder_id, LEASE_SECONDS):
        return None
    deleted: Counter[str] = Counter()
    try:
        for table, count in _run_all(actor, holder_id, batch):
            deleted[table] += count
            if should_stop():
                break
            time.sleep(pause)
    except _LeaseLost:
        return deleted
    finally:
        leases.release(LEASE, holder_id)
    return deleted


def _run_all(actor: Actor, holder_id: str, batch: int) -> Iterator[tuple[str, int]]:
    for rule in PURGE_RULES:
        yield from _repeat(partial(_purge_batch, rule, holder_id, batch), rule.table.name, batch)
    if (pruned := _prune_cache_invalidations(holder_id)) > 0:
        yield CacheInvalidation.__tablename__, pruned
    yield from _delete_revoked_sessions(holder_id)
    yield from _send_reminders(actor, holder_id)
    yield from _delete_idle_clients(holder_id, batch)
    for organization_id, client_id in _find_deleted_clients(batch):
        yield from _delete_client_rows(organization_id, client_id, holder_id, batch)
    for organization_id in _find_organizations_to_purge(batch):
        yield from _delete_organization_rows(actor, organization_id, holder_id, batch)
    # Retention is a setting of each organization, so check each of them once a day. The lease is not released.
    if leases.acquire(AUDIT_LEASE, secrets.token_hex(8), AUDIT_LEASE_SECONDS):
        for organization_id, before, logs_before in _find_cutoffs():
            if chain.has_events_before(organization_id, before):
                yield from _repeat(
                    partial(_delete_audit_batch, organization_id, before, holder_id, batch),
                    "audit_events",
                    batch,
                )
            yield from _delete_old_failed_requests(organization_id, logs_before, holder_id, batch)


def _repeat(step: Callable[[], int], name: str, batch: int) -> Iterator[tuple[str, int]]:
    while True:
        count = step()
        if count:
            yield name, count
        if count < batch:
            return


def _delete_idle_clients(holder_id: str, batch: int) -> Iterator[tuple[str, int]]:
    """Delete unused dynamically registered clients. Their rows are deleted with conditions of other deleted clients."""
    while True:
        due, ended = find_clients_to_check(batch), 0
        for organization_id, client_id in due:
            if not leases.renew(LEASE, holder_id, LEASE_SECONDS):
                raise _LeaseLost
            ended += delete_client_if_idle(Actor.system(organization_id, "idle clients"), client_id)
        if ended:
            yield "idle clients", ended
        if len(due) < batch:
            return


def _send_reminders(actor: Actor, holder_id: str) -> Iterator[tuple[str, int]]:
    """Remind administrators of secrets that expire soon while they are in use."""
    for count in rotations.send_expiry_reminders(actor):
        if not leases.renew(LEASE, holder_id, LEASE_SECONDS):
            raise _LeaseLost
        if count:
            yield "reminders", count


def _delete_revoked_sessions(holder_id: str) -> Iterator[tuple[str, int]]:
    """Delete sessions that were revoked with a whole organization, and notify clients."""
    for count in cutoffs.delete_cut_off_sessions():
        if not leases.renew(LEASE, holder_id, LEASE_SECONDS):
            raise _LeaseLost
        if count:
            yield "sessions", count


def _delete_client_rows(
    organization_id: str, client_id: UUID, holder_id: str, batch: int
) -> Iterator[tuple[str, int]]:
    def rows(model: type[Base], condition: ColumnElement[bool]) -> Iterator[tuple[str, int]]:
        table = Base.metadata.tables[model.__tablename__]
        own = table.c.organization_id == organization_id
        return _repeat(partial(_delete_batch, table, own & condition, holder_id, batch), table.name, batch)

    for model, column in CLIENT_ROWS:
        yield from rows(model, Base.metadata.tables[model.__tablename__].c[column] == client_id)
    of_client = select(Credential.id).where(
        Credential.organization_id == organization_id, Credential.client_id == client_id
    )
    yield from rows(CredentialUse, CredentialUse.credential_id.in_(of_client))
    yield from rows(Credential, Credential.client_id == client_id)
    yield from rows(Client, Client.id == client_id)


def _delete_organization_rows(
    actor: Actor, organization_id: str, holder_id: str, batch: int
) -> Iterator[tuple[str, int]]:
    for turn in range(MAX_ORGANIZATION_PASSES):
        try:
            for table in organization_tables():
                own = table.c.organization_id == organization_id
                yield from _repeat(partial(_delete_batch, table, own, holder_id, batch), table.name, batch)
            break
        except IntegrityError:
            # A request that was rejected just now may be stored after its table was emptied.
            if turn == MAX_ORGANIZATION_PASSES - 1:
                raise
    _write_tombstone(actor, organization_id)
    clear_cached_keys(organization_id)


def _delete_old_failed_requests(
    organization_id: str, before: datetime, holder_id: str, batch: int
) -> Iterator[tuple[str, int]]:
    """Delete failed requests that are older than a retention period that was shortened."""
    table = Base.metadata.tables[FailedRequest.__tablename__]
    old = (table.c.organization_id == organization_id) & (table.c.id < first_id_at(before))
    yield from _repeat(partial(_delete_batch, table, old, holder_id, batch), table.name, batch)


@transaction
def _purge_batch(rule: PurgeRule, holder_id: str, batch: int) -> int:
    condition = rule.ends < clock.now() - rule.retention
    if rule.unless is not None:
        condition &= not_(rule.unless())
    return _delete(rule.table, condition, holder_id, batch, order=rule.ends, before=rule.before)


@transaction
def _prune_cache_invalidations(holder_id: str) -> int:
    if not leases.renew(LEASE, holder_id, LEASE_SECONDS):
        raise _LeaseLost
    return cache_invalidation.prune()


@transaction
def _delete_batch(table: Table, condition: ColumnElement[bool], holder_id: str, batch: int) -> int:
    return _delete(table, condition, holder_id, batch)


@transaction
def _delete_audit_batch(organization_id: str, before: datetime, holder_id: str, batch: int) -> int:
    if not leases.renew(LEASE, holder_id, LEASE_SECONDS):
        raise _LeaseLost
    return chain.remove_events_before(organization_id, before, batch)


def _delete(
    table: Table,
    condition: ColumnElement[bool],
    holder_id: str,
    batch: int,
    order: Any = None,
    before: Callable[[Actor, Sequence[UUID]], None] | None = None,
) -> int:
    """Delete at most a batch of rows that match the condition, and return how many were found."""
    if not leases.renew(LEASE, holder_id, LEASE_SECONDS):
        raise _LeaseLost
    columns = list(table.primary_key.columns)
    found = select(*columns).where(condition).limit(batch).execution_options(**ACROSS)
    keys: list[Key] = [
        tuple(row) for row in db.session.execute(found if order is None else found.order_by(order))
    ]
    *leading, last = columns
    conditions = []
    for shared, group in groupby(sorted(keys), key=lambda key: key[:-1]):
        ids = [key[-1] for key in group]
        if before is not None:
            before(Actor.system(shared[0], "janitor"), ids)
        own = (column == value for column, value in zip(leading, shared, strict=True))
        conditions.append(and_(*own, last.in_(ids)))
    if conditions:
        # The condition again, because a row may have been renewed since it was found. Alternatives, because MariaDB
        # executes (a, b) IN (…) as a full table scan.
        db.session.execute(
            delete(table).where(condition, or_(*conditions)),
            execution_options={"synchronize_session": False, **ACROSS},
        )
    return len(keys)


@read
def _find_deleted_clients(batch: int) -> list[tuple[str, UUID]]:
    due = DELETED_CLIENTS.ends < clock.now() - DELETED_CLIENTS.retention
    found = select(Client.organization_id, Client.id).where(due).limit(batch)
    rows = db.session.execute(found.execution_options(**ACROSS))
    return [(organization_id, client_id) for organization_id, client_id in rows]


@read
def _find_organizations_to_purge(batch: int) -> list[str]:
    due = (Organization.purge_at < clock.now()) & (Organization.status == DELETED)
    return list(db.session.scalars(select(Organization.id).where(due).limit(batch)))


@transaction
def _write_tombstone(actor: Actor, organization_id: str) -> None:
    """Keep only the tombstone with the slug of the organization, and destroy its data key (SE-8)."""
    organization = db.session.get(Organization, organization_id)
    if organization is None or organization.status != DELETED:
        return
    # Its own audit log is deleted with it, so record the event in root's.
    root = replace(actor, organization_id=get_root_organization().id)
    audit.record(root, "organization.purged", target_type="organization", target_id=organization.slug)
    db.session.execute(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == DELETED)
        .values(status=PURGED, data_key=None, settings={}, purge_at=None, updated_at=clock.now())
    )


def _find_cutoffs() -> Iterator[tuple[str, datetime, datetime]]:
    """Iterate over (organization, cutoff of audit events, cutoff of failed requests)."""
    after, bounds = "", current_limits()
    while True:
        page = _settings_page(after)
        for organization_id, settings in page:
            audit_settings = effective_settings(settings, bounds)["audit"]
            now = clock.now()
            days, log_days = audit_settings["retention_days"], audit_settings["log_retention_days"]
            yield organization_id, now - timedelta(days=days), now - timedelta(days=log_days)
        if not page:
            return
        after = page[-1][0]


@read
def _settings_page(after: str) -> list[tuple[str, dict[str, Any]]]:
    columns = select(Organization.id, Organization.settings)
    rows = db.session.execute(columns.where(Organization.id > after).order_by(Organization.id).limit(500))
    return [(organization_id, settings) for organization_id, settings in rows]
