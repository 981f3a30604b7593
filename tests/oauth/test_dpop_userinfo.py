"""DPoP-bound access tokens at userinfo (RFC 9449 section 7, DC-6)."""

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.factories import bearer_header
from tests.oauth.conftest import REDIRECT_URI, Flow
from tests.oauth.test_dpop import proven, redeem
from tests.support.dpop import Prover

pytestmark = pytest.mark.either

URL = "http://localhost/oauth/userinfo"


@pytest.fixture
def token(flow: Flow, prover: Prover) -> str:
    """An access token bound to the prover's key."""
    return str(redeem(flow, prover)["access_token"])


def ask(
    flow: Flow, headers: dict[str, str], method: str = "GET", path: str = "/oauth/userinfo"
) -> TestResponse:
    return flow.http.open(path, method=method, headers=headers)


def challenge_of(answer: TestResponse) -> str:
    assert answer.status_code == 401, answer.text
    return answer.headers["WWW-Authenticate"]


def test_bound_token_with_its_proof_is_accepted(flow: Flow, prover: Prover, token: str) -> None:
    answer = ask(flow, prover.headers("GET", URL, access_token=token))
    assert (answer.status_code, answer.get_json()["sub"]) == (200, flow.user.public_id)
    assert answer.headers["DPoP-Nonce"]


@pytest.mark.parametrize("scheme", ["dpop", "DPOP", "dPoP"])
def test_authorization_scheme_is_case_insensitive(
    flow: Flow, prover: Prover, token: str, scheme: str
) -> None:
    headers = prover.headers("GET", URL, access_token=token) | {"Authorization": f"{scheme} {token}"}
    assert ask(flow, headers).status_code == 200


@pytest.mark.parametrize("name", ["dpop", "DPOP"])
def test_header_name_is_case_insensitive(flow: Flow, prover: Prover, token: str, name: str) -> None:
    proof = prover.proof("GET", URL, access_token=token)
    assert ask(flow, {"Authorization": f"DPoP {token}", name: proof}).status_code == 200


def test_post_and_issuer_url_are_accepted(flow: Flow, prover: Prover, token: str) -> None:
    path = f"/organizations/{flow.organization.slug}/oauth/userinfo"
    headers = prover.headers("POST", f"http://localhost{path}?x=y", access_token=token)
    assert ask(flow, headers, "POST", path).status_code == 200


def test_bound_token_is_rejected_as_a_bearer_token(flow: Flow, prover: Prover, token: str) -> None:
    """A thief does not have the key, and a proof with the wrong scheme does not help."""
    proof = prover.headers("GET", URL, access_token=token)
    for headers in (bearer_header(token), proof | bearer_header(token)):
        assert challenge_of(ask(flow, headers)).startswith('Bearer realm="gatehouse", error="invalid_token"')
    answer = flow.http.post("/oauth/userinfo", data={"access_token": token})
    assert 'error="invalid_token"' in challenge_of(answer)


def test_unbound_token_is_rejected_with_the_dpop_scheme(flow: Flow, prover: Prover) -> None:
    """RFC 9449 section 7.1."""
    token = flow.tokens()["access_token"]
    answer = ask(flow, prover.headers("GET", URL, access_token=token))
    assert 'DPoP realm="gatehouse", error="invalid_token"' in challenge_of(answer)


def test_proof_of_another_key_is_rejected(flow: Flow, token: str) -> None:
    answer = ask(flow, Prover().headers("GET", URL, access_token=token))
    assert 'error="invalid_token"' in challenge_of(answer)


@pytest.mark.parametrize(
    "changes",
    [{"ath": None}, {"ath": "wrong"}, {"htm": "POST"}, {"htu": "http://localhost/oauth/token"}, {"iat": 1}],
    ids=str,
)
def test_invalid_proof_is_rejected(flow: Flow, prover: Prover, token: str, changes: dict[str, Any]) -> None:
    challenge = challenge_of(ask(flow, prover.headers("GET", URL, access_token=token, **changes)))
    assert challenge == (
        'DPoP realm="gatehouse", error="invalid_dpop_proof", algs="ES256 PS256 EdDSA Ed25519"'
    )


@pytest.mark.parametrize("beside", [{}, {"DPoP": ""}], ids=["missing", "empty"])
def test_missing_proof_is_rejected(flow: Flow, token: str, beside: dict[str, str]) -> None:
    answer = ask(flow, {"Authorization": f"DPoP {token}"} | beside)
    assert "invalid_dpop_proof" in challenge_of(answer)
    assert answer.get_json()["error_description"] == "Send a DPoP proof in the header DPoP."


def test_proof_is_accepted_only_once(flow: Flow, prover: Prover, token: str) -> None:
    headers = prover.headers("GET", URL, access_token=token)
    assert ask(flow, headers).status_code == 200
    assert "invalid_dpop_proof" in challenge_of(ask(flow, headers))


def test_proof_used_at_the_token_endpoint_is_rejected(flow: Flow, prover: Prover) -> None:
    """A jti is valid once across all endpoints."""
    tokens = flow.redeem(flow.code(), proven(flow, prover, jti="one")).get_json()
    headers = prover.headers("GET", URL, access_token=tokens["access_token"], jti="one")
    assert "invalid_dpop_proof" in challenge_of(ask(flow, headers))


def test_userinfo_without_a_token_offers_both_schemes(flow: Flow) -> None:
    answer = ask(flow, {})
    assert answer.headers.getlist("WWW-Authenticate") == [
        'Bearer realm="gatehouse"',
        'DPoP realm="gatehouse", algs="ES256 PS256 EdDSA Ed25519"',
    ]


def test_browser_clients_can_read_the_nonce(flow: Flow, prover: Prover) -> None:
    """CR-3: only the origins of the token's own client."""
    spa = flow.other_client(type="spa", redirect_uris=[REDIRECT_URI], trust="first_party")
    form = {"client_id": spa.client.client_id}
    token = spa.redeem(spa.code(), proven(spa, prover), **form).get_json()["access_token"]
    for origin, may_read in (("https://orchard.example", True), ("https://evil.example", False)):
        headers = prover.headers("GET", URL, access_token=token, nonce="old") | {"Origin": origin}
        answer = ask(flow, headers)
        assert 'error="use_dpop_nonce"' in challenge_of(answer) and answer.headers["DPoP-Nonce"]
        assert (answer.headers.get("Access-Control-Allow-Origin") == origin) is may_read
