"""A real replica serves old pages of the audit log and figures, and nothing once it is away or lags behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask

from app import config, create_app
from app.operations.audit import usage
from app.operations.audit.audit_events import AuditRecord, export_audit_events, list_audit_events
from app.operations.store import clock, outages, replica
from app.operations.store.rows import PageRequest
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.factories import Factory
from tests.support import process
from tests.support.applications import application, environment
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]
NAME = "gatehouse"
ELSEWHERE = "from the replica"


class Logged(MariaDB):
    """A MariaDB that replicates."""

    mysql = None

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(
            folder, f"--server-id={number}", "--log-bin=binlog", "--binlog-format=ROW", "--sync-binlog=1"
        )

    def value(self, statement: str) -> object:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            row = cursor.fetchone()
        return None if row is None else row[0]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Logged, Logged]]:
    """A server that is written, and one that follows it."""
    folder = tmp_path_factory.mktemp("replication")
    primary, follower = Logged(folder / "primary", 1), Logged(folder / "follower", 2)
    try:
        primary.start()
        follower.start()
        primary.execute(f"CREATE USER replication@'%' IDENTIFIED BY '{primary.password}'")
        primary.execute("GRANT REPLICATION SLAVE ON *.* TO replication@'%'")
        follower.execute(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, MASTER_USER = 'replication',"
            f" MASTER_PASSWORD = '{primary.password}', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1"
        )
        follower.execute("START SLAVE")
        yield primary, follower
    finally:
        follower.stop()
        primary.stop()


@pytest.fixture(scope="module")
def app(servers: tuple[Logged, Logged], tmp_path_factory: pytest.TempPathFactory) -> Flask:
    instance = tmp_path_factory.mktemp("instance")
    instance.chmod(0o700)
    database = MariaDBDatabase(servers[0], NAME)
    Factory(application(database, instance, "http://localhost")).root()
    # Not through the socket: this server is another one.
    settings = environment(database, instance, "http://localhost")
    app = create_app(config.load(settings | {"DATABASE_REPLICA_URL": servers[1].tcp_url(NAME)}))
    app.config["TEST_BASE_URL"] = "http://localhost"
    return app


@pytest.fixture
def actor(app: Flask, servers: tuple[Logged, Logged], monkeypatch: pytest.MonkeyPatch) -> Iterator[Actor]:
    """An administrator of an organization with six events, which the replica shows as its own."""
    follower = servers[1]
    make = Factory(app)
    organization = make.organization()
    for _ in range(5):
        make.machine(organization)
    monkeypatch.setattr(replica, "replica", replica.Replica())
    monkeypatch.setattr(replica, "SETTLED", timedelta(seconds=-1))
    with app.app_context():
        outages.beat()
        made = make.system(organization)
        newest = next(iter(list_audit_events(made, PageRequest(1)).items))
        row = f"SELECT COUNT(*) FROM {NAME}.audit_events WHERE id = x'{newest.id.hex}'"
        process.wait_until(lambda: follower.value(row) == 1, "the replica follows", seconds=60)
        follower.execute(f"UPDATE {NAME}.audit_events SET actor_label = '{ELSEWHERE}'")
        yield made


def second_page(actor: Actor) -> list[AuditRecord]:
    outages.beat()
    first = list_audit_events(actor, PageRequest(2))
    assert ELSEWHERE not in {record.actor_label for record in first.items}
    return list(list_audit_events(actor, PageRequest(2, first.next_cursor_key)).items)


def is_replica_used(actor: Actor) -> bool:
    """Return whether the second page comes from the replica. It has the same events in any case."""
    page = second_page(actor)
    assert len(page) == 2
    return {record.actor_label for record in page} == {ELSEWHERE}


def test_old_pages_and_figures_are_read_from_the_replica_and_new_ones_are_not(
    actor: Actor, servers: tuple[Logged, Logged], monkeypatch: pytest.MonkeyPatch
) -> None:
    process.wait_until(lambda: is_replica_used(actor), "the replica is used", seconds=60)
    monkeypatch.setattr("app.operations.audit.audit_events.EXPORT_BATCH", 2)
    labels = [record.actor_label for record in export_audit_events(actor)]
    assert labels.count(ELSEWHERE) == len(labels) - len(labels) % 2
    # Somebody who has just done something finds it: rows of the last minute are read where they were written.
    monkeypatch.setattr(replica, "SETTLED", timedelta(minutes=1))
    assert not is_replica_used(actor)
    assert ELSEWHERE not in {record.actor_label for record in export_audit_events(actor)}
    selects = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'COM_SELECT'"
    before = int(str(servers[1].value(selects)))
    usage.get_traffic(actor, hours=24)
    # The question itself counts as well.
    assert int(str(servers[1].value(selects))) > before + 1


def test_transaction_reads_where_it_writes(actor: Actor) -> None:
    process.wait_until(lambda: is_replica_used(actor), "the replica is used", seconds=60)
    assert transaction(is_replica_used)(actor) is False


def test_replica_that_lags_is_not_used_until_it_has_caught_up(
    actor: Actor,
    servers: tuple[Logged, Logged],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    process.wait_until(lambda: is_replica_used(actor), "the replica is used", seconds=60)
    servers[1].execute("STOP SLAVE SQL_THREAD")
    process.wait_until(lambda: not is_replica_used(actor), "the primary is used", seconds=120)
    assert "seconds behind" in caplog.text
    servers[1].execute("START SLAVE SQL_THREAD")
    process.wait_until(lambda: is_replica_used(actor), "the replica is used again", seconds=60)
    # This process is still ahead of a clock that was set back.
    ahead = clock.now() + timedelta(hours=1)
    monkeypatch.setattr(clock, "now", lambda: ahead)
    monkeypatch.setattr(replica, "replica", replica.Replica())
    assert is_replica_used(actor)
    # Its last heartbeat is from before the clock was set back.
    earlier = clock.measured_now() - timedelta(hours=1)
    monkeypatch.setattr(clock, "measured_now", lambda: earlier)
    monkeypatch.setattr(replica, "replica", replica.Replica())
    assert not is_replica_used(actor)


def test_replica_that_is_away_costs_no_answer(actor: Actor, servers: tuple[Logged, Logged]) -> None:
    process.wait_until(lambda: is_replica_used(actor), "the replica is used", seconds=60)
    servers[1].shut_down()
    try:
        assert not is_replica_used(actor)
        usage.get_traffic(actor, hours=24)
    finally:
        servers[1].start(240)
    process.wait_until(lambda: is_replica_used(actor), "the replica is used again", seconds=60)
