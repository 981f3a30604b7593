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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Table, delete, exists, not_, or_, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.audit import FailedRequest
from app.models.base import Base
from app.models.client import Client, ClientLogo, ClientRegistration, ClientRequest, RegistrationToken
from app.models.credential import Credential, CredentialUse
from app.models.event import (
    CacheInvalidation,
    IdempotencyKey,
    OutboxMessage,
    Revocation,
    RevocationReceipt,
    UsedIdentifier,
)
from app.models.grant import AuthorizationCode, AuthorizationRequest, Consent, Grant
from app.models.organization import DELETED, PURGED, Organization
from app.models.second_factor import PendingSignIn, SecondFactorTry
from app.models.session import Attempt, KnownBrowser, Session, SessionClient
from app.models.signing_key import SigningKey
from app.models.token import AccessToken, DeviceCode, PushedRequest
from app.models.user import (
    AccountLink,
    Invitation,
    Registration,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.models.webhook import Webhook, WebhookDelivery
from app.operations.audit import chain
from app.operations.clients import rotations
from app.operations.clients.dynamic_registration import clients_to_look_at, end_if_idle
from app.operations.directory.lookups import current_limits, get_root_organization
from app.operations.grants.key_rotation import note_removals
from app.operations.store import audit, clock, leases
from app.operations.store.keyring import clear_cached_keys
from app.operations.store.transactions import read, transaction
from app.operations.tokens import cutoffs
from app.rules.actor import Actor
from app.rules.identifiers import first_id_at
from app.rules.organizations.settings import effective
from app.tenant_fence import ACROSS

# A dead row is kept a day: a replayed token is still recognised, and a clock an hour off hurts nobody (F18).
KEPT_AFTER_END = timedelta(days=1)
# Deleted clients keep their rows for a month: their ledger answers "which secret was that?".
KEPT_AFTER_DELETION = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One table: rows whose ``ends`` is longer ago than ``kept`` go, unless ``unless`` says they are needed.

    ``before`` is told, with the janitor as actor, which rows of an organization are about to go, in the transaction
    that removes them.
    """

    table: Table
    ends: ColumnElement[datetime]
    kept: timedelta = KEPT_AFTER_END
    unless: Callable[[], ColumnElement[bool]] | None = None
    before: Callable[[Actor, Sequence[UUID]], None] | None = None


def _sweep(
    model: type[Base],
    column: str,
    kept: timedelta = KEPT_AFTER_END,
    unless: Callable[[], ColumnElement[bool]] | None = None,
    before: Callable[[Actor, Sequence[UUID]], None] | None = None,
) -> Sweep:
    table = Base.metadata.tables[model.__tablename__]
    return Sweep(table, table.c[column], kept, unless, before)


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
SWEEPS = (
    _sweep(AccessToken, "expires_at"),
    _sweep(AuthorizationCode, "purge_at", timedelta()),
    _sweep(DeviceCode, "expires_at"),
    _sweep(FailedRequest, "expires_at", timedelta()),
    _sweep(ClientRequest, "expires_at", timedelta()),
    # Strangers make them; nothing asks for one that has ended.
    _sweep(AuthorizationRequest, "expires_at", timedelta()),
    # Strangers make them too; one that was brought in time may be answered half an hour later, and none after that.
    _sweep(PushedRequest, "expires_at", timedelta(hours=1)),
    _sweep(Grant, "expires_at", unless=_grant_has_tokens),
    _sweep(Session, "expires_at"),
    _sweep(SessionClient, "expires_at"),
    _sweep(Attempt, "expires_at"),
    _sweep(KnownBrowser, "expires_at", timedelta()),
    _sweep(AccountLink, "expires_at", timedelta()),
    _sweep(Registration, "expires_at", timedelta()),
    _sweep(PendingSignIn, "expires_at", timedelta()),
    _sweep(SecondFactorTry, "expires_at", timedelta()),
    _sweep(Invitation, "expires_at", KEPT_AFTER_DELETION),
    _sweep(RegistrationToken, "expires_at", KEPT_AFTER_DELETION),
    # Personal data: what was uploaded, and what was refused of it.
    _sweep(UserImportPart, "expires_at", timedelta()),
    _sweep(UserImportRefusal, "expires_at", timedelta()),
    _sweep(UserImport, "expires_at", timedelta(), unless=_import_has_rows),
    _sweep(IdempotencyKey, "expires_at"),
    _sweep(CredentialUse, "expires_at"),
    _sweep(CacheInvalidation, "at", timedelta(minutes=1)),
    _sweep(UsedIdentifier, "expires_at", timedelta()),
    _sweep(OutboxMessage, "expires_at", unless=_is_not_sent),
    _sweep(WebhookDelivery, "expires_at", timedelta()),
    # A worker that has not heard yet that it was deleted may still put down a delivery for it.
    _sweep(Webhook, "deleted_at", timedelta(minutes=15), unless=_has_deliveries),
    _sweep(Revocation, "expires_at"),
    _sweep(RevocationReceipt, "expires_at", timedelta()),
    _sweep(SigningKey, "remove_at", timedelta(), before=note_removals),
)

# The rows of one client, children first; the column that names it.
CLIENT_ROWS = (
    (AccessToken, "client_id"),
    (AuthorizationCode, "client_id"),
    (AuthorizationRequest, "client_id"),
    (PushedRequest, "client_id"),
    (DeviceCode, "client_id"),
    (FailedRequest, "client_id"),
    (ClientRequest, "client_id"),
    (Consent, "client_id"),
    (SessionClient, "client_id"),
    (Grant, "client_id"),
    (ClientRegistration, "id"),
    (ClientLogo, "id"),
)

DELETED_CLIENTS = _sweep(Client, "deleted_at", KEPT_AFTER_DELETION)


def tables_of_an_organization() -> list[Table]:
    """Every table that holds rows of organizations, children first."""
    return [table for table in reversed(Base.metadata.sorted_tables) if "organization_id" in table.c]


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
    if not leases.acquire(LEASE, me, LEASE_SECONDS):
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
        leases.release(LEASE, me)
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
    if leases.acquire(AUDIT_LEASE, secrets.token_hex(8), AUDIT_LEASE_SECONDS):
        for organization_id, before, logs_before in _horizons():
            if chain.has_ended(organization_id, before):
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
            if not leases.renew(LEASE, me, LEASE_SECONDS):
                raise _LeaseLost
            ended += end_if_idle(Actor.system(organization_id, "idle clients"), client_id)
        if ended:
            yield "idle clients", ended
        if len(due) < batch:
            return


def _reminders(actor: Actor, me: str) -> Iterator[tuple[str, int]]:
    """Administrators hear of secrets that end soon while they are in use."""
    for count in rotations.remind(actor):
        if not leases.renew(LEASE, me, LEASE_SECONDS):
            raise _LeaseLost
        if count:
            yield "reminders", count


def _ended_sessions(me: str) -> Iterator[tuple[str, int]]:
    """Sign-ins that ended with a whole organization's are cleared, and clients hear of it."""
    for count in cutoffs.settle():
        if not leases.renew(LEASE, me, LEASE_SECONDS):
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
    clear_cached_keys(organization_id)


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
    if not leases.renew(LEASE, me, LEASE_SECONDS):
        raise _LeaseLost
    return chain.remove_before(organization_id, before, batch)


def _delete(
    table: Table,
    condition: ColumnElement[bool],
    me: str,
    batch: int,
    order: Any = None,
    before: Callable[[Actor, Sequence[UUID]], None] | None = None,
) -> int:
    """Rows that fit the condition are gone, at most a batch of them; returns how many were found."""
    if not leases.renew(LEASE, me, LEASE_SECONDS):
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
    root = replace(actor, organization_id=get_root_organization().id)
    audit.record(root, "organization.purged", target_type="organization", target_id=organization.slug)
    db.session.execute(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == DELETED)
        .values(status=PURGED, data_key=None, settings={}, purge_at=None, updated_at=clock.now())
    )


def _horizons() -> Iterator[tuple[str, datetime, datetime]]:
    """(organization, the times before which its audit events and its failed requests go), a page at a time."""
    after, bounds = "", current_limits()
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
