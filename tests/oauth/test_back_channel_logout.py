"""Back-channel logout: every client that received a session id is notified when the session ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from app.models.session import SessionClient
from app.operations.clients.clients import update_client
from app.operations.maintenance.janitor import purge_expired
from app.operations.organizations.organizations import update_organization
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.sessions import end_other_sessions, find_session
from app.operations.store import outbox
from app.operations.tokens import logout
from app.operations.users.users import disable_user
from app.rules.actor import Actor
from app.rules.sign_in.identity_providers import parse_keys
from app.rules.sign_in.provider_tokens import ProviderLogout, verify_logout_token
from tests.factories import PASSWORD, Factory
from tests.oauth.conftest import Flow, change_rows, clock_ago, query_of, sign_in_on_page
from tests.support.back_channel import listen
from tests.support.databases import Database
from tests.support.form_browser import Page
from tests.support.https_server import HttpsServer, Request, Response, https_server, reaching

EVENT = "http://schemas.openid.net/event/backchannel-logout"


class Listener:
    """A client's back-channel logout endpoint; ``status`` is the response it returns."""

    def __init__(self) -> None:
        self.status = 200
        self.server: HttpsServer

    def __call__(self, request: Request) -> Response:
        return Response(self.status)

    @property
    def tokens(self) -> list[str]:
        """Return the received logout tokens and check that each is the only form field."""
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
    """A listener for the client of ``flow``, at a URL that the operator allowed."""
    monkeypatch.setattr(outbox, "_deliveries", {})
    logout.register()
    made = Listener()
    with https_server(made) as server:
        made.server = server
        monkeypatch.setitem(flow.app.config, "GATEHOUSE", reaching(flow.app.config["GATEHOUSE"], server))
        listen(flow.app, flow.client, f"{server.base_url}/out?tenant=1")
        yield made


def deliver_due(flow: Flow) -> int:
    """Attempt every due delivery once and return the number of attempts."""
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


def test_logout_token_has_the_standard_claims(flow: Flow, listener: Listener) -> None:
    """OpenID Connect Back-Channel Logout 1.0 sections 2.4 and 2.5."""
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
    # Another Gatehouse organization, of which this is the identity provider, accepts it.
    keys = parse_keys(flow.http.get(f"/organizations/{flow.organization.slug}/oauth/jwks").get_json())
    logout_there = verify_logout_token(
        token, keys, issuer=flow.issuer, client_id=flow.client.client_id, now=clock_ago(flow, 0)
    )
    assert logout_there == ProviderLogout(claims["sub"], claims["sid"])


def test_logout_token_has_no_subject_of_another_sector(flow: Flow, listener: Listener) -> None:
    """OI-6. The session began when the client had another sector, or none."""
    tokens = flow.tokens()
    with flow.app.app_context():
        system = flow.make.system(flow.organization)
        pairwise = {"subject_type": "pairwise", "redirect_uris": ["https://victim.example/cb"]}
        update_client(system, flow.client.client_id, pairwise)
        end_other_sessions(flow.make.actor(flow.organization, user=flow.user))
    assert deliver_due(flow) == 1
    claims = read(flow, listener.tokens[0]).claims
    assert "sub" not in claims and claims["sid"] == read(flow, tokens["id_token"]).claims["sid"]


def test_logout_token_is_signed_when_it_is_sent(flow: Flow, listener: Listener) -> None:
    """Its two-minute lifetime would be over after the first retries."""
    listener.status = 503
    sign_out(flow)
    assert deliver_due(flow) == 1
    come_round(flow)
    listener.status = 204
    assert deliver_due(flow) == 1
    first, second = (read(flow, token).claims for token in listener.tokens)
    assert first["jti"] == second["jti"], "a client can recognize the repeated notification"
    assert second["exp"] > clock_ago(flow, 0).timestamp()


def come_round(flow: Flow) -> None:
    change_rows(flow, outbox.OutboxMessage, available_at=clock_ago(flow, 1))


@pytest.mark.parametrize("status", [500, 503, 404, 302])
def test_failed_delivery_is_retried(flow: Flow, listener: Listener, status: int) -> None:
    listener.status = status
    sign_out(flow)
    assert (deliver_due(flow), deliver_due(flow)) == (1, 0)
    come_round(flow)
    assert deliver_due(flow) == 1


