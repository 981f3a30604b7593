"""The pushed authorization request endpoint (RFC 9126): authentication and errors."""

from __future__ import annotations

from typing import Any

import pytest

from app.models.token import PushedRequest
from app.operations.authorization import pushed_requests
from app.operations.clients.clients import update_client
from tests.factories import Factory, MadeClient
from tests.oauth.conftest import REDIRECT_URI, Flow, change_rows, clock_ago, on_another_worker
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.dpop import Prover
from tests.support.signer import Signer

pytestmark = pytest.mark.either

ENDPOINT = "http://localhost/oauth/par"


def push(flow: Flow, headers: dict[str, str] | None = None, path: str = "/oauth/par", **changes: str | None):
    sent = flow.parameters(**changes)
    return flow.http.post(path, data=sent, headers=flow.client.basic if headers is None else headers)


@pytest.mark.parametrize(
    "fields", [{}, {"token_endpoint_auth_method": "client_secret_post"}, {"type": "spa"}, {"keys": 1}]
)
def test_every_authentication_method_is_accepted(flow: Flow, fields: dict[str, Any]) -> None:
    signer = Signer()
    other = flow.other_client(
        **(signer.registration if "keys" in fields else fields), redirect_uris=[REDIRECT_URI]
    )
    sent, headers = other.parameters(), {}
    if "keys" in fields:
        sent |= signer.fields(other.client.client_id, ENDPOINT)
    elif fields.get("type") != "spa":
        headers = other.client.basic if not fields else {}
        sent |= {"client_secret": other.client.secret} if fields else {}
    answer = flow.http.post("/oauth/par", data=sent, headers=headers)
    assert answer.status_code == 201, answer.text


def test_pushed_request_needs_no_client_id_beside_the_header(flow: Flow) -> None:
    assert push(flow, client_id=None).status_code == 201
    assert push(flow, client_id="cli_other").status_code == 400


def test_pushed_request_without_authentication_is_rejected(flow: Flow, database: Database) -> None:
    """CA-1, CA-7: an id alone does not authenticate a confidential client."""
    for answer in (push(flow, {}), push(flow, {}, client_secret="wrong")):
        assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    assert database.query("SELECT COUNT(*) FROM pushed_requests") == [(0,)]


def test_client_of_another_organization_is_unknown(flow: Flow, make: Factory) -> None:
    """MX-3."""
    own = f"/organizations/{flow.organization.slug}/oauth/par"
    assert push(flow, path=own).status_code == 201
    other = f"/organizations/{make.organization().slug}/oauth/par"
    assert push(flow, path=other).status_code == 401


@each(
    ("changes", "error"),
    [
        ({"redirect_uri": "https://evil.example/"}, "invalid_request"),
        ({"redirect_uri": None}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "invalid_request"),
        ({"scope": "nothing"}, "invalid_scope"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"prompt": "none login"}, "invalid_request"),
        ({"max_age": "soon"}, "invalid_request"),
        ({"state": "x" * 2049}, "invalid_request"),
        ({"request_uri": "urn:ietf:params:oauth:request_uri:x"}, "invalid_request"),
        ({"request_uri": "https://orchard.example/request"}, "invalid_request"),
        ({"request": "a.b.c"}, "invalid_request_object"),
    ],
)
def test_invalid_pushed_request_is_reported_at_once(flow: Flow, changes: dict[str, Any], error: str) -> None:
    """RFC 9126 section 2.3: by 400, never by redirect."""
    answer = push(flow, **changes)
    assert (answer.status_code, answer.get_json()["error"]) == (400, error), answer.text


def test_malformed_form_is_rejected(flow: Flow) -> None:
    """ST-2."""
    assert (
        flow.http.post(
            "/oauth/par?scope=openid", data=flow.parameters(), headers=flow.client.basic
        ).status_code
        == 400
    )
    twice = {**flow.parameters(), "scope": ["openid", "profile"]}
    assert flow.http.post("/oauth/par", data=twice, headers=flow.client.basic).status_code == 400
    assert flow.http.post("/oauth/par", json=flow.parameters(), headers=flow.client.basic).status_code == 400
    assert flow.http.get("/oauth/par").status_code == 405


def test_open_requests_are_limited(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unauthenticated callers are limited by network."""
    monkeypatch.setattr(pushed_requests, "MAX_PENDING_PER_NETWORK", 2)
    monkeypatch.setattr(pushed_requests, "MAX_PENDING", 5)
    public = flow.other_client(type="spa", redirect_uris=[REDIRECT_URI])
    answers = [push(public, {}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert answers[-1].headers["Retry-After"] == "60"
    assert [push(flow).status_code for _ in range(6)] == [201] * 5 + [429]
    change_rows(flow, PushedRequest, expires_at=clock_ago(flow, 1))
    assert push(public, {}).status_code == push(flow).status_code == 201


def test_browser_apps_can_push_requests(flow: Flow) -> None:
    """CR-3."""
    origin = {"Origin": "https://orchard.example"}
    public = flow.other_client(type="spa", redirect_uris=[REDIRECT_URI])
    assert push(public, origin).headers["Access-Control-Allow-Origin"] == origin["Origin"]
    refused = push(public, {"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in refused.headers
    preflight = flow.http.options("/oauth/par", headers={"Origin": "https://any.example"})
    assert preflight.headers["Access-Control-Allow-Origin"] == "https://any.example"


def test_secret_revoked_on_another_worker_is_rejected(flow: Flow, make: Factory) -> None:
    """F24."""
    assert push(flow).status_code == 201
    with flow.app.app_context(), on_another_worker():
        update_client(make.system(flow.organization), flow.client.client_id, {"status": "disabled"})
    assert push(flow).status_code == 401


def test_client_credentials_client_cannot_push(flow: Flow, make: Factory) -> None:
    machine: MadeClient = make.machine(flow.organization, "reports:read")
    answer = flow.http.post("/oauth/par", data=flow.parameters(client_id=None), headers=machine.basic)
    assert answer.status_code == 400


def test_proof_and_dpop_jkt_must_match(flow: Flow) -> None:
    prover = Prover()
    answer = push(flow, flow.client.basic | prover.headers("POST", ENDPOINT), dpop_jkt=Prover().jkt)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_dpop_proof")
    answer = push(flow, flow.client.basic | prover.headers("POST", ENDPOINT), dpop_jkt=prover.jkt)
    assert answer.status_code == 201


HOSTILE = [
    "\0",
    "ü☃🦉",
    '"\\',
    "\r\nSet-Cookie: a=b",
    "x" * 5000,
    "null",
    "[]",
    "{}",
    " ",
    "e30.e30.e30",
    "....",
    "%00",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_never_a_500(flow: Flow, value: str) -> None:
    """JS-6: any parameter, with each signing method."""
    signed = (
        "request",
        "request_uri",
        "client_assertion",
        "client_assertion_type",
        "client_secret",
        "dpop_jkt",
    )
    for name in (*flow.parameters(), *signed, "claims", "nonce", "prompt", "max_age", "resource"):
        for headers in (flow.client.basic, {}):
            answer = push(flow, headers, **{name: value})
            assert answer.status_code in {201, 400, 401, 429}, (name, answer.status_code, answer.text)
            description = answer.get_json().get("error_description", "")
            assert description.isascii() and not set(description) & set('"\\')
