"""Reading the audit log: what a filter costs in a log of a million events."""

from __future__ import annotations

from flask import Flask

from app.operations.audit.audit_events import list_audit_events
from app.rules.audit.events import EVENT_TYPES
from tests.factories import Factory
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.query_plans import plan_of


@each(
    ("filters", "index", "found"),
    [
        ({"action": "organization.created"}, "ix_audit_events_action", ["organization.created"]),
        ({"ip_address": "203.0.113.7"}, "ix_audit_events_address", []),
    ],
)
def test_events_that_a_filter_selects_are_read_from_its_index(
    context: Flask, make: Factory, database: Database, filters: dict[str, str], index: str, found: list[str]
) -> None:
    """SQLite read the whole log to find that an action had no events."""
    actor = make.actor(make.organization())
    page, plan = plan_of(lambda: list_audit_events(actor, filters=filters), "FROM audit_events")
    assert [event.action for event in page.items] == found
    # MySQL reads so few rows by their key.
    assert index in plan or database.kind != database.engine


def test_no_type_of_event_has_two_dots() -> None:
    assert [name for name in EVENT_TYPES if name.count(".") != 1] == []
