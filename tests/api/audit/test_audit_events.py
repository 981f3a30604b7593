"""The audit log: content, permissions, filters, export, verification (AU-1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import insert, update
from sqlalchemy.exc import OperationalError

from app.extensions import db
from app.models.audit import AuditEvent
from app.operations.audit import audit_events
from app.operations.audit.chain import seal_pending_events
from app.operations.audit.chain_verification import verify_audit_log
from app.operations.clients.clients import update_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.maintenance.exported_events import read_export
from app.operations.organizations.organizations import update_organization
from app.operations.store import audit, clock
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.rules.identifiers import new_id, new_public_id, public_id
from app.web.downloads import INCOMPLETE
from tests.factories import Factory, MadeClient, bearer_header


class Log:
    """The log of Acme, with a token that can read it."""

    def __init__(self, app: Flask, http: FlaskClient, make: Factory) -> None:
        self.app, self.http, self.make = app, http, make
        self.organization: OrganizationSnapshot = make.organization(name="Acme")
        self.user = make.user(self.organization, role="admin")
        self.actor: Actor = make.actor(self.organization, user=self.user)
        self.client: MadeClient = make.client(self.organization, by=self.actor)
        self.headers = bearer_header(make.bearer(self.organization, "audit:read"))

    def events(self, **query: str) -> list[dict[str, Any]]:
        answer = self.http.get("/audit-events", query_string={"limit": "100"} | query, headers=self.headers)
        assert answer.status_code == 200, answer.text
        data: list[dict[str, Any]] = answer.get_json()["data"]
        return data

    def actions(self, **query: str) -> list[str]:
        return [event["action"] for event in self.events(**query)]

    def lines(self, **query: str) -> list[dict[str, Any]]:
        answer = self.http.get("/audit-events/export", query_string=query, headers=self.headers)
        assert answer.status_code == 200 and answer.mimetype == "application/x-ndjson", answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
def log(app: Flask, http: FlaskClient, make: Factory) -> Log:
    return Log(app, http, make)


def test_event_contains_actor_action_target_time_and_ip_address(log: Log) -> None:
    """AU-1: a change of a client is one event, with before and after."""
    with log.app.app_context():
        update_client(log.actor, log.client.client_id, {"name": "Meadow"})
    [event] = log.events(action="client.updated")
    assert event["actor"] == {
        "type": "user",
        "id": log.user.public_id,
        "label": log.user.email,
        "organization_id": log.organization.slug,
    }
    assert event["target"] == {"type": "client", "id": log.client.client_id}
    assert (event["before"]["name"], event["after"]["name"]) == ("Orchard", "Meadow")
    assert event["ip_address"] == "192.0.2.7" and event["request_id"].startswith("req_")
    one = log.http.get(f"/audit-events/{event['id']}", headers=log.headers)
    assert one.get_json()["data"] == event


def test_action_filter_matches_action_or_its_beginning(log: Log) -> None:
    with log.app.app_context():
        update_client(log.actor, log.client.client_id, {"name": "Meadow"})
    # The machine client that reads the log was registered after Orchard.
    assert sorted(log.actions(action="client")) == [
        "client.registered",
        "client.registered",
        "client.updated",
    ]
    assert log.actions(action="client.updated") == ["client.updated"]
    assert log.actions(action="clie") == log.actions(action="client.update") == []


def test_filters_can_be_combined(log: Log) -> None:
    request_id = new_public_id("req")
    with log.app.app_context():
        actor = Actor(
            "user",
            log.organization.id,
            log.organization.id,
            user_id=new_id(),
            ip_address="203.0.113.7",
            request_id=request_id,
        )
        written = transaction(audit.record)
        written(actor, "test.written", target_type="thing", target_id="thg_1")
        written(Actor.system(log.organization.id), "test.written", target_id="thg_2")
    assert actor.user_id is not None
    mine = {
        "actor": public_id("usr", actor.user_id),
        "target": "thg_1",
        "ip_address": "203.0.113.7",
        "request_id": request_id,
    }
    for name, value in mine.items():
        assert [event["target"]["id"] for event in log.events(**{name: value})] == ["thg_1"], name
    assert len(log.events(action="test", **mine)) == 1
    assert log.events(action="other", **mine) == []
    assert log.events(request_id=new_public_id("req")) == log.events(request_id="x") == []


def test_since_is_inclusive_and_until_is_exclusive(log: Log) -> None:
    newest, *_ = every = log.events()
    time = newest["occurred_at"]
    assert log.events(since=time) == [event for event in every if event["occurred_at"] >= time]
    assert log.events(until=time) == [event for event in every if event["occurred_at"] < time]
    assert log.events(since=time, until=time) == []


@pytest.mark.parametrize(
    ("query", "field"),
    [({"since": "yesterday"}, "since"), ({"until": "2026-11-21"}, "until"), ({"sinc": "x"}, "sinc")],
)
def test_invalid_filter_is_rejected(log: Log, query: dict[str, str], field: str) -> None:
    for path in ("/audit-events", "/audit-events/export"):
        answer = log.http.get(path, query_string=query, headers=log.headers)
        assert answer.status_code == 400, answer.text
        assert answer.get_json()["errors"][0]["field"] == field


def test_pages_are_complete_and_do_not_overlap(log: Log) -> None:
    every = [event["id"] for event in log.events()]
    found, query = [], {"limit": "2"}
    while True:
        answer = log.http.get("/audit-events", query_string=query, headers=log.headers).get_json()
        found += [event["id"] for event in answer["data"]]
        if answer["meta"]["next_cursor"] is None:
            break
        query["cursor"] = answer["meta"]["next_cursor"]
    assert found == every and len(every) > 3


def test_event_of_root_names_its_organization(log: Log) -> None:
    with log.app.app_context():
        root = log.make.actor(log.make.root())
        update_organization(root, log.organization.slug, {"name": "Acme Two"})
    [event] = log.events(action="organization.updated")
    assert event["actor"]["organization_id"] == "root"
    assert event["organization_id"] == log.organization.slug
    assert log.events(action="instance") == []


def test_export_contains_matching_events_oldest_first(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_events, "EXPORT_BATCH", 2)
    assert log.lines() == log.events()[::-1]
    assert log.lines(action="client.registered") == log.events(action="client.registered")[::-1]


def test_export_says_when_its_end_could_not_be_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends such a response like any other, and "maintenance restore" relies on every event."""
    real, batches = audit_events.read_log, iter(range(2))

    def read_twice(*given: Any, **named: Any) -> Any:
        if next(batches, None) is None:
            raise OperationalError("SELECT", None, Exception("gone"))
        return real(*given, **named)

    monkeypatch.setattr(audit_events, "EXPORT_BATCH", 1)
    monkeypatch.setattr(audit_events, "read_log", read_twice)
    answer = log.http.get("/audit-events/export", headers=log.headers)
    sent: list[str] = []
    with pytest.raises(OperationalError):
        sent.extend(piece.decode() for piece in answer.iter_encoded())
    lines = "".join(sent).splitlines()
    assert lines[-1] == INCOMPLETE
    with pytest.raises(InvalidInput):
        list(read_export(lines))


