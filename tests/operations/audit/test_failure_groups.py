"""Recent failures by cause, and the number on the navigation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import insert

from app.extensions import db
from app.models.audit import FailedRequest
from app.operations.audit import failure_groups
from app.operations.audit.failure_groups import count_recent_failures, list_failure_groups
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.store.usage_counters import FAILED_USERS, add_past
from app.rules.actor import Actor
from app.rules.errors import Forbidden
from app.rules.identifiers import new_id
from tests.factories import Factory, MadeClient
from tests.support.cut_connections import cuttable
from tests.support.databases import Database

OWN = ("clients:read:own", "clients:write:own", "logs:read:own")


@transaction
def fail(client: MadeClient, *causes: str, ago: timedelta = timedelta(minutes=5)) -> None:
    """Add failed requests of a client."""
    at = clock.now() - ago
    rows: list[dict[str, Any]] = [
        {
            "organization_id": client.organization.id,
            "id": new_id(),
            "client_id": client.registered.client.id,
            "at": at,
            "request_id": "req_1",
            "endpoint": "token",
            "method": "POST",
            "status": 400,
            "error": "invalid_grant",
            "description": "",
            "cause": cause,
            "expected": [],
            "parameters": {},
            "expires_at": at + timedelta(days=14),
        }
        for cause in causes
    ]
    db.session.execute(insert(FailedRequest), rows)


def test_groups_count_clients_and_times_of_each_cause(context: Flask, make: Factory) -> None:
    acme = make.organization()
    web, tv = make.client(acme, name="Web"), make.client(acme, name="TV")
    fail(web, "code_expired", "code_expired", "redirect_uri_not_registered", ago=timedelta(hours=2))
    fail(tv, "code_expired")
    fail(tv, "code_reused", ago=timedelta(hours=30))
    fail(make.client(make.organization()), "code_unknown")
    first, second = list_failure_groups(make.actor(acme))
    assert (first.cause, first.count, [name for _, name in first.clients]) == (
        "code_expired",
        3,
        ["Web", "TV"],
    )
    assert first.last_at - first.first_at == pytest.approx(timedelta(minutes=115), abs=timedelta(minutes=1))
    assert sum(first.trend) == 3 and first.trend[-1] == 1 and not first.has_fix
    assert second.title == "The client sent a redirect URI that is not registered." and second.has_fix
    assert second.example_id.startswith("flr_")
    assert [group.cause for group in list_failure_groups(make.actor(acme), limit=1)] == ["code_expired"]
    assert "code_reused" in {group.cause for group in list_failure_groups(make.actor(acme), hours=48)}
    [only] = list_failure_groups(make.actor(acme), client_id=tv.client_id)
    assert only.count == 1
    assert list_failure_groups(make.actor(acme), client_id="cli_unknown") == ()


def test_developer_sees_failures_of_own_clients_only(context: Flask, make: Factory) -> None:
    """TN-1: ``logs:read:own``."""
    acme = make.organization()
    developer = make.actor(acme, *OWN, user=make.user(acme, role="developer"))
    fail(make.client(acme, by=developer), "code_expired")
    fail(make.client(acme), "code_expired", "code_reused")
    assert [(group.cause, group.count) for group in list_failure_groups(developer)] == [("code_expired", 1)]
    assert (count_recent_failures(developer), count_recent_failures(make.actor(acme))) == (1, 3)


def test_groups_count_users_of_each_cause(context: Flask, make: Factory) -> None:
    """Those of the clients, of which the reader may see some; no group has more users than requests."""
    acme = make.organization()
    developer = make.actor(acme, *OWN, user=make.user(acme, role="developer"))
    web, tv = make.client(acme, by=developer, name="Web"), make.client(acme, name="TV")
    ada, bob = make.user(acme).id, make.user(acme).id
    now = clock.now()
    fail(web, "code_expired", "code_expired", "code_reused")
    fail(tv, "code_expired")
    for client, cause, user, ago in (
        (web, "code_expired", ada, 0),
        (web, "code_expired", ada, 20),
        (tv, "code_expired", bob, 0),
        (web, "code_reused", ada, 0),
        (web, "code_reused", bob, 0),
        (web, "code_expired", make.user(acme).id, 24 * 9),
    ):
        fact = (acme.id, ((FAILED_USERS, cause),), client.registered.client.id, user)
        add_past([(now - timedelta(hours=ago), fact, 1)])

    def users(reader: Actor, **options: Any) -> dict[str, int | None]:
        groups = list_failure_groups(reader, with_users=True, **options)
        return {group.cause: group.users for group in groups}

    administrator = make.actor(acme)
    for hours in (24, 24 * 7):
        assert users(administrator, hours=hours) == {"code_expired": 2, "code_reused": 1}
        assert users(developer, hours=hours) == {"code_expired": 1, "code_reused": 1}
        assert users(administrator, hours=hours, client_id=tv.client_id) == {"code_expired": 1}
    assert users(make.actor(make.organization())) == {}


def test_member_has_no_failures(context: Flask, make: Factory) -> None:
    acme = make.organization()
    fail(make.client(acme), "code_expired")
    member = make.actor(acme, "organization:read", user=make.user(acme))
    assert count_recent_failures(member) == 0
    with pytest.raises(Forbidden):
        list_failure_groups(member)


def test_count_of_failures_has_a_maximum(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_groups, "MAX_BADGE", 2)
    acme = make.organization()
    developer = make.actor(acme, *OWN, user=make.user(acme, role="developer"))
    fail(make.client(acme, by=developer), *["code_expired"] * 5)
    assert count_recent_failures(make.actor(acme)) == count_recent_failures(developer) == 3


@pytest.mark.mariadb
def test_recent_failures_are_read_from_the_index_alone(
    context: Flask, make: Factory, database: Database
) -> None:
    """One page of the portal must not read the documents of thousands of rows."""
    acme = make.organization()
    client = make.client(acme)
    for day in range(30):
        fail(client, *["code_expired", "code_reused"] * 20, ago=timedelta(days=day, minutes=5))
    database.query("ANALYZE TABLE failed_requests")
    with cuttable(context) as cuts:
        cuts.start()
        list_failure_groups(make.actor(acme))
        count_recent_failures(make.actor(acme))
    asked = [sent for sent in cuts.sent if "failed_requests" in sent]
    plans = [database.query("EXPLAIN FORMAT=TRADITIONAL " + sent.replace("%", "%%")) for sent in asked]
    read = [row for plan in plans for row in plan if row[2] == "failed_requests"]
    assert len(read) == 2, plans
    assert all(
        "ix_failed_requests_recent" in row and "range" in row and "Using index" in str(row[-1])
        for row in read
    )


def test_groups_of_many_failures_are_read_every_few_seconds(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = make.organization()
    client, actor = make.client(acme), make.actor(acme)
    now = clock.now().replace(second=0, microsecond=0)
    monkeypatch.setattr(failure_groups, "MAX_COUNTED", 2)

    def causes(seconds: int) -> set[str]:
        monkeypatch.setattr(clock, "now", lambda: now + timedelta(seconds=seconds))
        return {group.cause for group in list_failure_groups(actor)}

    fail(client, "code_expired")
    assert causes(0) == {"code_expired"}
    fail(client, "code_reused", ago=timedelta(minutes=4))
    assert causes(1) == {"code_expired", "code_reused"}
    fail(client, "secret_wrong", "secret_wrong", ago=timedelta(minutes=1))
    assert causes(14) == {"code_expired", "code_reused"}
    assert causes(15) == {"secret_wrong"}
