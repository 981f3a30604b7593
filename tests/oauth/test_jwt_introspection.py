"""JWT introspection responses (RFC 9701), for resource servers that request them (IT-1, IT-2)."""

from __future__ import annotations

from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.factories import MadeClient
from tests.oauth.conftest import Flow

pytestmark = pytest.mark.either

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
def test_response_is_signed_with_the_clients_algorithm(flow: Flow, algorithm: str) -> None:
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
    # IT-1, IT-2: another client's token is inactive with no other claims, also as a JWT.
    assert made.claims["token_introspection"] == {"active": False}


def test_jwt_contains_the_json_response_and_is_not_usable_as_a_token(flow: Flow) -> None:
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
def test_other_clients_get_json(flow: Flow, accept: str) -> None:
    answer = introspect(flow, flow.tokens()["access_token"], accept)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.get_json()["active"] is True


def test_errors_are_always_json(flow: Flow) -> None:
    headers = {"Authorization": "Basic eDp5", "Accept": SIGNED}
    answer = flow.http.post("/oauth/introspect", data={"token": "x"}, headers=headers)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
