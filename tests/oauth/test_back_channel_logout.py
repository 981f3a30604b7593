"""Back-channel logout: every client that was told of a sign-in hears of its end, exactly as the standard says it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from app.operations.organizations.organizations import update_organization
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.sessions import end_other_sessions, find_session
from app.operations.store import outbox
from app.operations.tokens import logout
from app.operations.users.user_status import disable_user
from tests.factories import PASSWORD, Factory
from tests.oauth.conftest import Flow, change_rows, clock_ago, query_of, sign_in_on_page
from tests.support.back_channel import listen
from tests.support.databases import Database
from tests.support.https_server import HttpsServer, Request, Response, https_server, reaching
from tests.support.person import Page

EVENT = "http://schemas.openid.net/event/backchannel-logout"


class Listener:
    """A client's back-channel address; ``status`` is what it answers."""

    def __init__(self) -> None:
        self.status = 200
        self.server: HttpsServer

    def __call__(self, request: Request) -> Response:
        return Response(self.status)

    @property
    def tokens(self) -> list[str]:
        """The logout tokens that came, each alone in a form."""
        found = []
        for request in self.server.requests:
            assert (request.method, request.path) == ("POST", "/out?tenant=1")
            assert request.headers["content-type"] == "application/x-www-form-urlencoded"
            form = parse_qs(request.body.decode(), strict_parsing=True)
            assert list(form) == ["logout_token"], "logout_token alone"
            found.append(form["logout_token"][0])
        return found


