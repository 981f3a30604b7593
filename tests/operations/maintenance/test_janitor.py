"""Janitor: expired rows are deleted, needed rows are kept, and concurrent or killed janitors do no harm (F18)."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from msgspec.structs import replace
from sqlalchemy import event, insert, literal, select, update

from app.extensions import db
from app.models.audit import AuditEvent, Lease, OutboxMessage, RevocationReceipt, UsageCounter
from app.models.base import Base, Identifier
from app.models.client import Client, ClientRegistration, Credential
from app.models.session import Attempt
from app.models.token import AccessToken
from app.models.user import AccountLink
from app.operations.audit.chain import seal_pending_events
from app.operations.clients.dynamic_registration import find_clients_to_check
from app.operations.maintenance import janitor
from app.operations.maintenance.batches import delete_by_key, delete_first
from app.operations.maintenance.janitor import purge_expired
from app.operations.maintenance.purge_rules import DELETED_CLIENTS, PURGE_RULES
from app.operations.store import clock, leases
from app.operations.store.transactions import transaction
from app.operations.tokens import cutoffs
from app.rules.actor import Actor
from app.rules.errors import Forbidden
from app.rules.identifiers import new_id
from tests.factories import Factory, MadeClient
from tests.support.databases import Database
from tests.support.registering import register
from tests.support.servers import ROOT

SYSTEM = Actor.system("", "test")


@transaction
def write(*statements: Any) -> None:
    for statement in statements:
        db.session.execute(statement)


def tokens(client: MadeClient, *ages: timedelta) -> None:
    """Create one access token per age, the time since its expiry."""
    now = clock.now()
    rows = [
        {
            "organization_id": client.organization.id,
            "id": new_id(),
            "digest": new_id().bytes * 2,
            "client_id": client.registered.client.id,
            "scope": "clients:read",
            "audience": "",
            "issued_at": now - age - timedelta(hours=1),
            "expires_at": now - age,
        }
        for age in ages
    ]
    write(insert(AccessToken).values(rows))


def attempts(organization_id: str, count: int) -> None:
    """Create expired attempts."""
    moment = clock.now() - timedelta(days=2)
    row = {"organization_id": organization_id, "bucket": b"b" * 32, "at": moment, "expires_at": moment}
    for begin in range(0, count, 500):
        write(insert(Attempt).values([{**row, "id": new_id()} for _ in range(min(500, count - begin))]))


def test_rows_of_many_organizations_are_deleted_in_one_statement(context: Flask, make: Factory) -> None:
    for _ in range(3):
        attempts(make.organization().id, 2)
    statements: list[str] = []
    listener = (db.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    event.listen(*listener)
    try:
        deleted = purge_expired(SYSTEM, pause=0)
    finally:
        event.remove(*listener)
    assert deleted is not None and deleted["attempts"] == 6
    assert sum(statement.startswith("DELETE FROM attempts") for statement in statements) == 1


def test_only_rows_expired_for_a_day_are_deleted(context: Flask, make: Factory, database: Database) -> None:
    client = make.machine(make.organization())
    tokens(client, timedelta(days=3), timedelta(hours=25), timedelta(hours=23), timedelta(hours=-1))
    assert purge_expired(SYSTEM, pause=0) == {"access_tokens": 2}
    assert database.count("access_tokens") == 2
    assert purge_expired(SYSTEM, pause=0) == {}


def test_row_of_one_organization_does_not_end_the_janitor(
    app: Flask, context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that only a changed database or archive has, and an error of any other kind."""
    far = datetime(9999, 12, 31, tzinfo=UTC)
    settings = {"oauth": {"dynamic_registration": {"mode": "open"}}}
    acme, globex = (make.organization(settings=settings) for _ in range(2))
    for organization in (acme, globex):
        register(app.test_client(), organization)
        make.sign_in(make.user(organization))
        receipt = {"kind": "organization", "subject": "", "sessions": True, "counts": {}, "created_at": far}
        ids = {"organization_id": organization.id, "id": new_id()}
        before = far if organization is acme else clock.now()
        write(
            insert(RevocationReceipt).values({**ids, **receipt, "issued_before": before, "expires_at": far})
        )
        tokens(make.machine(organization), timedelta(days=3))
    write(
        update(ClientRegistration).values(idle_check_at=clock.now()),
        update(Client).where(Client.organization_id == acme.id).values(created_at=far),
    )
    end_sessions = cutoffs.end_sessions

    def end_or_fail(organization_id: str, condition: Any) -> None:
        if organization_id == globex.id:
            raise KeyError
        end_sessions(organization_id, condition)

    monkeypatch.setattr(cutoffs, "end_sessions", end_or_fail)
    for deleted in (1, 0):
        done = purge_expired(SYSTEM, pause=0)
        assert done is not None and done["sessions"] == deleted and done["access_tokens"] == 2 * deleted
    monkeypatch.undo()
    done = purge_expired(SYSTEM, pause=0)
    assert done is not None and done["sessions"] == 1
    open_receipts = select(RevocationReceipt.id).where(RevocationReceipt.settled_at.is_(None))
    assert not db.session.scalars(open_receipts).all()
    assert not find_clients_to_check(1)


