"""Rows that others hold: waited for twice, then the unit is given up whole. SQLite has no such wait."""

from __future__ import annotations

import time

import pytest

from app.database import LOCK_WAIT_SECONDS
from app.operations.store.transactions import transaction
from app.rules.errors import Unavailable
from tests.operations.store.test_transaction import Counters, counters

__all__ = ["counters"]


@pytest.mark.mariadb
def test_a_lock_that_was_waited_for_too_long_rolls_back_the_whole_unit(counters: Counters) -> None:
    """1205 undoes one statement alone: committing after it would keep half a unit. SQLite has no such error."""
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
def test_a_lock_that_nobody_gives_up_is_a_503_in_time(counters: Counters) -> None:
    """F4, F8: waited for twice, which is longer than one wait and far from the five seconds of a request."""
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