def test_delivery_rejected_with_400_is_not_retried(
    flow: Flow, listener: Listener, database: Database
) -> None:
    """Section 2.8: the client rejected the token, and would reject it again."""
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
    """Return the flow's user in a separate browser."""
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
def test_every_way_of_ending_a_session_notifies_the_client(
    flow: Flow, listener: Listener, make: Factory, ending: str
) -> None:
    sid = read(flow, flow.tokens()["id_token"]).claims["sid"]
    with flow.app.app_context():
        ENDINGS[ending](flow, make)
    assert deliver_due(flow) == 1
    [token] = listener.tokens
    assert read(flow, token).claims["sid"] == sid


def test_each_client_is_notified_once_and_others_are_not(
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


def test_client_without_an_id_token_is_not_notified(flow: Flow, listener: Listener) -> None:
    flow.tokens(scope="profile")
    with flow.app.app_context():
        disable_user(flow.make.actor(flow.organization), flow.user.id)
    assert deliver_due(flow) == 0


def test_reauthentication_in_the_same_browser_notifies_no_client(flow: Flow, listener: Listener) -> None:
    """A forced reauthentication must not end other clients' sessions. They are notified when the new one
    ends, also if the first one would have expired long before.
    """
    online = flow.tokens(scope="openid")
    sid = read(flow, online["id_token"]).claims["sid"]
    change_rows(flow, SessionClient, expires_at=clock_ago(flow, 2 * 86_400))
    sign_in_on_page(flow, flow.authorize(prompt="login"))
    with flow.app.app_context():
        purge_expired(Actor.system("", "janitor"), pause=0)
    assert deliver_due(flow) == 0
    assert flow.is_alive(online["access_token"])
    second = read(flow, flow.tokens(scope="openid")["id_token"]).claims["sid"]
    assert second != sid
    sign_out(flow)
    assert deliver_due(flow) == 2
    assert {read(flow, token).claims["sid"] for token in listener.tokens} == {sid, second}
    assert not flow.is_alive(online["access_token"])


def test_switching_users_in_a_browser_ends_the_previous_session(flow: Flow, listener: Listener) -> None:
    flow.tokens()
    other = Flow(flow.app, flow.http, flow.make, flow.client, flow.make.user(flow.organization))
    sign_in_on_page(other, flow.authorize(prompt="login"))
    assert deliver_due(flow) == 1


def test_client_that_removed_its_logout_uri_is_not_notified(
    flow: Flow, listener: Listener, database: Database
) -> None:
    flow.tokens()
    sign_out(flow)
    listen(flow.app, flow.client, None)
    assert deliver_due(flow) == 1
    assert listener.server.requests == []
    assert database.query("SELECT CAST(outcome AS CHAR) FROM outbox") == [("refused",)]


def test_private_network_url_is_never_called(
    flow: Flow, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SF-2, Zitadel's CVE-2026-27945: no spelling of a URL that the operator did not allow is called."""
    config = dataclasses.replace(flow.app.config["GATEHOUSE"], outgoing_allowed_hosts=frozenset())
    monkeypatch.setitem(flow.app.config, "GATEHOUSE", config)
    sign_out(flow)
    assert deliver_due(flow) == 1
    assert listener.server.requests == []


def test_discovery_advertises_back_channel_logout(flow: Flow) -> None:
    document = flow.http.get(
        f"/organizations/{flow.organization.slug}/.well-known/openid-configuration"
    ).get_json()
    assert document["backchannel_logout_supported"] is True
    assert document["backchannel_logout_session_supported"] is True


def test_suspending_an_organization_notifies_no_client(flow: Flow, listener: Listener) -> None:
    """Suspension is a pause. Sessions continue when it is lifted, and clients are notified then of those that ended."""
    flow.tokens()
    root = flow.make.actor(flow.make.root())
    for status in ("suspended", "active"):
        with flow.app.app_context():
            update_organization(root, flow.organization.slug, {"status": status})
        assert deliver_due(flow) == 0
    assert listener.tokens == []
    assert "code" in query_of(flow.authorize())
    sign_out(flow)
    for status in ("suspended", "active"):
        with flow.app.app_context():
            update_organization(root, flow.organization.slug, {"status": status})
        come_round(flow)
        assert (deliver_due(flow), len(listener.tokens)) == (1, int(status == "active"))
