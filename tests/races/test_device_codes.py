"""Many concurrent polls with one device code: one succeeds, the others are rejected, none gets a 5xx (DV-1)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.factories import Factory, MadeClient, MadeUser
from tests.oauth.conftest import FAST_KEYS
from tests.oauth.device import GRANT
from tests.races.conftest import CROWD
from tests.support.concurrent_requests import Post, send, send_concurrently
from tests.support.form_browser import FormBrowser
from tests.support.servers import LiveServer

FEWER = 24
"""Each of these changes the row that all of them read."""


@pytest.fixture
def user(live_make: Factory) -> MadeUser:
    return live_make.user(live_make.organization(settings=FAST_KEYS))


@pytest.fixture
def television(live_make: Factory, user: MadeUser) -> MadeClient:
    return live_make.client(
        user.organization,
        name="Television",
        type="device",
        redirect_uris=[],
        token_endpoint_auth_method="none",
        scopes=["openid", "profile", "offline_access"],
    )


def codes(server: LiveServer, client: MadeClient) -> dict[str, str]:
    form = {"client_id": client.client_id, "scope": "openid profile offline_access"}
    reply = send(server.url, Post("/oauth/device_authorization", form))
    assert reply.status == 200, reply.body
    answer: dict[str, str] = reply.json
    return answer


def allow(server: LiveServer, user: MadeUser, answer: dict[str, str]) -> None:
    visitor = FormBrowser(server.url)
    page = visitor.visit(answer["verification_uri_complete"])
    page = visitor.sign_in(page, user.email, user.password)
    page = visitor.press(page, "device-find")
    page = visitor.press(page, "device-continue")
    assert visitor.press(page, "consent-allow").has("device-allowed")


def poll(client: MadeClient, answer: dict[str, str]) -> Post:
    form = {"grant_type": GRANT, "device_code": answer["device_code"], "client_id": client.client_id}
    return Post("/oauth/token", form)


def test_dv1_device_code_is_redeemed_once(
    live_server: LiveServer, user: MadeUser, television: MadeClient
) -> None:
    answer = codes(live_server, television)
    allow(live_server, user, answer)
    replies = send_concurrently(live_server.url, [poll(television, answer)] * CROWD)
    assert Counter(reply.status for reply in replies) == {200: 1, 400: CROWD - 1}
    assert {reply.json["error"] for reply in replies if reply.status == 400} == {"invalid_grant"}
    assert {reply.worker for reply in replies} == set(live_server.worker_pids())


def test_concurrent_polls_are_slowed_down_except_one(live_server: LiveServer, television: MadeClient) -> None:
    answer = codes(live_server, television)
    replies = send_concurrently(live_server.url, [poll(television, answer)] * FEWER)
    assert {reply.status for reply in replies} == {400}
    told = Counter(reply.json["error"] for reply in replies)
    assert told == {"authorization_pending": 1, "slow_down": FEWER - 1}
