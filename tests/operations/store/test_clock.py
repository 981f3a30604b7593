"""The database's clock decides expiry, even on a worker whose own clock is wrong or is set while it runs."""

from __future__ import annotations

import datetime as standard
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from app.operations.store import clock
from app.operations.store.clock import Difference
from tests.factories import Factory
from tests.support.databases import Database

SkewClock = Callable[[timedelta], None]


@pytest.fixture
def skew(monkeypatch: pytest.MonkeyPatch) -> SkewClock:
    """Set this machine's clock, and the time that was known before a measurement."""

    def set_clock(by: timedelta) -> None:
        class Skewed(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return standard.datetime.now(tz) + by

        monkeypatch.setattr(clock, "datetime", Skewed)

    return set_clock


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin as a process that has just started."""
    monkeypatch.setattr(clock, "_difference", None)
    monkeypatch.setattr(clock, "_measured_at", float("-inf"))


OFF = pytest.mark.parametrize("minutes", [-5, 5, -600, 600])


def test_now_is_aware_and_in_utc(context: Flask) -> None:
    assert clock.now().utcoffset() == timedelta()
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)


@pytest.mark.mariadb
@OFF
def test_worker_with_wrong_clock_returns_database_time(context: Flask, skew: SkewClock, minutes: int) -> None:
    """CK-1. SQLite's clock is the machine's own."""
    skew(timedelta(minutes=minutes))
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=20)
    assert abs(clock.offset() + timedelta(minutes=minutes)) < timedelta(seconds=20)


@OFF
def test_step_of_the_machines_clock_is_not_noticed(context: Flask, skew: SkewClock, minutes: int) -> None:
    clock.now()
    skew(timedelta(minutes=minutes))
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=20)


@pytest.mark.mariadb
@OFF
def test_worker_with_wrong_clock_accepts_and_rejects_the_same_tokens(
    app: Flask, make: Factory, database: Database, skew: SkewClock, minutes: int
) -> None:
    """CK-1: a valid token is accepted there, and one that expired a second ago is rejected."""
    machine = make.machine(make.organization(), "reports:read")
    http = app.test_client()
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    token = {"token": answer.get_json()["access_token"]}
    skew(timedelta(minutes=minutes))
    assert http.post("/oauth/introspect", data=token, headers=machine.basic).get_json()["active"] is True
    database.query("UPDATE access_tokens SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    assert http.post("/oauth/introspect", data=token, headers=machine.basic).get_json()["active"] is False
    fresh = http.post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic
    ).get_json()
    [(seconds,)] = database.query(
        "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), MAX(expires_at)) FROM access_tokens"
    )
    assert abs(seconds - fresh["expires_in"]) <= 20


def test_difference_is_measured_periodically(context: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    ask = clock._ask
    monkeypatch.setattr(clock, "_ask", lambda: (measured.append(1), ask())[1])
    for _ in range(50):
        clock.now()
    assert len(measured) == 1
    monkeypatch.setattr(clock, "_measured_at", clock._measured_at - clock.MEASURE_INTERVAL_SECONDS - 1)
    clock.now()
    assert len(measured) == 2


@pytest.mark.mariadb
def test_database_that_does_not_answer_is_not_asked_at_every_call(
    context: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(clock, "_ask", lambda: asked.append(1))
    for _ in range(50):
        assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=20)
    assert len(asked) == 1


def test_database_clock_that_went_back_is_followed_without_going_back(context: Flask) -> None:
    """A code that is 65 seconds old does not become five seconds old."""
    before = Difference(at=100.0, seconds=1000.0, error=0.001)
    after = before.adjusted_to(Difference(at=200.0, seconds=940.0, error=0.001), 200.0)
    times = [tick + after.seconds_at(tick) for tick in range(200, 3000)]
    assert times[0] == 1200.0
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 0.94
    # Twenty minutes later it is the database's time again.
    assert times[1100] > 1300 + 940 and times[1300] == 1500 + 940


def test_database_clock_that_went_ahead_is_followed_at_once() -> None:
    before = Difference(at=100.0, seconds=1000.0, error=0.001)
    assert before.adjusted_to(Difference(200.0, 1060.0, 0.001), 200.0).seconds_at(200.0) == 1060.0


def test_slow_measurement_does_not_replace_a_better_one() -> None:
    before = Difference(at=100.0, seconds=1000.0, error=0.001)
    kept = before.adjusted_to(Difference(at=110.0, seconds=1000.2, error=0.5), 110.0)
    assert kept.seconds == 1000.0 and kept.error == pytest.approx(0.006)
    # The clocks may have drifted apart, so that after a while an ordinary one is better again.
    assert kept.adjusted_to(Difference(at=150.0, seconds=1000.01, error=0.02), 150.0).seconds == 1000.01


def test_slowdown_ends_with_the_excess_and_adds_up() -> None:
    back = Difference(0.0, 1000.0, 0.0).adjusted_to(Difference(10.0, 990.0, 0.0), 10.0)
    again = back.adjusted_to(Difference(110.0, 985.0, 0.0), 110.0)
    assert back.seconds_at(110.0) == again.seconds_at(110.0) == 995.0
    assert again.seconds_at(1000.0) == 985.0


def test_clock_that_was_set_is_logged_once_and_slow_measurements_are_not(
    context: Flask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that took six seconds, as during a failover, says three seconds more or less."""
    measurements = [
        Difference(at=0.0, seconds=1000.0, error=0.001),
        Difference(at=0.0, seconds=997.1, error=3.0),
        Difference(at=0.0, seconds=997.1, error=3.0),
        Difference(at=0.0, seconds=1060.0, error=0.001),
        Difference(at=0.0, seconds=1060.0, error=0.001),
    ]
    monkeypatch.setattr(clock, "_ask", iter(measurements).__next__)
    for _ in measurements:
        clock.measure()
    assert caplog.messages == ["the database's clock was set by +60.0 seconds"]