def test_rows_are_deleted_in_batches(
    context: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts(make.organization().id, 1203)
    sizes: list[int] = []
    monkeypatch.setattr(
        janitor, "delete_first", lambda *arguments: sizes.append(delete_first(*arguments)) or sizes[-1]
    )
    assert purge_expired(SYSTEM, batch=500, pause=0) == {"attempts": 1203}
    assert sizes.count(500) == 2 and sum(sizes) == 1203
    assert max(sizes) == 500
    assert database.count("attempts") == 0


def test_grant_with_tokens_is_not_deleted(context: Flask, make: Factory) -> None:
    (sweep,) = [sweep for sweep in PURGE_RULES if sweep.table.name == "grants"]
    assert sweep.unless is not None
    assert "access_tokens.grant_id = grants.id" in str(sweep.unless())


def test_unsent_message_is_not_deleted(context: Flask, make: Factory, database: Database) -> None:
    """A message is not lost because it was not delivered in time."""
    long_ago = clock.now() - timedelta(days=30)
    message: dict[str, Any] = {"organization_id": make.organization().id, "kind": "mail", "payload": {}}
    message["receiver"] = "cli_somebody"
    message |= dict.fromkeys(("created_at", "available_at", "expires_at"), long_ago)
    write(
        insert(OutboxMessage).values(**message, id=new_id(), attempts=9),
        insert(OutboxMessage).values(**message, id=new_id(), attempts=1, done_at=long_ago),
    )
    assert purge_expired(SYSTEM, pause=0) == {"outbox": 1}
    assert [row[0] for row in database.query("SELECT attempts FROM outbox")] == [9]


def test_row_that_is_renewed_meanwhile_is_not_deleted(
    context: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may request a new link while the old one, which has the same key, is being deleted."""
    organization = make.organization()
    user = make.user(organization)
    [rule] = [rule for rule in PURGE_RULES if rule.table.name == "account_links"]
    link = {"organization_id": organization.id, "user_id": user.id, "purpose": "pw"}
    values = {"digest": b"d" * 32, "bound_digest": b"b" * 32, "is_mailed": True}
    past, future = (clock.now() + timedelta(days=days) for days in (-1, 1))
    write(insert(AccountLink).values(**link, **values, created_at=past, expires_at=past))

    def renew(*_: Any) -> None:
        write(update(AccountLink).filter_by(**link).values(expires_at=future))

    monkeypatch.setattr(janitor, "PURGE_RULES", (replace(rule, before=renew),))
    purge_expired(SYSTEM, pause=0)
    assert database.count("account_links") == 1


def test_every_growing_table_has_a_purge_rule() -> None:
    """A table with an expiry and no purge rule would grow forever."""
    swept = {sweep.table.name for sweep in (*PURGE_RULES, DELETED_CLIENTS)}
    ending = {
        table.name
        for table in Base.metadata.sorted_tables
        if {"expires_at", "purge_at", "remove_at"} & set(table.c.keys())
    }
    # Consents end and stay to be shown; organizations become tombstones; a lease is one row.
    assert ending - swept == {"consents", "organizations", "leases"}


def test_secrets_are_deleted_when_nothing_issued_with_them_can_be_valid(
    context: Flask, make: Factory, database: Database
) -> None:
    client = make.machine(make.organization())
    tokens(client, timedelta(hours=1))
    [newest] = db.session.scalars(select(Credential)).all()
    row = {column.name: getattr(newest, column.name) for column in Credential.__table__.columns}
    now = clock.now()
    old, recent = now - timedelta(days=401), now - timedelta(days=366)
    ended = {"revoked": (old, None), "expired": (None, old), "rotated": (old, recent), "used": (old, None)}
    kept = {"revoked lately": (recent, None), "expired lately": (None, recent), "active": (None, None)}
    for name, (revoked_at, expires_at) in (ended | kept).items():
        changes = {
            "name": name,
            "digest": new_id().bytes * 2,
            "revoked_at": revoked_at,
            "expires_at": expires_at,
        }
        write(insert(Credential).values(row | changes | {"id": new_id()}))
    used = select(Credential.id).where(Credential.name == "used").scalar_subquery()
    write(update(AccessToken).values(credential_id=used))
    assert purge_expired(SYSTEM, pause=0) == {"client_credentials": 3}
    left = set(db.session.scalars(select(Credential.name))) - {newest.name}
    assert left == {"used", *kept}
    write(update(AccessToken).values(expires_at=old))
    assert purge_expired(SYSTEM, pause=0) == {"access_tokens": 1, "client_credentials": 1}


def test_every_purge_rule_has_an_index() -> None:
    for sweep in (*PURGE_RULES, DELETED_CLIENTS):
        leading = {index.columns.keys()[0] for index in sweep.table.indexes}
        assert sweep.ends.key in leading, sweep.table.name


def test_audit_events_are_deleted_after_the_organizations_retention(context: Flask, make: Factory) -> None:
    """A run that has to stop leaves the other organizations to the next one, and not to the next day."""
    short, other = (make.organization(settings={"audit": {"retention_days": 30}}) for _ in range(2))
    long = make.organization()
    moment = clock.now() - timedelta(days=40)
    old_id = UUID(int=int(moment.timestamp() * 1000) << 80 | 1)
    for organization in (short, other, long):
        row = {"organization_id": organization.id, "id": old_id, "at": moment, "action": "old.thing"}
        write(
            insert(AuditEvent).values(
                **row, actor_kind="system", actor_label="", actor_organization=organization.id
            )
        )
    assert seal_pending_events(SYSTEM, holder="test")
    assert purge_expired(SYSTEM, pause=0, should_stop=lambda: True) == {"audit_events": 1}
    for name, until in db.session.execute(select(Lease.name, Lease.expires_at)).all():
        write(update(Lease).where(Lease.name == name).values(expires_at=until - timedelta(minutes=5)))
    assert purge_expired(SYSTEM, pause=0) == {"audit_events": 1}
    kept = db.session.scalars(
        select(AuditEvent.organization_id).where(AuditEvent.action == "old.thing")
    ).all()
    assert kept == [long.id]
    lease = select(Lease.expires_at).where(Lease.name == janitor.AUDIT_LEASE)
    checked_until = db.session.scalars(lease).one()
    assert checked_until - clock.now() > timedelta(hours=23)
    db.session.rollback()
    purge_expired(SYSTEM, pause=0)
    assert db.session.scalars(lease).one() == checked_until, "once a day"


def test_purge_requires_the_permission(context: Flask) -> None:
    with pytest.raises(Forbidden):
        purge_expired(Actor.anonymous("00000000"))


def test_only_one_janitor_runs(context: Flask, make: Factory) -> None:
    make.root()
    assert leases.acquire(janitor.LEASE, "first", 60)
    assert purge_expired(SYSTEM) is None
    leases.release(janitor.LEASE, "first")
    assert purge_expired(SYSTEM, pause=0) == {}


def test_janitor_stops_after_losing_the_lease(context: Flask, make: Factory, database: Database) -> None:
    attempts(make.organization().id, 900)

    def overtaken() -> bool:
        write(update(Lease).values(holder="another", expires_at=clock.now() + timedelta(minutes=1)))
        return False

    assert purge_expired(SYSTEM, batch=500, pause=0, should_stop=overtaken) == {"attempts": 500}
    assert database.count("attempts") == 400
    # The lease is the other's still.
    assert purge_expired(SYSTEM, pause=0) is None


def test_process_that_is_ahead_holds_its_lease_no_longer(
    context: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not go back with the database's clock, and others do."""
    assert leases.acquire("job", "first", 60)
    write(update(Lease).values(expires_at=clock.now() - timedelta(seconds=1)))
    with monkeypatch.context() as patch:
        ahead = clock.now() + timedelta(hours=1)
        patch.setattr(clock, "now", lambda: ahead)
        assert leases.acquire("job", "ahead", 60)
    assert not leases.acquire("job", "next", 60)
    write(update(Lease).values(expires_at=clock.now() - timedelta(seconds=1)))
    assert leases.acquire("job", "next", 60)


def test_expired_lease_is_taken_over(context: Flask) -> None:
    assert leases.acquire("job", "dead", 60)
    assert not leases.acquire("job", "next", 60)
    assert leases.acquire("job", "dead", 60)
    write(update(Lease).values(expires_at=clock.now() - timedelta(seconds=1)))
    assert leases.acquire("job", "next", 60)
    assert not leases.renew("job", "dead", 60)
    assert leases.renew("job", "next", 60)


@pytest.mark.mariadb
@pytest.mark.race
def test_of_concurrent_janitors_one_works_at_a_time(app: Flask, make: Factory, database: Database) -> None:
    with app.app_context():
        for _ in range(12):
            attempts(make.organization().id, 300)
    results: list[Any] = []
    ready = threading.Barrier(8)

    def work() -> None:
        with app.app_context():
            ready.wait()
            results.append(purge_expired(SYSTEM, batch=50, pause=0.01))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and None in results
    assert sum(sum(result.values()) for result in results if result) == 12 * 300
    assert database.count("attempts") == 0


@pytest.mark.parametrize("key", ["00000000", "00zzzzzz", "4zzzzzzz", "h0000000", "zzzzzzzz", ""])
def test_each_organization_is_in_one_shard(context: Flask, database: Database, key: str) -> None:
    column = literal(key, Identifier(8))
    shards = [leases.Shard(number) for number in range(leases.SHARDS)]
    holding = [shard for shard in shards if db.session.scalar(select(shard.holds(column)))]
    assert holding == [leases.Shard.of(key)]


_VICTIM = """
import sys
from app import create_app
from app.operations.maintenance.janitor import purge_expired
from app.rules.actor import Actor

def tell():
    print("batch", flush=True)
    return False

with create_app().app_context():
    purge_expired(Actor.system("", "victim"), batch=50, pause=0.05, should_stop=tell)
"""


@pytest.mark.mariadb
@pytest.mark.fault
def test_killed_janitor_leaves_complete_batches_and_is_replaced(
    app: Flask, make: Factory, database: Database, instance: Path
) -> None:
    from tests.support.applications import BASE_URL, environment

    with app.app_context():
        attempts(make.organization().id, 3000)
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM],
        cwd=ROOT,
        env=environment(database, instance, BASE_URL),
        stdout=subprocess.PIPE,
    )
    assert victim.stdout is not None
    for _ in range(3):
        assert victim.stdout.readline() == b"batch\n"
    victim.kill()
    victim.wait()
    victim.stdout.close()
    left = database.count("attempts")
    assert 0 < left < 3000
    assert left % 50 == 0
    with app.app_context():
        assert purge_expired(SYSTEM) is None, "its lease has not ended yet"
        write(update(Lease).values(expires_at=clock.now() - timedelta(seconds=1)))
        assert purge_expired(SYSTEM, pause=0) == {"attempts": left}


