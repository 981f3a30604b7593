"""Lockout: the wait begins after the allowed failures, doubles, and is limited."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.rules.sign_in.passwords import Lockout
from tests.support.cases import each

NOW = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
LOCKOUT = Lockout(3, timedelta(minutes=15), timedelta(seconds=60), timedelta(seconds=300))


@each(
    ("failures", "seconds"), [(0, 0), (2, 0), (3, 60), (4, 120), (5, 240), (6, 300), (50, 300), (10_000, 300)]
)
def test_wait_doubles_up_to_maximum(failures, seconds):
    assert LOCKOUT.seconds_to_wait(failures, NOW if failures else None, NOW) == seconds


def test_wait_starts_at_last_failure_and_is_rounded_up():
    assert LOCKOUT.seconds_to_wait(3, NOW, NOW + timedelta(seconds=59.2)) == 1
    assert LOCKOUT.seconds_to_wait(3, NOW, NOW + timedelta(seconds=60)) == 0


def test_maximum_below_first_wait_does_not_shorten_it():
    assert (
        Lockout(3, timedelta(minutes=15), timedelta(seconds=60), timedelta(seconds=5)).seconds_to_wait(
            9, NOW, NOW
        )
        == 60
    )


def test_attempts_left_count_down_to_zero():
    assert [LOCKOUT.attempts_left(failures) for failures in range(5)] == [3, 2, 1, 0, 0]
