"""Pushed authorization requests (RFC 9126): used once, without other parameters."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from app.models.token import PushedRequest
from app.operations.authorization import pushed_requests
from app.operations.clients.clients import update_client
from app.rules.identifiers import PUSHED_REQUEST, new_token
from tests.factories import Factory
from tests.oauth.conftest import (
    FAST_KEYS,
    REDIRECT_URI,
    SCOPES,
    Flow,
    change_rows,
    clock_ago,
    is_consent,
    is_sign_in,
    location,
    query_of,
    sign_in_on_page,
)
from tests.support.databases import Database
from tests.support.dpop import Prover
from tests.support.signer import Signer

ENDPOINT = "http://localhost/oauth/par"


def push(flow: Flow, headers: dict[str, str] | None = None, path: str = "/oauth/par", **changes: str | None):
    sent = flow.parameters(**changes)
    return flow.http.post(path, data=sent, headers=flow.client.basic if headers is None else headers)


def pushed(flow: Flow, **changes: str | None) -> str:
    answer = push(flow, **changes)
    assert answer.status_code == 201, answer.text
    return str(answer.get_json()["request_uri"])


def bring(flow: Flow, request_uri: str, http: FlaskClient | None = None, **more: str | None):
    query = {"client_id": flow.client.client_id, "request_uri": request_uri} | more
    sent = {name: value for name, value in query.items() if value is not None}
    return (http or flow.http).get("/oauth/authorize", query_string=sent)


def is_error_page(answer: Any, code: str = "invalid_request_uri") -> bool:
    return answer.status_code == 400 and "Location" not in answer.headers and code in answer.text


def test_pushed_request_returns_a_code(flow: Flow) -> None:
    answer = push(flow)
    assert answer.status_code == 201
    document = answer.get_json()
    assert document["request_uri"].startswith("urn:ietf:params:oauth:request_uri:")
    assert document["expires_in"] == 60
    assert answer.headers["Cache-Control"] == "no-store"
    query = query_of(bring(flow, document["request_uri"]))
    assert query["state"] == "s" and query["iss"] == flow.issuer
    assert flow.redeem(query["code"]).status_code == 200


def test_parameters_outside_the_pushed_request_are_ignored(flow: Flow) -> None:
    """An outer state is not returned, and an outer redirect URI is not followed."""
    request_uri = pushed(flow, state=None, scope="openid")
    evil = "https://evil.example/callback"
    answer = bring(flow, request_uri, state="outer", redirect_uri=evil, scope="openid email", nonce="outer")
    assert location(answer).startswith(REDIRECT_URI)
    query = query_of(answer)
    assert "state" not in query
    tokens = flow.redeem(query["code"]).get_json()
    assert tokens["scope"] == "openid"


def test_request_uri_can_be_used_once(flow: Flow) -> None:
    """OI-4."""
    request_uri = pushed(flow)
    assert "code" in query_of(bring(flow, request_uri))
    assert is_error_page(bring(flow, request_uri))


def test_request_uri_survives_reloading_the_sign_in_page(flow: Flow, app) -> None:
    """Only the first response counts."""
    request_uri, stranger = pushed(flow), app.test_client()
    first, second = (bring(flow, request_uri, stranger) for _ in range(2))
    assert is_sign_in(first, flow) and is_sign_in(second, flow)
    for page in (first, second):
        assert stranger.get(location(page)).status_code == 200
    signed_in = sign_in_on_page(flow, first, stranger)
    assert "code" in query_of(stranger.get(location(signed_in)))
    resumed = stranger.get(location(second).replace("/login?", "/oauth/authorize/resume?"))
    assert resumed.status_code == 400 and "Location" not in resumed.headers
    assert is_error_page(bring(flow, request_uri, stranger))


def test_slow_sign_in_may_exceed_the_request_uri_lifetime(asking: Flow) -> None:
    page = asking.http.get(location(bring(asking, pushed(asking))))
    change_rows(asking, PushedRequest, expires_at=clock_ago(asking, 600))
    assert "code" in query_of(asking.decide(page))


def test_denial_consumes_the_request_uri(asking: Flow) -> None:
    request_uri = pushed(asking)
    first = bring(asking, request_uri)
    assert is_consent(first, asking)
    page = asking.http.get(location(first))
    assert query_of(asking.decide(page, "consent-deny"))["error"] == "access_denied"
    assert is_error_page(bring(asking, request_uri))


def test_error_consumes_the_request_uri(flow: Flow, app) -> None:
    request_uri = pushed(flow, prompt="none")
    query = query_of(bring(flow, request_uri, app.test_client()))
    assert (query["error"], query["state"]) == ("login_required", "s")
    assert is_error_page(bring(flow, request_uri))


def test_request_uri_expires_after_a_minute(flow: Flow) -> None:
    """OI-4."""
    request_uri = pushed(flow)
    change_rows(flow, PushedRequest, expires_at=clock_ago(flow, 1))
    assert is_error_page(bring(flow, request_uri, redirect_uri=REDIRECT_URI))


def test_request_uri_is_bound_to_its_client(flow: Flow, make: Factory) -> None:
    """OI-4: and to its organization."""
    request_uri, other = pushed(flow), flow.other_client(trust="first_party", redirect_uris=[REDIRECT_URI])
    assert is_error_page(bring(other, request_uri))
    foreign = Flow(
        flow.app, flow.http, make, make.client(make.organization(), redirect_uris=[REDIRECT_URI]), flow.user
    )
    assert is_error_page(bring(foreign, request_uri))
    assert "code" in query_of(bring(flow, request_uri))


@pytest.mark.parametrize("suffix", ["", "x", "gth_pr_", "../x", "\x00"])
def test_unknown_request_uri_shows_an_error_page(flow: Flow, suffix: str) -> None:
    """OR-1: whatever other parameters say."""
    answer = bring(flow, pushed_requests.PREFIX + suffix, redirect_uri=REDIRECT_URI)
    assert answer.status_code == 400 and "Location" not in answer.headers
    never = pushed_requests.PREFIX + new_token(PUSHED_REQUEST, flow.organization.id)
    assert is_error_page(bring(flow, never))


@pytest.mark.parametrize(
    "uri", ["https://orchard.example/request", "http://169.254.169.254/", "urn:of:another", "x"]
)
def test_other_request_uris_are_rejected(flow: Flow, uri: str) -> None:
    """OI-4: the server fetches no URL from a request."""
    beside = {name: value for name, value in flow.parameters().items() if name != "client_id"}
    query = query_of(bring(flow, uri, **beside))
    assert (query["error"], query["state"]) == ("request_uri_not_supported", "s")
    assert is_error_page(bring(flow, uri), "request_uri_not_supported")


def test_removed_redirect_uri_invalidates_the_request(flow: Flow, make: Factory) -> None:
    """RU-5: it is checked again when the browser arrives."""
    request_uri = pushed(flow)
    with flow.app.app_context():
        update_client(
            make.system(flow.organization),
            flow.client.client_id,
            {"redirect_uris": ["https://orchard.example/new"]},
        )
    assert is_error_page(bring(flow, request_uri), "invalid_request")


def test_request_uri_is_stored_only_as_a_digest(flow: Flow, database: Database) -> None:
    """TK-2: and no client secret is stored."""
    request_uri = pushed(flow)
    token = request_uri.removeprefix(pushed_requests.PREFIX)
    rows = repr(database.query("SELECT * FROM pushed_requests")) + repr(
        database.query("SELECT * FROM authorization_requests")
    )
    assert token not in rows and flow.client.secret not in rows


def demanded_by(name: str, flow: Flow, make: Factory) -> Flow:
    """A client that must push, for one of three reasons."""
    if name == "organization":
        organization = make.organization(settings={"oauth": FAST_KEYS["oauth"] | {"require_par": True}})
        client = make.client(organization, scopes=SCOPES, trust="first_party", redirect_uris=[REDIRECT_URI])
        demanding = Flow(flow.app, flow.http, make, client, make.user(organization))
        demanding.sign_in()
        return demanding
    return flow.other_client(
        trust="first_party", redirect_uris=[REDIRECT_URI], require_pushed_authorization_requests=True
    )


@pytest.mark.parametrize("by", ["client", "organization"])
def test_plain_request_is_rejected_where_pushing_is_required(flow: Flow, make: Factory, by: str) -> None:
    demanding = demanded_by(by, flow, make)
    query = query_of(demanding.authorize())
    assert (query["error"], query["state"]) == ("invalid_request", "s")
    assert "code" in query_of(bring(demanding, pushed(demanding)))


def test_fapi_client_must_push(flow: Flow) -> None:
    signer = Signer()
    client = flow.other_client(
        security_profile="fapi2", trust="first_party", redirect_uris=[REDIRECT_URI], **signer.registration
    )
    assert query_of(client.authorize())["error"] == "invalid_request"
    fields = client.parameters() | signer.fields(client.client.client_id, client.issuer)
    answer = flow.http.post("/oauth/par", data=fields)
    assert answer.status_code == 201, answer.text
    assert "code" in query_of(bring(client, answer.get_json()["request_uri"]))


def test_pushed_request_stays_pushed_through_consent(flow: Flow) -> None:
    """The check is not repeated at consent."""
    client = flow.other_client(require_pushed_authorization_requests=True, redirect_uris=[REDIRECT_URI])
    page = flow.http.get(location(bring(client, pushed(client))))
    assert "code" in query_of(client.decide(page))


def test_proof_binds_the_code(flow: Flow) -> None:
    """RFC 9449 section 10.1."""
    prover, other = Prover(), Prover()
    answer = push(flow, flow.client.basic | prover.headers("POST", ENDPOINT))
    assert answer.status_code == 201, answer.text
    assert "DPoP-Nonce" in answer.headers
    code = query_of(bring(flow, answer.get_json()["request_uri"]))["code"]
    token = "http://localhost/oauth/token"
    assert flow.redeem(code).status_code == 400
    assert flow.redeem(code, flow.client.basic | other.headers("POST", token)).status_code == 400
    assert flow.redeem(code, flow.client.basic | prover.headers("POST", token)).status_code == 200
