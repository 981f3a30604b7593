"""JWT access tokens (RFC 9068): claims, signature, and revocation by their database row."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from app.operations.organizations.settings import update_settings
from tests.factories import bearer_header
from tests.oauth.conftest import REDIRECT_URI, Flow
from tests.oauth.test_id_token import ALGORITHMS, decoded, keys_of

pytestmark = pytest.mark.either


@pytest.fixture
def speaking(flow: Flow) -> Flow:
    """The flow of a client that uses JWT access tokens."""
    return flow.other_client(access_token_format="jwt", redirect_uris=[REDIRECT_URI], trust="first_party")


def choose(flow: Flow, **oauth: Any) -> None:
    with flow.app.app_context():
        update_settings(flow.make.system(flow.organization), flow.organization.slug, {"oauth": oauth})


def test_access_tokens_are_opaque_by_default(flow: Flow) -> None:
    """TK-5."""
    assert flow.tokens()["access_token"].startswith("gth_at_")


def test_jwt_has_the_standard_claims(speaking: Flow) -> None:
    """RFC 9068 section 2; TK-5: ten minutes."""
    tokens = speaking.tokens(scope="openid email")
    assert tokens["expires_in"] == 600
    token = decoded(speaking, tokens["access_token"])
    assert token.header == {"alg": "ES256", "kid": keys_of(speaking).keys[0].kid, "typ": "at+jwt"}
    claims = token.claims
    assert set(claims) == {
        *("iss", "sub", "aud", "exp", "iat", "jti", "client_id", "scope", "organization_id"),
        *("auth_time", "acr"),
    }
    assert (claims["iss"], claims["aud"]) == (speaking.issuer, speaking.issuer)
    assert (claims["sub"], claims["client_id"]) == (speaking.user.public_id, speaking.client.client_id)
    assert (claims["scope"], claims["organization_id"]) == ("openid email", speaking.organization.slug)
    assert claims["exp"] - claims["iat"] == 600 and abs(claims["iat"] - time.time()) < 5
    assert claims["jti"] == speaking.introspect(tokens["access_token"])["jti"]


def test_client_credentials_token_has_the_client_as_subject(flow: Flow) -> None:
    machine = flow.make.machine(
        flow.organization, "reports:read", access_token_format="jwt", resources=["https://api.example"]
    )
    answer = flow.http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    claims = decoded(flow, answer.get_json()["access_token"]).claims
    assert claims["sub"] == claims["client_id"] == machine.client_id
    assert claims["aud"] == "https://api.example" and "auth_time" not in claims


def test_organization_can_use_jwts_for_all_clients(flow: Flow) -> None:
    choose(flow, access_token={"format": "jwt", "jwt_ttl_seconds": 90})
    tokens = flow.tokens()
    assert tokens["expires_in"] == 90
    assert decoded(flow, tokens["access_token"]).header["typ"] == "at+jwt"


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_organization_chooses_the_signing_algorithm(flow: Flow, algorithm: str) -> None:
    choose(flow, access_token={"format": "jwt"}, signing={"algorithm": algorithm})
    assert decoded(flow, flow.tokens()["access_token"]).header["alg"] == algorithm


def test_revoked_jwt_is_rejected_everywhere(speaking: Flow) -> None:
    """TK-5: its signature is valid and it has not expired."""
    tokens = speaking.tokens()
    token = tokens["access_token"]
    assert speaking.is_alive(token)
    assert speaking.http.get("/oauth/userinfo", headers=bearer_header(token)).status_code == 200
    speaking.http.post("/oauth/revoke", data={"token": token}, headers=speaking.client.basic)
    assert not speaking.is_alive(token)
    assert speaking.http.get("/oauth/userinfo", headers=bearer_header(token)).status_code == 401
    assert decoded(speaking, token).claims["exp"] > time.time()


def test_jwt_is_revoked_with_its_refresh_family(speaking: Flow) -> None:
    tokens = speaking.tokens()
    speaking.http.post(
        "/oauth/revoke", data={"token": tokens["refresh_token"]}, headers=speaking.client.basic
    )
    assert not speaking.is_alive(tokens["access_token"])


def b64(document: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    header, payload, signature = token.split(".")
    return (*(json.loads(urlsafe_b64decode(part + "==")) for part in (header, payload)), signature)  # type: ignore[return-value]


def test_forged_variants_are_rejected(speaking: Flow) -> None:
    """KY-4, TK-6: alg none, HS256 with the public key, changed claims, another encoding of the signature."""
    token = speaking.tokens()["access_token"]
    header, payload, signature = parts(token)
    public = json.dumps(speaking.http.get(f"{speaking.issuer}/oauth/jwks").get_json()["keys"][0])
    forgeries = [
        f"{b64(header | {'alg': 'none'})}.{b64(payload)}.",
        f"{b64(header | {'alg': 'none'})}.{b64(payload)}.{signature}",
        f"{b64(header)}.{b64(payload | {'exp': payload['exp'] + 9999})}.{signature}",
        f"{b64(header)}.{b64(payload | {'sub': 'usr_other'})}.{signature}",
        f"{b64(header | {'jku': 'https://evil.example/jwks'})}.{b64(payload)}.{signature}",
        token + "=",
        token[:-1] + ("B" if token[-1] != "B" else "C"),
        f"{token}.{signature}",
        jwt.encode({"alg": "HS256", "typ": "at+jwt"}, payload, OctKey.import_key(public)),
    ]
    for forged in forgeries:
        assert speaking.http.get("/oauth/userinfo", headers=bearer_header(forged)).status_code == 401
        assert not speaking.is_alive(forged)
    assert speaking.is_alive(token)


def test_id_token_of_the_same_client_is_rejected(speaking: Flow) -> None:
    """TK-6, ASVS 9.2.2."""
    token = speaking.tokens()["id_token"]
    assert speaking.http.get("/oauth/userinfo", headers=bearer_header(token)).status_code == 401
