"""Many requests at once with one client assertion or one pushed request: one succeeds, and none gets a 5xx."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.rules.authorization.authorization_request import challenge_of
from tests.factories import Factory, MadeClient
from tests.journeys.conftest import REDIRECT_URI, VERIFIER
from tests.oauth.conftest import FAST_KEYS
from tests.races.conftest import CROWD
from tests.support.concurrent_requests import Post, Reply, send, send_concurrently
from tests.support.servers import LiveServer
from tests.support.signer import Signer


def statuses(replies: list[Reply]) -> Counter[int]:
    return Counter(reply.status for reply in replies)


def both_workers_answered(server: LiveServer, replies: list[Reply]) -> bool:
    return {reply.worker for reply in replies} == set(server.worker_pids())


@pytest.fixture
def client(live_make: Factory, signer: Signer) -> MadeClient:
    """Register a first-party client of private_key_jwt, which needs no consent."""
    organization = live_make.organization(settings=FAST_KEYS)
    fields: dict[str, Any] = {
        "grant_types": ["authorization_code", "client_credentials"],
        "redirect_uris": [REDIRECT_URI],
    }
    return live_make.client(
        organization, trust="first_party", scopes=["openid", "reports:read"], **fields, **signer.registration
    )


def pushed(server: LiveServer, client: MadeClient, signer: Signer) -> dict[str, str]:
    """Open a pushed request as a browser does."""
    form = {
        "response_type": "code",
        "redirect_uri": REDIRECT_URI,
        "scope": "openid",
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
    }
    fields = signer.fields(client.client_id, client.organization.issuer)
    answer = send(server.url, Post("/oauth/par", form | fields))
    assert answer.status == 201, answer.body
    return {"client_id": client.client_id, "request_uri": answer.json["request_uri"]}


def test_client_assertion_is_accepted_once(
    live_server: LiveServer, client: MadeClient, signer: Signer
) -> None:
    """CA-6: a unique key decides (Hydra GHSA-3p3g-vpw6-4w66)."""
    form = {"grant_type": "client_credentials"} | signer.fields(client.client_id, client.organization.issuer)
    replies = send_concurrently(live_server.url, [Post("/oauth/token", form)] * CROWD)
    assert statuses(replies) == {200: 1, 401: CROWD - 1}
    assert {reply.json["error"] for reply in replies if reply.status == 401} == {"invalid_client"}
    assert both_workers_answered(live_server, replies)


def test_pushed_request_completes_once(
    live_server: LiveServer, live_make: Factory, client: MadeClient, signer: Signer
) -> None:
    """OI-4: a conditional UPDATE in the transaction of the code decides."""
    user = live_make.user(client.organization)
    cookie = f"{live_make.cookie_name(client.organization)}={live_make.sign_in(user).token}"
    form = pushed(live_server, client, signer)
    replies = send_concurrently(live_server.url, [Post("/oauth/authorize", form, {"Cookie": cookie})] * CROWD)
    assert statuses(replies) == {303: 1, 400: CROWD - 1}
    [winner] = [reply for reply in replies if reply.status == 303]
    assert winner.headers["location"].startswith(f"{REDIRECT_URI}?code=")
    assert both_workers_answered(live_server, replies)
    assert live_server.database.query(
        "SELECT COUNT(*) FROM authorization_codes WHERE organization_id = %s", client.organization.id.encode()
    ) == [(1,)]


def test_concurrent_pushed_requests_all_succeed(
    live_server: LiveServer, client: MadeClient, signer: Signer
) -> None:
    """Each request has its own assertion, so all of them succeed."""
    issuer, own = client.organization.issuer, client.client_id
    request = signer.request_object(
        {
            "client_id": own,
            "response_type": "code",
            "redirect_uri": REDIRECT_URI,
            "scope": "openid",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
        },
        issuer,
    )
    posts = [Post("/oauth/par", {"request": request} | signer.fields(own, issuer)) for _ in range(CROWD)]
    replies = send_concurrently(live_server.url, posts)
    assert statuses(replies) == {201: CROWD}
    assert len({reply.json["request_uri"] for reply in replies}) == CROWD
