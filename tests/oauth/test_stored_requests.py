"""What a stranger can have stored: what is understood of a request, so much of it, and so many of them."""

from __future__ import annotations

import json

import pytest

from app.operations.protocol import authorization_requests
from app.operations.protocol.authorization_requests import MOST_OPEN
from app.rules.protocol.authorization_request import LONGEST_REQUEST
from tests.oauth.conftest import Flow, is_sign_in, location, query_of
from tests.support.databases import Database


@pytest.fixture
def stranger(flow: Flow) -> Flow:
    """A browser in which nobody is signed in."""
    return Flow(flow.app, flow.app.test_client(), flow.make, flow.client, flow.user)


def stored(database: Database) -> list[str]:
    """The parameters of each stored request, the oldest first."""
    rows = database.query("SELECT parameters FROM authorization_requests ORDER BY id")
    return [row[0] if isinstance(row[0], str) else row[0].decode() for row in rows]


def test_what_is_not_understood_is_not_kept(stranger: Flow, database: Database) -> None:
    """RFC 6749 section 3.1: ignored."""
    sent = stranger.parameters(utm_source="x" * 6000, login_hint="x" * 6000)
    assert is_sign_in(stranger.http.get("/oauth/authorize", query_string=sent), stranger)
    [kept] = stored(database)
    assert json.loads(kept) == {k: v for k, v in sent.items() if k not in {"utm_source", "login_hint"}}


def test_what_is_understood_is_bounded_together(stranger: Flow, database: Database) -> None:
    long = stranger.parameters(prompt="login " * (LONGEST_REQUEST // 6))
    refused = query_of(stranger.http.post("/oauth/authorize", data=long))
    assert (refused["error"], refused["state"]) == ("invalid_request", "s")
    assert stored(database) == []


def test_a_browser_has_so_many_requests_open_and_the_oldest_ends(
    stranger: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization_requests, "MOST_OPEN", 3)
    assert MOST_OPEN == 50
    resumes = [
        location(stranger.authorize(prompt="login")).replace("login?", "oauth/authorize/resume?")
        for _ in range(5)
    ]
    assert [stranger.http.get(resume).status_code for resume in resumes] == [400, 400, 303, 303, 303]
