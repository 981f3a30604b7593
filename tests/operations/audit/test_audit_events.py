"""Reading the audit log: what a filter costs in a log of a million events."""

from __future__ import annotations

from typing import Any

from flask import Flask
from sqlalchemy import event

from app.database import engines
from app.extensions import db
from app.operations.audit.audit_events import list_audit_events
from app.rules.audit.events import EVENT_TYPES
from tests.factories import Factory


def test_events_of_one_action_are_read_from_its_index(context: Flask, make: Factory) -> None:
    """SQLite read the whole log to find that an action had no events."""
    actor = make.actor(make.organization())
    seen: list[Any] = []
    listeners = [
        (engine, "before_cursor_execute", lambda *sent: seen.append(sent[2:4])) for engine in set(engines())
    ]
    for listener in listeners:
        event.listen(*listener)
    try:
        page = list_audit_events(actor, filters={"action": "organization.created"})
    finally:
        for listener in listeners:
            event.remove(*listener)
    assert [found.action for found in page.items] == ["organization.created"]
    [(statement, parameters)] = [sent for sent in seen if "FROM audit_events" in sent[0]]
    explain = "EXPLAIN QUERY PLAN" if db.engine.dialect.name == "sqlite" else "EXPLAIN"
    plan = db.session.connection().exec_driver_sql(f"{explain} {statement}", parameters).all()
    assert "ix_audit_events_action" in str(plan)


def test_no_type_of_event_has_two_dots() -> None:
    assert [name for name in EVENT_TYPES if name.count(".") != 1] == []
