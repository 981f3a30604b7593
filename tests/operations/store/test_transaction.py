"""Transactions of operations: atomicity, retries, callbacks and lost COMMIT replies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text

from app.database import turn_at_pool, turn_to_write
from app.extensions import db
from app.operations.store import audit
from app.operations.store import transactions as module
from app.operations.store.transactions import (
    OutdatedRead,
    on_commit,
    on_commit_or_now,
    read,
    transaction,
    transaction_part,
)
from app.rules.errors import Conflict, Unavailable
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.process import wait_until


class Counters:
    """Rows of numbers that the tested transactions and a second database session change."""

    def __init__(self, database: Database) -> None:
        self.database = database
        database.query("CREATE TABLE counters (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
        database.query(
            "INSERT INTO counters VALUES " + ", ".join(f"({number}, 0)" for number in range(1, 41))
        )

    def add(self, number: int) -> None:
        """Increment the counter in the current transaction."""
        db.session.execute(text("UPDATE counters SET n = n + 1 WHERE id = :id"), {"id": number})

    def value(self, number: int) -> int:
        """Return the committed value."""
        return int(self.database.query(f"SELECT n FROM counters WHERE id = {number}")[0][0])

    @contextlib.contextmanager
    def other_session(self) -> Iterator[Any]:
        """Open a cursor of a second session whose transaction is rolled back unless it is committed."""
        with contextlib.closing(self.database.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            yield cursor


@pytest.fixture
def counters(context: Flask, database: Database) -> Iterator[Counters]:
    """Forty counters with the value 0."""
    database.query("DROP TABLE IF EXISTS counters")
    yield Counters(database)
    db.session.remove()
    database.query("DROP TABLE counters")


def test_transaction_commits_on_return_and_rolls_back_on_exception(counters: Counters) -> None:
    @transaction
    def unit(fails: bool) -> str:
        counters.add(1)
        if fails:
            raise Conflict("no")
        return "done"

    assert unit(False) == "done"
    with pytest.raises(Conflict):
        unit(True)
    assert counters.value(1) == 1


@pytest.mark.parametrize("refusal", [None, Conflict("busy")])
def test_outdated_read_repeats_the_transaction_until_it_is_refused(
    counters: Counters, refusal: Conflict | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_OUTDATED_READS", 4)
    runs: list[int] = []

    @transaction
    def unit(outdated: int) -> None:
        counters.add(1)
        runs.append(1)
        if len(runs) <= outdated:
            raise OutdatedRead(refusal)

    unit(2)
    assert (len(runs), counters.value(1)) == (3, 1)
    with pytest.raises(Conflict if refusal else Unavailable):
        unit(100)
    assert (len(runs), counters.value(1)) == (3 + 4, 1)


def test_failed_part_ends_transaction_unless_a_savepoint_surrounds_it(counters: Counters) -> None:
    @transaction_part
    def part(number: int) -> None:
        counters.add(number)
        raise Conflict("no")

    @transaction
    def goes_on_after(act: Any) -> None:
        counters.add(1)
        with contextlib.suppress(Conflict):
            act(2)

    with pytest.raises(Conflict):
        part(2)
    with pytest.raises(RuntimeError, match="a part of this transaction failed"):
        goes_on_after(part)
    assert (counters.value(1), counters.value(2)) == (0, 0)
    goes_on_after(transaction(part))
    assert (counters.value(1), counters.value(2)) == (1, 0)


def test_savepoint_covers_compiled_statements(counters: Counters, make: Factory, database: Database) -> None:
    actor = make.system(make.organization())

    @transaction
    def inner() -> None:
        audit.record(actor, "test.inner")
        raise Conflict("no")

    @transaction
    def outer() -> None:
        counters.add(1)
        with contextlib.suppress(Conflict):
            inner()

    before = database.query("SELECT COUNT(*) FROM audit_events")
    outer()
    assert counters.value(1) == 1
    assert database.query("SELECT COUNT(*) FROM audit_events") == before


def test_commit_callbacks_run_only_after_commit(counters: Counters) -> None:
    seen: list[int] = []

    @transaction
    def unit(fails: bool) -> None:
        counters.add(1)
        on_commit(lambda: seen.append(counters.value(1)))
        if fails:
            raise Conflict("no")

    unit(False)
    with pytest.raises(Conflict):
        unit(True)
    assert seen == [1], "called once, after the commit"
    on_commit_or_now(lambda: seen.append(9))
    assert seen == [1, 9], "outside of a transaction it is called immediately"


def test_inner_transaction_is_a_savepoint(counters: Counters) -> None:
    seen: list[str] = []

    @transaction
    def inner(fails: bool) -> None:
        counters.add(2)
        on_commit(lambda: seen.append("inner"))
        if fails:
            raise Conflict("no")

    @transaction
    def outer(fails: bool) -> None:
        counters.add(1)
        on_commit(lambda: seen.append("outer"))
        with contextlib.suppress(Conflict):
            inner(fails)

    outer(False)
    assert (counters.value(1), counters.value(2), seen) == (1, 1, ["outer", "inner"])
    outer(True)
    assert (counters.value(1), counters.value(2)) == (2, 1)
    assert seen == ["outer", "inner", "outer"], "a rolled back savepoint runs no callbacks"


def test_rolled_back_savepoint_does_not_verify_the_commit(make: Factory, database: Database) -> None:
    """Otherwise a COMMIT whose reply was lost would count as failed, and everything would be done twice."""
    organization = make.organization()
    actor = make.system(organization)

    @transaction
    def inner() -> None:
        audit.record(actor, "inner.done")
        raise Conflict("no")

    @transaction
    def outer() -> bool:
        audit.record(actor, "outer.done")
        with contextlib.suppress(Conflict):
            inner()
        db.session.flush()
        make_query = module.current_unit_of_work().make_commit_query
        assert make_query is not None
        return db.session.execute(make_query()).first() is not None

    with make.app.app_context():
        assert outer()


def test_two_equal_events_of_one_transaction_are_two_rows(make: Factory, database: Database) -> None:
    organization = make.organization()
    before = database.count("audit_events")

    @transaction
    def unit() -> None:
        for _ in range(2):
            audit.record(make.system(organization), "thing.done", target_type="thing", target_id="x")

    with make.app.app_context():
        unit()
    assert database.count("audit_events") == before + 2


def test_transaction_inside_read_raises(counters: Counters) -> None:
    @read
    def outer() -> None:
        transaction(lambda: None)()

    with pytest.raises(RuntimeError):
        outer()


def test_read_sees_only_committed_changes(counters: Counters) -> None:
    @read
    def unit() -> int:
        return int(db.session.execute(text("SELECT n FROM counters WHERE id = 1")).scalar_one())

    assert unit() == 0
    with counters.other_session() as other:
        other.execute("UPDATE counters SET n = 5 WHERE id = 1")
        assert unit() == 0, "READ COMMITTED"
        other.execute("COMMIT")
    assert unit() == 5


def test_stable_value_is_the_same_in_all_attempts(counters: Counters, monkeypatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.0)
    drawn: list[object] = []

    @transaction
    def unit() -> None:
        drawn.append(module.current_unit_of_work().stable_value("token", object))
        if len(drawn) < 3:
            raise locked()

    unit()
    assert len(drawn) == 3 and len(set(map(id, drawn))) == 1


def locked() -> Exception:
    """Return the error that SQLAlchemy raises if SQLite's file is locked."""
    import sqlite3

    from sqlalchemy.exc import OperationalError

    return OperationalError("UPDATE", {}, sqlite3.OperationalError("database is locked"))


