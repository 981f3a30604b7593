"""Storage of failed requests: opt-in, bounded, and without effect on the response."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from app.operations.audit import failed_requests
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.web.failed_requests import FailedRequests
from tests.factories import basic_header
from tests.oauth.conftest import Flow
from tests.oauth.failure_log import kept, only
from tests.support.databases import Database


def test_organization_can_disable_the_log(flow: Flow) -> None:
    organization = flow.make.organization(settings={"audit": {"failed_requests": False}})
    client = flow.make.client(organization)
    flow.token(basic_header(client.client_id, "x"), grant_type="client_credentials")
    other = Flow(flow.app, flow.http, flow.make, client, flow.user)
    assert kept(other) == []


def test_retention_setting_applies(flow: Flow, database: Database) -> None:
    organization = flow.make.organization(settings={"audit": {"log_retention_days": 3}})
    client = flow.make.client(organization)
    flow.token(basic_header(client.client_id, "x"), grant_type="client_credentials")
    waiting: FailedRequests = flow.app.extensions["failed_requests"]
    with flow.app.app_context():
        waiting.write_waiting()
    [(at, ends)] = database.query("SELECT at, expires_at FROM failed_requests")
    times = [datetime.fromisoformat(str(value)) for value in (at, ends)]
    assert times[1] - times[0] == timedelta(days=3)


def test_flood_of_one_cause_is_limited_and_leaves_room_for_others(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.web.failed_requests.MAX_PER_CAUSE_PER_HOUR", 3)
    for _ in range(6):
        flow.redeem("x")
    flow.authorize(redirect_uri="https://evil.example")
    assert [entry.cause for entry in kept(flow)] == ["redirect_uri_not_registered", *["code_unknown"] * 3]


def test_storage_failure_of_one_organization_does_not_affect_others(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = flow.make.client(flow.make.organization())
    write = failed_requests._write

    def broken(actor: Actor, *rows: Any) -> None:
        if actor.organization_id == other.organization.id:
            raise Unavailable
        write(actor, *rows)

    monkeypatch.setattr(failed_requests, "_write", broken)
    flow.token(basic_header(other.client_id, "x"), grant_type="client_credentials")
    flow.redeem("x")
    assert only(flow).cause == "code_unknown"


def test_database_outage_does_not_change_the_response(
    flow: Flow, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries are written after the response by another thread, so the response neither waits nor fails."""

    def broken(*_: object) -> int:
        raise RuntimeError("away")

    monkeypatch.setattr("app.web.failed_requests.store_rejected_requests", broken)
    assert flow.redeem("x").status_code == 400
