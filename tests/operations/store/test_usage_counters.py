"""Counters: every fact is counted once, whatever happens to the database; a crash loses only the last seconds."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from app import config, create_app
from app.operations.store import clock, usage_counters
from app.operations.store.usage_counters import BATCH, FAILED, NONE, REQUESTS, TOKENS, USERS, UsageCounters
from app.rules.errors import Unavailable
from app.rules.identifiers import new_id
from tests.support.applications import BASE_URL, environment
from tests.support.databases import Database, MariaDBDatabase
from tests.support.proxy import LosingProxy
from tests.support.threads import at_once

ACME, OTHER = "acme0001", "other001"
CLIENT, SECRET, USER = new_id(), new_id(), new_id()
ISSUED = ((REQUESTS, "token:succeeded"), (TOKENS, "client_credentials"))
ONE_TOKEN = (ISSUED, CLIENT, SECRET)


@pytest.fixture
def counters() -> UsageCounters:
    return UsageCounters()


def rows(database: Database) -> list[tuple[Any, ...]]:
    columns = "organization_id, client_id, span, metric, detail, subject_id, count"
    found = database.query(f"SELECT {columns} FROM usage_counters")
    return sorted((*(bytes(value) for value in row[:6]), int(row[6])) for row in found)


def total(database: Database, metric: bytes, span: bytes) -> int:
    """Return the sum of the organizations' own counters."""
    return sum(row[-1] for row in rows(database) if row[1:4] == (NONE.bytes, span, metric))


def tokens(database: Database) -> int:
    return total(database, b"tokens", b"hour")


def test_token_is_counted_by_hour_and_day_for_client_and_organization(
    context: Flask, counters: UsageCounters, database: Database
) -> None:
    counters.add(ACME, *ONE_TOKEN)
    counters.add(ACME, *ONE_TOKEN)
    assert counters.flush() == 8
    everybody, nothing = NONE.bytes, NONE.bytes
    expected = {
        (ACME.encode(), client, span, metric, detail, subject, 2)
        for span in (b"hour", b"day")
        for client, metric, detail, subject in (
            (CLIENT.bytes, b"tokens", b"client_credentials", nothing),
            (CLIENT.bytes, b"requests", b"token:succeeded", SECRET.bytes),
            (everybody, b"tokens", b"client_credentials", nothing),
            (everybody, b"requests", b"token:succeeded", nothing),
        )
    }
    assert set(rows(database)) == expected


def test_user_is_counted_once_an_hour_and_not_by_day(
    context: Flask, counters: UsageCounters, database: Database
) -> None:
    counters.add(ACME, ((USERS, ""),), None, USER)
    counters.flush()
    assert rows(database) == [(ACME.encode(), NONE.bytes, b"hour", b"users", b"", USER.bytes, 1)]


def test_counts_begin_at_the_hour_and_day_of_utc(
    context: Flask, counters: UsageCounters, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 11, 23, 23, 59, 59, 999_999, UTC)
    monkeypatch.setattr(clock, "now", lambda: now)
    counters.add(ACME, ((FAILED, "secret_expired"),), CLIENT)
    counters.flush()
    found = database.query("SELECT DISTINCT span, starts_at FROM usage_counters")
    starts = {bytes(span): str(start)[:19] for span, start in found}
    assert starts == {b"hour": "2026-11-23 23:00:00", b"day": "2026-11-23 00:00:00"}


def test_idle_process_executes_nothing(
    context: Flask, counters: UsageCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_counters, "_write", lambda *_: pytest.fail("an idle process wrote"))
    assert counters.flush() == 0


def test_simultaneous_flushes_of_many_processes_add_up(app: Flask, database: Database) -> None:
    """Workers share rows: each adds to what the others wrote, and none deadlocks."""
    workers, rounds, clients = 6, 4, [new_id() for _ in range(20)]

    def work(recorder: UsageCounters, order: int) -> None:
        for _ in range(rounds):
            for client in clients[order:] + clients[:order]:
                recorder.add(ACME, ISSUED, client, SECRET)
                recorder.add(OTHER, ISSUED, client, SECRET)
            recorder.flush()

    recorders = [UsageCounters() for _ in range(workers)]
    at_once(app, [lambda one=one, n=n: work(one, n) for n, one in enumerate(recorders)])  # type: ignore[misc]
    assert tokens(database) == workers * rounds * len(clients) * 2
    assert total(database, b"requests", b"day") == tokens(database)


def test_simultaneous_additions_are_all_counted(
    app: Flask, counters: UsageCounters, database: Database
) -> None:
    def work() -> None:
        for number in range(2000):
            counters.add(ACME, *ONE_TOKEN)
            if number % 400 == 0:
                counters.flush()

    at_once(app, [work] * 4)
    with app.app_context():
        counters.flush()
    assert tokens(database) == 8000


def test_counts_outlast_an_unavailable_database(
    context: Flask, counters: UsageCounters, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = usage_counters._write

    def refuse(*_: Any) -> None:
        raise Unavailable

    monkeypatch.setattr(usage_counters, "_write", refuse)
    for _ in range(3):
        counters.add(ACME, *ONE_TOKEN)
        with pytest.raises(Unavailable):
            counters.flush()
    assert rows(database) == []
    monkeypatch.setattr(usage_counters, "_write", write)
    counters.flush()
    assert tokens(database) == 3


def test_many_counters_are_written_in_batches(
    context: Flask, counters: UsageCounters, database: Database
) -> None:
    clients = BATCH // 2
    for _ in range(clients):
        counters.add(ACME, ISSUED, new_id(), SECRET)
    assert counters.flush() == 4 * clients + 4 > BATCH
    assert tokens(database) == clients


def test_memory_is_bounded_and_the_loss_is_logged(
    context: Flask,
    counters: UsageCounters,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is counted already goes on; new details are dropped, with one line in the log."""
    monkeypatch.setattr(usage_counters, "MAX_FACTS", 10)
    for number in range(100):
        counters.add(ACME, ((TOKENS, "client_credentials"),), UUID(int=number % 20 + 1))
    with caplog.at_level(logging.WARNING):
        counters.flush()
    assert tokens(database) == 50
    [line] = [record.getMessage() for record in caplog.records if record.name == "gatehouse.usage"]
    assert line.startswith("50 events were not counted")


def test_forked_process_does_not_write_what_its_parent_counted(app: Flask, database: Database) -> None:
    with app.app_context():
        usage_counters.counters.add(ACME, *ONE_TOKEN)
        child = os.fork()
        if child == 0:
            os._exit(len(usage_counters.counters._facts))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        usage_counters.counters.flush()
    assert tokens(database) == 1


@pytest.mark.mariadb
@pytest.mark.parametrize("after_it_took_effect", [True, False], ids=["committed", "not committed"])
def test_batch_is_counted_once_after_lost_reply(
    app: Flask, counters: UsageCounters, database: MariaDBDatabase, instance: Any, after_it_took_effect: bool
) -> None:
    proxy = LosingProxy(database.server.port)
    settings = environment(database, instance, BASE_URL)
    settings["DATABASE_URL"] = database.server.tcp_url(database.name).replace(
        str(database.server.port), str(proxy.port)
    )
    with create_app(config.load(settings)).app_context():
        counters.add(ACME, *ONE_TOKEN)
        counters.flush()
        counters.add(ACME, *ONE_TOKEN)
        proxy.lose_next(b"COMMIT", after_it_took_effect=after_it_took_effect)
        while proxy.lost == 0 or counters._batch is not None:
            try:
                counters.flush()
            except Unavailable:
                continue
    assert tokens(database) == 2
    proxy.close()