def test_transaction_gives_up_after_max_attempts(counters: Counters, monkeypatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.0)
    attempts: list[int] = []

    @transaction
    def unit() -> None:
        attempts.append(1)
        raise locked()

    with pytest.raises(Unavailable) as refused:
        unit()
    assert len(attempts) == module.MAX_ATTEMPTS
    assert refused.value.retry_after > 0


@pytest.mark.mariadb
def test_deadlock_is_retried(counters: Counters, database: Database) -> None:
    """Error 1213 between two real sessions. SQLite has one writer and no deadlocks."""
    attempts: list[int] = []
    followed: list[int] = []
    with counters.other_session() as other:

        def finish() -> None:
            other.execute("UPDATE counters SET n = n + 1 WHERE id = 1")
            other.execute("COMMIT")

        rival = threading.Thread(target=finish)

        @transaction
        def unit() -> None:
            attempts.append(1)
            on_commit(lambda: followed.append(1))
            counters.add(1)
            if len(attempts) == 1:
                # The rival changed more rows, so that InnoDB takes us for the victim.
                other.execute("UPDATE counters SET n = n + 1 WHERE id BETWEEN 2 AND 40")
                rival.start()
                waiting = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
                # InnoDB makes this table afresh only for who left it alone for a tenth of a second.
                wait_until(lambda: database.query(waiting), "the rival waits for our row", pause=0.15)
            counters.add(2)

        unit()
        rival.join(10)
    assert len(attempts) == 2
    assert (counters.value(1), counters.value(2)) == (2, 2), "each change was made once"
    assert followed == [1]


