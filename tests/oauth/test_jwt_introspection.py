"""JWT introspection (RFC 9701): the answer signed, for a resource server that asks for it (IT-1, IT-2)."""

from __future__ import annotations

from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.factories import MadeClient
from tests.oauth.conftest import Flow

SIGNED = "application/token-introspection+jwt"


def introspect(flow: Flow, token: str, accept: str, client: MadeClient | None = None) -> Any:
    headers = {**(client or flow.client).basic, "Accept": accept}
    return flow.http.post("/oauth/introspect", data={"token": token}, headers=headers)


def opened(flow: Flow, answer: Any, algorithm: str) -> Any:
    keys = KeySet.import_key_set(
        flow.http.get(f"/organizations/{flow.organization.slug}/oauth/jwks").get_json()
    )
    return jwt.decode(answer.text, keys, algorithms=[algorithm])


@pytest.mark.parametrize("algorithm", ["ES256", "PS256"])
def test_the_answer_is_signed_as_the_client_chose(flow: Flow, algorithm: str) -> None:
    """protocol: introspection."""
    client = flow.make.client(
        flow.organization, introspection_signed_response_alg=algorithm, resources=["https://api.example"]
    )
    token = flow.tokens()["access_token"]
    own = Flow(flow.app, flow.http, flow.make, client, flow.user)
    answer = introspect(own, token, SIGNED)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == SIGNED
    assert answer.headers["Cache-Control"] == "no-store"
    made = opened(own, answer, algorithm)
    assert made.header["typ"] == "token-introspection+jwt"
    # IT-1, IT-2: another client's token is inactive, and nothing more, in this form too.
    assert made.claims["token_introspection"] == {"active": False}


def test_it_says_what_the_plain_answer_says_and_cannot_be_taken_for_a_token(flow: Flow) -> None:
    with_alg = flow.other_client(introspection_signed_response_alg="ES256", trust="first_party")
    token = with_alg.tokens()["access_token"]
    answer = introspect(with_alg, token, f"application/json;q=0.5, {SIGNED}")
    claims = opened(with_alg, answer, "ES256").claims
    assert set(claims) == {"iss", "aud", "iat", "token_introspection"}
    assert (claims["iss"], claims["aud"]) == (flow.issuer, with_alg.client.client_id)
    assert claims["token_introspection"] == with_alg.introspect(token)
    assert (
        with_alg.http.get("/oauth/userinfo", headers={"Authorization": f"Bearer {answer.text}"}).status_code
        == 401
    )


def test_default_signing_algorithm_is_rs256(flow: Flow) -> None:
    answer = introspect(flow, flow.tokens()["access_token"], SIGNED)
    assert opened(flow, answer, "RS256").claims["token_introspection"]["active"] is True


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/*", f"{SIGNED};q=0", ""])
def test_others_get_json(flow: Flow, accept: str) -> None:
    answer = introspect(flow, flow.tokens()["access_token"], accept)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.get_json()["active"] is True


def test_a_refusal_is_json_whatever_was_asked_for(flow: Flow) -> None:
    headers = {"Authorization": "Basic eDp5", "Accept": SIGNED}
    answer = flow.http.post("/oauth/introspect", data={"token": "x"}, headers=headers)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
