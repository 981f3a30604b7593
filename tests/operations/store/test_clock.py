"""The database's clock decides expiry, even on a worker whose own clock is wrong."""

from __future__ import annotations

import datetime as standard
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from app.operations.store import clock
from tests.factories import Factory
from tests.support.databases import Database


def skewed(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Shift the clock of this process, like that of a worker that just started."""

    class Skewed(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return standard.datetime.now(tz) + by

    monkeypatch.setattr(clock, "datetime", Skewed)
    monkeypatch.setattr(clock, "_measured_at", None)
    monkeypatch.setattr(clock, "_offset", timedelta())


OFF = pytest.mark.parametrize("minutes", [-5, 5, -600, 600])


def test_now_is_aware_and_in_utc(context: Flask) -> None:
    assert clock.now().utcoffset() == timedelta()
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)


@pytest.mark.mariadb
@OFF
def test_worker_with_wrong_clock_returns_database_time(context: Flask, monkeypatch, minutes: int) -> None:
    """CK-1. SQLite's clock is the process's own."""
    skewed(monkeypatch, timedelta(minutes=minutes))
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=2)
    assert abs(clock.offset() + timedelta(minutes=minutes)) < timedelta(seconds=2)


@pytest.mark.mariadb
@OFF
def test_worker_with_wrong_clock_accepts_and_rejects_the_same_tokens(
    app: Flask, make: Factory, database: Database, monkeypatch, minutes: int
) -> None:
    """CK-1: a valid token is accepted there, and one that expired a second ago is rejected."""
    machine = make.machine(make.organization(), "reports:read")
    http = app.test_client()
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    token = {"token": answer.get_json()["access_token"]}
    skewed(monkeypatch, timedelta(minutes=minutes))
    assert http.post("/oauth/introspect", data=token, headers=machine.basic).get_json()["active"] is True
    database.query("UPDATE access_tokens SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    assert http.post("/oauth/introspect", data=token, headers=machine.basic).get_json()["active"] is False
    fresh = http.post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic
    ).get_json()
    [(seconds,)] = database.query(
        "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), MAX(expires_at)) FROM access_tokens"
    )
    assert abs(seconds - fresh["expires_in"]) <= 2


@pytest.mark.mariadb
def test_offset_is_measured_periodically(context: Flask, monkeypatch) -> None:
    measured: list[int] = []
    real = clock._measure
    monkeypatch.setattr(clock, "_measured_at", None)
    monkeypatch.setattr(clock, "_measure", lambda: (measured.append(1), real())[1])
    for _ in range(50):
        clock.now()
    assert len(measured) == 1
    monkeypatch.setattr(clock, "_measured_at", clock._measured_at - clock.MEASURE_INTERVAL_SECONDS - 1)
    clock.now()
    assert len(measured) == 2
