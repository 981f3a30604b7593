"""Locked rows: a transaction waits twice, then gives up completely. SQLite has no row locks."""

from __future__ import annotations

import time
from typing import Any

import MySQLdb
import pytest
from sqlalchemy import text

from app import database
from app.database import LOCK_WAIT_SECONDS
from app.extensions import db
from app.operations.store.transactions import transaction
from app.rules.errors import Conflict, Unavailable
from tests.operations.store.test_transaction import Counters, counters

__all__ = ["counters"]


@pytest.mark.mariadb
def test_lock_wait_timeout_rolls_back_the_whole_transaction(counters: Counters) -> None:
    """Error 1205 rolls back a single statement. Committing after it would store half of the changes."""
    attempts: list[int] = []
    with counters.other_session() as other:
        other.execute("UPDATE counters SET n = n + 1 WHERE id = 2")

        @transaction
        def unit() -> None:
            attempts.append(1)
            counters.add(1)
            if len(attempts) > 1:
                assert counters.value(1) == 0, "nothing of the first attempt was kept"
                other.execute("COMMIT")
            counters.add(2)

        unit()
    assert len(attempts) == 2
    assert (counters.value(1), counters.value(2)) == (1, 2)


@pytest.mark.mariadb
def test_lock_that_is_never_released_is_a_503_in_time(counters: Counters) -> None:
    """F4, F8: two waits are well below the five seconds of a request."""
    with counters.other_session() as other:
        other.execute("UPDATE counters SET n = n + 1 WHERE id = 2")

        @transaction
        def unit() -> None:
            counters.add(1)
            counters.add(2)

        begun = time.monotonic()
        with pytest.raises(Unavailable):
            unit()
        waited = time.monotonic() - begun
        other.execute("ROLLBACK")
    assert 2 * LOCK_WAIT_SECONDS <= waited < 4.5
    assert (counters.value(1), counters.value(2)) == (0, 0)


@pytest.mark.mariadb
def test_locks_of_a_frozen_process_are_released(counters: Counters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection stays open, because its kernel still answers."""
    monkeypatch.setattr(database, "FROZEN_SECONDS", 1)
    engine = database.engines()[0]
    engine.dispose()
    frozen = engine.connect()
    try:
        frozen.exec_driver_sql("UPDATE counters SET n = n + 1 WHERE id = 1")
        time.sleep(1.5)

        @transaction
        def unit() -> None:
            counters.add(1)

        unit()
        assert counters.value(1) == 1
    finally:
        frozen.invalidate()
        frozen.close()
        engine.dispose()


@pytest.mark.mariadb
def test_interrupted_statement_is_repeated_with_its_transaction(counters: Counters) -> None:
    """An administrator's KILL QUERY, or the server's own limit on time, ends one statement (error 1317)."""
    attempts: list[int] = []

    @transaction
    def unit() -> None:
        attempts.append(1)
        counters.add(1)
        if len(attempts) == 1:
            db.session.execute(text("KILL QUERY CONNECTION_ID()"))
        counters.add(2)

    unit()
    assert len(attempts) == 2
    assert (counters.value(1), counters.value(2)) == (1, 1)


@pytest.mark.mariadb
def test_connection_whose_rollback_was_interrupted_is_closed(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the pool it would keep its locks, and whoever got it next would commit what was to be rolled back."""
    dialect = db.engine.dialect
    rollback, calls = dialect.do_rollback, []

    def interrupt_first(connection: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise MySQLdb.OperationalError(1317, "Query execution was interrupted")
        rollback(connection)

    @transaction
    def refuse() -> None:
        counters.add(1)
        raise Conflict("no")

    @transaction
    def unit() -> None:
        counters.add(1)

    monkeypatch.setattr(dialect, "do_rollback", interrupt_first)
    with pytest.raises(Conflict):
        refuse()
    assert calls
    unit()
    assert counters.value(1) == 1