def test_export_is_streamed_in_batches(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting a million events needs the memory of one batch."""
    monkeypatch.setattr(audit_events, "EXPORT_BATCH", 10)
    batches = []
    real = audit_events.read_log
    monkeypatch.setattr(
        audit_events, "read_log", lambda *given, **named: batches.append(1) or real(*given, **named)
    )
    with log.app.app_context():
        now = clock.now()
        row = {"organization_id": log.organization.id, "at": now, "action": "test.written"}
        row |= {"actor_kind": "system", "actor_label": "", "actor_organization": log.organization.id}
        db.session.execute(insert(AuditEvent), [{**row, "id": new_id()} for _ in range(100)])
        db.session.commit()
        records = audit_events.export_audit_events(log.actor, filters={"action": "test"})
        assert batches == []
        next(records)
        assert len(batches) == 1
        assert sum(1 for _ in records) == 99
        assert len(batches) == 11


def test_audit_log_without_permission_is_forbidden(log: Log) -> None:
    headers = bearer_header(log.make.bearer(log.organization, "clients:read"))
    for path in ("/audit-events", "/audit-events/export", f"/audit-events/{log.events()[0]['id']}"):
        answer = log.http.get(path, headers=headers)
        assert answer.status_code == 403 and answer.get_json()["required_scope"] == "audit:read", path


def test_au4_log_is_verified_in_several_requests(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_audit_log, "__kwdefaults__", {"after": 0, "limit": 2})
    with log.app.app_context():
        seal_pending_events(Actor.system("", "tests"), holder="tests")
    query: dict[str, Any] = {}
    checked = 0
    while True:
        answer = log.http.get("/audit-events/verification", query_string=query, headers=log.headers)
        assert answer.status_code == 200, answer.text
        found = answer.get_json()
        assert found["data"]["intact"] and found["data"]["problems"] == []
        checked += found["data"]["checked"]
        if found["meta"]["next_position"] is None:
            break
        query["after_position"] = found["meta"]["next_position"]
    assert checked == found["data"]["total"] == len(log.events())


def test_verification_reports_id_of_changed_event(log: Log) -> None:
    with log.app.app_context():
        seal_pending_events(Actor.system("", "tests"), holder="tests")
        db.session.execute(
            update(AuditEvent).where(AuditEvent.action == "client.registered").values(before={})
        )
        db.session.commit()
    found = log.http.get("/audit-events/verification", headers=log.headers).get_json()["data"]
    assert not found["intact"]
    changed = {event["id"] for event in log.events(action="client.registered")}
    assert {problem["event_id"] for problem in found["problems"]} == changed
    assert {problem["kind"] for problem in found["problems"]} == {"changed"}


@pytest.mark.parametrize("position", ["-1", "x", "1.5", "1" * 13])
def test_position_must_be_a_number(log: Log, position: str) -> None:
    query = {"after_position": position}
    answer = log.http.get("/audit-events/verification", query_string=query, headers=log.headers)
    assert answer.status_code == 400
