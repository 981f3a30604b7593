"""Figures of the overview page: correct, bounded, and of one organization."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from app.extensions import db
from app.operations.organizations.overview import get_overview
from app.rules.errors import Forbidden


def test_overview_counts_only_this_organization(context: Any, make: Any) -> None:
    acme, globex = make.organization(), make.organization()
    make.client(acme)
    for _ in range(2):
        make.client(globex)
    make.user(globex, role="admin")

    found = get_overview(make.actor(acme))

    assert (found.clients, found.users, found.administrators) == (1, 0, 0)
    assert found.recent_events is not None
    assert {happening.action for happening in found.recent_events} >= {
        "client.registered",
        "organization.created",
    }


def test_overview_of_a_developer_counts_only_own_clients_and_tokens(context: Any, make: Any) -> None:
    acme = make.organization()
    make.bearer(acme)
    permissions = ("organization:read", "clients:read:own", "clients:write:own")
    developer = make.actor(acme, *permissions, user=make.user(acme))

    def figures(actor: Any) -> tuple[int, int]:
        found = get_overview(actor)
        return found.clients, found.tokens_last_day

    assert (figures(developer), figures(make.actor(acme))) == ((0, 0), (1, 1))
    make.client(acme, by=developer)
    assert (figures(developer), figures(make.actor(acme))) == ((1, 0), (2, 1))


def test_overview_without_audit_permission_has_no_events(context: Any, make: Any) -> None:
    found = get_overview(make.actor(make.organization(), "organization:read"))

    assert found.recent_events is None


def test_overview_requires_organization_read(context: Any, make: Any) -> None:
    with pytest.raises(Forbidden):
        get_overview(make.actor(make.organization(), "clients:read"))


def test_overview_query_count_is_constant(context: Any, make: Any) -> None:
    acme = make.organization()
    actor = make.actor(acme)

    def asked() -> int:
        statements: list[str] = []

        def note(conn: Any, cursor: Any, statement: str, *rest: Any) -> None:
            statements.append(statement)

        event.listen(db.engine, "before_cursor_execute", note)
        get_overview(actor)
        event.remove(db.engine, "before_cursor_execute", note)
        return len(statements)

    before = asked()
    for _ in range(3):
        make.client(acme)
        make.user(acme, role="developer")

    assert asked() == before