@pytest.mark.slow
def test_busy_database_is_a_503_in_time(counters: Counters, monkeypatch) -> None:
    """P5: within the deadline, and nothing was written."""
    monkeypatch.setattr(module, "DEADLINE_SECONDS", 0.3)
    with counters.other_session() as other:
        other.execute("UPDATE counters SET n = n + 1 WHERE id = 2")

        @transaction
        def unit() -> None:
            counters.add(1)
            counters.add(2)

        with pytest.raises(Unavailable):
            unit()
        other.execute("ROLLBACK")
    assert (counters.value(1), counters.value(2)) == (0, 0)
    unit()
    assert (counters.value(1), counters.value(2)) == (1, 1)


def test_transactions_get_their_connection_in_the_order_of_arrival(
    context: Flask, counters: Counters, monkeypatch
) -> None:
    """A thread that begins its next transaction at once must not overtake those that wait."""
    order: list[int] = []

    def arrive(number: int) -> None:
        with context.app_context():
            for _ in range(3):
                read(lambda: order.append(number))()

    threads = [threading.Thread(target=arrive, args=[number]) for number in range(20)]
    monkeypatch.setattr("app.database.POOL_WAIT_SECONDS", 60)
    turns = context.extensions["gatehouse turns"]
    with contextlib.ExitStack() as others:
        for _ in range(9):
            others.enter_context(turn_at_pool())
        with turn_at_pool():
            for thread in threads:
                thread.start()
            wait_until(lambda: turns.waiting == len(threads), "every thread waits")
            monkeypatch.setattr("app.database.POOL_WAIT_SECONDS", 0.05)
            with pytest.raises(Unavailable):
                read(lambda: None)()
            monkeypatch.setattr("app.database.POOL_WAIT_SECONDS", 60)
        for thread in threads:
            thread.join()
    assert sorted(order[:20]) == list(range(20))


def test_sqlite_is_written_in_the_order_of_arrival(
    context: Flask, database: Database, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself lets whoever comes at the right moment overtake those that wait."""
    if database.engine != "sqlite":
        assert context.extensions["gatehouse writers"] is None
        return
    order: list[int] = []

    def write(number: int) -> None:
        with context.app_context():
            for _ in range(3):
                transaction(lambda: (counters.add(1), order.append(number)))()

    threads = [threading.Thread(target=write, args=[number]) for number in range(20)]
    monkeypatch.setattr("app.database.POOL_WAIT_SECONDS", 60)
    with turn_to_write():
        for thread in threads:
            thread.start()
        writers = context.extensions["gatehouse writers"]
        wait_until(lambda: writers.waiting == len(threads), "every thread waits")
        read(lambda: counters.value(1))()
    for thread in threads:
        thread.join()
    assert sorted(order[:20]) == list(range(20))
    assert counters.value(1) == 60
