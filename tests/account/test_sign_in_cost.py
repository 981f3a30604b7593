"""Query counts of frequent requests; they do not grow with the number of users (law 10, SC bars)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import event

from app.database import engines
from app.fast_path import cache_invalidation, compiled_query
from tests.account.conftest import Visitor
from tests.bench.scenarios import basic, credentials_of
from tests.oauth.conftest import REDIRECT_URI, Flow

Count = Callable[[Callable[[], Any]], int]


@pytest.fixture
def count(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    """Count the statements of the second call, without savepoints."""
    asked: list[str] = []
    compiled_run = compiled_query._run

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        asked.append(statement)

    def run(driver: Any, compiled: Any, *values: Any, **options: Any) -> Any:
        asked.append(compiled.sql)
        return compiled_run(driver, compiled, *values, **options)

    def counted(act: Callable[[], Any]) -> int:
        # Poll as a serving process does, so that entries cached from now on are valid.
        with app.app_context():
            cache_invalidation.poll()
        act()
        asked.clear()
        act()
        return len([text for text in asked if "SAVEPOINT" not in text and not text.startswith("BEGIN")])

    monkeypatch.setattr(compiled_query, "_run", run)
    with app.app_context():
        both = engines()
    for engine in both:
        event.listen(engine, "before_cursor_execute", note)
    yield counted
    for engine in both:
        event.remove(engine, "before_cursor_execute", note)


def test_sign_in_query_count_does_not_grow_with_users(
    make: Any, app: Flask, acme: Any, ada: Any, count: Count
) -> None:
    Visitor(app).sign_in(ada)
    alone = count(lambda: Visitor(app).sign_in(ada))
    for _ in range(8):
        Visitor(app).sign_in(make.user(acme))
        make.user(make.organization())
    assert count(lambda: Visitor(app).sign_in(ada)) == alone
    assert alone <= 30


def test_token_and_introspection_need_one_query_each(
    make: Any, http: FlaskClient, acme: Any, count: Count
) -> None:
    headers = basic(credentials_of(make.machine(acme, "clients:read")))
    form = {"data": {"grant_type": "client_credentials"}, "headers": headers}
    token = http.post("/oauth/token", **form).get_json()["access_token"]
    question = {"data": {"token": token}, "headers": headers}
    assert http.post("/oauth/introspect", **question).get_json()["active"]
    assert count(lambda: http.post("/oauth/token", **form)) == 1
    assert count(lambda: http.post("/oauth/introspect", **question)) == 1


def test_claims_cost_queries_only_where_they_are_released(
    make: Any, app: Flask, acme: Any, ada: Any, count: Count
) -> None:
    """Introspection of a user's token: groups and roles are one query each, an attribute one for the user."""
    client = make.client(
        acme,
        scopes=["openid", "profile", "groups", "roles"],
        trust="first_party",
        redirect_uris=[REDIRECT_URI],
        app_roles=[{"key": "editor"}],
        claim_mappings=[{"claim": "zone", "source": "zoneinfo", "targets": ["introspection"]}],
    )
    flow = Flow(app, app.test_client(), make, client, ada)
    flow.sign_in()
    cost = {}
    for scope in ("openid", "openid groups", "openid groups roles", "openid profile"):
        token = flow.tokens(scope=scope)["access_token"]
        cost[scope] = count(lambda token=token: flow.introspect(token))
    assert list(cost.values()) == [1, 2, 3, 2]