@pytest.mark.mariadb
def test_batch_reads_the_index_and_no_other_rows(context: Flask, make: Factory, database: Database) -> None:
    for _ in range(3):
        attempts(make.organization().id, 40)
    seen: list[str] = []

    def note(*told: Any) -> None:
        if told[2].startswith("DELETE FROM attempts"):
            seen.append(told[2] % tuple(repr(value.isoformat(" ")) for value in told[3]))

    event.listen(db.engine, "before_cursor_execute", note)
    assert purge_expired(SYSTEM, pause=0) == {"attempts": 120}
    event.remove(db.engine, "before_cursor_execute", note)
    for _ in range(3):
        attempts(make.organization().id, 2000)
    [plan] = [dict(zip(("id", "select", "table", "type", "possible", "key"), row, strict=False))
              for row in database.query(f"EXPLAIN FORMAT=TRADITIONAL {seen[0]}")]  # fmt: skip
    assert plan["key"] == "ix_attempts_expires_at"


@pytest.mark.mariadb
def test_batch_locks_no_range(context: Flask, make: Factory, database: Database) -> None:
    """Rows that expire between those of a batch, before and after them can be inserted before it commits."""
    client = make.machine(make.organization())
    tokens(client, *[timedelta(hours=hours) for hours in (30, 32, 34, 36)], timedelta(hours=-1))
    [rule] = [rule for rule in PURGE_RULES if rule.table.name == "access_tokens"]
    owner = client.organization.id.encode(), client.registered.client.id.bytes

    @transaction
    def delete() -> int:
        deleted = delete_first(rule.table, janitor._is_due(rule), rule.ends, 100)
        with database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1")
            for hours in (40, 33, 29, 1, -2):
                cursor.execute(
                    "INSERT INTO access_tokens (organization_id, client_id, id, digest, scope, audience,"
                    " issued_at, expires_at)"
                    " VALUES (%s, %s, %s, %s, '', '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL %s HOUR)",
                    (*owner, new_id().bytes, new_id().bytes * 2, hours),
                )
        return deleted

    assert delete() == 4
    assert database.count("access_tokens") == 6


@pytest.mark.mariadb
def test_keys_of_several_types_are_written_as_the_database_compares_them(
    context: Flask, make: Factory, database: Database
) -> None:
    for organization in (make.organization(), make.organization()):
        for hour in range(3):
            starts = clock.now() - timedelta(days=100, hours=hour)
            write(insert(UsageCounter).values(
                organization_id=organization.id, client_id=new_id(), metric="tokens", detail="a:b%", span="hour",
                starts_at=starts, subject_id=new_id(), count=1,
            ))  # fmt: skip
    table = Base.metadata.tables["usage_counters"]
    assert transaction(delete_by_key)(table, table.c.starts_at < clock.now(), 100) == 6
    assert database.count("usage_counters") == 0