@pytest.fixture
def listener(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """The client of ``flow`` listens, at an address that the operator allowed."""
    monkeypatch.setattr(outbox, "_deliveries", {})
    logout.register()
    made = Listener()
    with https_server(made) as server:
        made.server = server
        monkeypatch.setitem(flow.app.config, "GATEHOUSE", reaching(flow.app.config["GATEHOUSE"], server))
        listen(flow.app, flow.client, f"{server.base_url}/out?tenant=1")
        yield made


def deliver_due(flow: Flow) -> int:
    """Everything that is due was tried once; how many attempts that were."""
    attempts = 0
    with flow.app.app_context():
        while (message := outbox.claim_due_message(busy_receivers=(), full_organizations=())) is not None:
            outbox.deliver(message)
            attempts += 1
    return attempts


def read(flow: Flow, token: str) -> Any:
    keys = flow.http.get(f"/organizations/{flow.organization.slug}/oauth/jwks").get_json()
    return jwt.decode(token, KeySet.import_key_set(keys), algorithms=["ES256", "RS256"])


def sign_out(flow: Flow) -> None:
    flow.http.get("/oauth/logout", query_string={"id_token_hint": flow.tokens()["id_token"]})


def test_a_logout_token_is_as_the_standard_has_it(flow: Flow, listener: Listener) -> None:
    """OpenID Connect Back-Channel Logout 1.0 sections 2.4 and 2.5. protocol: back-channel logout, token."""
    tokens = flow.tokens(nonce="n-1")
    id_token = read(flow, tokens["id_token"])
    flow.http.get("/oauth/logout", query_string={"id_token_hint": tokens["id_token"]})
    assert listener.tokens == [], "the page did not wait for it"
    assert deliver_due(flow) == 1
    [token] = listener.tokens
    decoded = read(flow, token)
    assert decoded.header == {"alg": "ES256", "typ": "logout+jwt", "kid": id_token.header["kid"]}
    claims = decoded.claims
    assert set(claims) == {"iss", "sub", "aud", "iat", "exp", "jti", "sid", "events"}, "and no nonce"
    assert (claims["iss"], claims["aud"]) == (flow.issuer, flow.client.client_id)
    assert (claims["sub"], claims["sid"]) == (id_token.claims["sub"], id_token.claims["sid"])
    assert claims["events"] == {EVENT: {}}
    assert 0 < claims["exp"] - claims["iat"] <= 120
    assert deliver_due(flow) == 0


def test_the_token_is_signed_when_it_is_sent(flow: Flow, listener: Listener) -> None:
    """Two minutes of life would be over after the first failures."""
    listener.status = 503
    sign_out(flow)
    assert deliver_due(flow) == 1
    come_round(flow)
    listener.status = 204
    assert deliver_due(flow) == 1
    first, second = (read(flow, token).claims for token in listener.tokens)
    assert first["jti"] == second["jti"], "a client that heard the first may know it again"
    assert second["exp"] > clock_ago(flow, 0).timestamp()


def come_round(flow: Flow) -> None:
    change_rows(flow, outbox.OutboxMessage, available_at=clock_ago(flow, 1))


@pytest.mark.parametrize("status", [500, 503, 404, 302])
def test_what_is_no_answer_is_tried_again(flow: Flow, listener: Listener, status: int) -> None:
    """protocol: back-channel logout, delivery."""
    listener.status = status
    sign_out(flow)
    assert (deliver_due(flow), deliver_due(flow)) == (1, 0)
    come_round(flow)
    assert deliver_due(flow) == 1


def test_a_400_is_final(flow: Flow, listener: Listener, database: Database) -> None:
    """Section 2.8: the client says that the token is wrong; it would be so again."""
    listener.status = 400
    sign_out(flow)
    assert deliver_due(flow) == 1
    come_round(flow)
    assert deliver_due(flow) == 0
    assert database.query("SELECT CAST(outcome AS CHAR) FROM outbox") == [("refused",)]


def by_page(flow: Flow, make: Factory) -> None:
    page = flow.http.get(f"/organizations/{flow.organization.slug}/logout")
    form = Page("", page.status_code, page.text).form_with("logout-confirm")
    flow.http.post(form.action, data=dict(form.values))


def acting(flow: Flow, make: Factory) -> Any:
    """The flow's user in a browser of its own."""
    session = find_session(make.sign_in(flow.user).token)
    assert session is not None
    return session.actor()


ENDINGS: dict[str, Callable[[Flow, Factory], object]] = {
    "signed out on our own page": by_page,
    "signed out elsewhere": lambda flow, make: end_other_sessions(acting(flow, make)),
    "password changed": lambda flow, make: change_password(
        acting(flow, make), PASSWORD, "nine quiet owls on the mill"
    ),
    "user disabled": lambda flow, make: disable_user(make.actor(flow.organization), flow.user.id),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_however_the_sign_in_ends_the_client_hears(
    flow: Flow, listener: Listener, make: Factory, ending: str
) -> None:
    """protocol: back-channel logout, delivery."""
    sid = read(flow, flow.tokens()["id_token"]).claims["sid"]
    with flow.app.app_context():
        ENDINGS[ending](flow, make)
    assert deliver_due(flow) == 1
    [token] = listener.tokens
    assert read(flow, token).claims["sid"] == sid


def test_each_client_hears_once_and_who_was_not_told_does_not(
    flow: Flow, listener: Listener, database: Database
) -> None:
    silent = flow.other_client(trust="first_party")
    silent.tokens()
    stranger = flow.other_client(trust="first_party")
    listen(flow.app, stranger.client, f"{listener.server.base_url}/out?tenant=1")
    for _ in range(3):
        flow.tokens()
    assert database.count("session_clients") == 1
    sign_out(flow)
    assert deliver_due(flow) == 1
    assert len(listener.tokens) == 1
    assert database.count("session_clients") == 0


def test_a_client_without_an_id_token_knows_of_no_sign_in(flow: Flow, listener: Listener) -> None:
    flow.tokens(scope="profile")
    with flow.app.app_context():
        disable_user(flow.make.actor(flow.organization), flow.user.id)
    assert deliver_due(flow) == 0


def test_signing_in_anew_in_the_same_browser_ends_nothing_for_clients(flow: Flow, listener: Listener) -> None:
    """A client that asks for a fresh sign-in must not end the others'; they hear of the end of the new one."""
    online = flow.tokens(scope="openid")
    sid = read(flow, online["id_token"]).claims["sid"]
    sign_in_on_page(flow, flow.authorize(prompt="login"))
    assert deliver_due(flow) == 0
    assert flow.is_alive(online["access_token"])
    second = read(flow, flow.tokens(scope="openid")["id_token"]).claims["sid"]
    assert second != sid
    sign_out(flow)
    assert deliver_due(flow) == 2
    assert {read(flow, token).claims["sid"] for token in listener.tokens} == {sid, second}
    assert not flow.is_alive(online["access_token"])


def test_another_person_in_the_same_browser_ends_the_sign_in_before(flow: Flow, listener: Listener) -> None:
    flow.tokens()
    other = Flow(flow.app, flow.http, flow.make, flow.client, flow.make.user(flow.organization))
    sign_in_on_page(other, flow.authorize(prompt="login"))
    assert deliver_due(flow) == 1


def test_who_asks_for_no_news_any_more_gets_none(flow: Flow, listener: Listener, database: Database) -> None:
    flow.tokens()
    sign_out(flow)
    listen(flow.app, flow.client, None)
    assert deliver_due(flow) == 1
    assert listener.server.requests == []
    assert database.query("SELECT CAST(outcome AS CHAR) FROM outbox") == [("refused",)]


def test_an_address_of_our_own_network_is_never_called(
    flow: Flow, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SF-2, and Zitadel's CVE-2026-27945: what the operator did not allow is not called, however it is written."""
    config = dataclasses.replace(flow.app.config["GATEHOUSE"], outgoing_allowed_hosts=frozenset())
    monkeypatch.setitem(flow.app.config, "GATEHOUSE", config)
    sign_out(flow)
    assert deliver_due(flow) == 1
    assert listener.server.requests == []


def test_discovery_says_so(flow: Flow) -> None:
    document = flow.http.get(
        f"/organizations/{flow.organization.slug}/.well-known/openid-configuration"
    ).get_json()
    assert document["backchannel_logout_supported"] is True
    assert document["backchannel_logout_session_supported"] is True


def test_a_suspension_ends_no_sign_in_and_tells_nobody(flow: Flow, listener: Listener) -> None:
    """It is a pause: who was signed in is so again when it is over."""
    flow.tokens()
    root = flow.make.actor(flow.make.root())
    for status in ("suspended", "active"):
        with flow.app.app_context():
            update_organization(root, flow.organization.slug, {"status": status})
        assert deliver_due(flow) == 0
    assert listener.tokens == []
    assert "code" in query_of(flow.authorize())
    sign_out(flow)
    assert deliver_due(flow) == 1
