"""Stored authorization requests: only known parameters, limited in size and number."""

from __future__ import annotations

import json

import pytest
from werkzeug.test import TestResponse

from app.models.grant import AuthorizationRequest
from app.operations.authorization import authorization_requests
from app.operations.authorization.authorization_requests import MAX_OPEN_PER_BROWSER
from app.rules.authorization.authorization_request import MAX_REQUEST_BYTES
from tests.oauth.conftest import Flow, change_rows, clock_ago, is_sign_in, location, query_of
from tests.support.databases import Database


@pytest.fixture
def stranger(flow: Flow) -> Flow:
    """A signed-out browser."""
    return Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)


def stored(database: Database) -> list[str]:
    """Return the parameters of each stored request, oldest first."""
    rows = database.query("SELECT parameters FROM authorization_requests ORDER BY id")
    return [row[0] if isinstance(row[0], str) else row[0].decode() for row in rows]


def test_unknown_parameters_are_not_stored(stranger: Flow, database: Database) -> None:
    """RFC 6749 section 3.1."""
    sent = stranger.parameters(utm_source="x" * 6000, login_hint="x" * 6000)
    assert is_sign_in(stranger.http.get("/oauth/authorize", query_string=sent), stranger)
    [kept] = stored(database)
    assert json.loads(kept) == {k: v for k, v in sent.items() if k not in {"utm_source", "login_hint"}}


def test_known_parameters_have_a_common_size_limit(stranger: Flow, database: Database) -> None:
    long = stranger.parameters(prompt="login " * (MAX_REQUEST_BYTES // 6))
    refused = query_of(stranger.http.post("/oauth/authorize", data=long))
    assert (refused["error"], refused["state"]) == ("invalid_request", "s")
    assert stored(database) == []


def test_open_requests_per_browser_are_limited_and_the_oldest_is_removed(
    stranger: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization_requests, "MAX_OPEN_PER_BROWSER", 3)
    assert MAX_OPEN_PER_BROWSER == 50
    resumes = [
        location(stranger.authorize(prompt="login")).replace("login?", "oauth/authorize/resume?")
        for _ in range(5)
    ]
    assert [stranger.http.get(resume).status_code for resume in resumes] == [400, 400, 303, 303, 303]


def begin_from(flow: Flow, address: str, *, client: Flow | None = None) -> TestResponse:
    """Start a request from a new browser."""
    return flow.app.test_client().get(
        "/oauth/authorize",
        query_string=(client or flow).parameters(),
        environ_base={"REMOTE_ADDR": address},
        headers={"Accept": "text/html"},
    )


def test_open_requests_per_client_and_network_are_limited(
    stranger: Flow, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Browsers without cookies count as new each time."""
    assert authorization_requests.MAX_OPEN_PER_NETWORK == 3_000
    monkeypatch.setattr(authorization_requests, "MAX_OPEN_PER_NETWORK", 3)
    home = "2001:db8:1:1::"
    assert [begin_from(stranger, f"{home}{n}").status_code for n in (1, 2, 3)] == [303, 303, 303]
    refused = begin_from(stranger, f"{home}4")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    assert "too_many_requests" in refused.text and "Location" not in refused.headers
    assert database.count("authorization_requests") == 3
    assert begin_from(stranger, "2001:db8:2:2::1").status_code == 303, "others go on"
    assert begin_from(stranger, f"{home}5", client=stranger.other_client()).status_code == 303


@pytest.mark.parametrize("column", ["completed_at", "expires_at"])
def test_finished_request_does_not_count_towards_the_limit(
    stranger: Flow, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setattr(authorization_requests, "MAX_OPEN_PER_NETWORK", 2)
    assert [begin_from(stranger, "192.0.2.7").status_code for _ in range(3)] == [303, 303, 429]
    change_rows(stranger, AuthorizationRequest, **{column: clock_ago(stranger, 1)})
    assert begin_from(stranger, "192.0.2.7").status_code == 303
