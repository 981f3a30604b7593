"""ID tokens: who signed in, when and how, for this client alone, signed by a key of the organization."""

from __future__ import annotations

import hashlib
import time
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from joserfc import jwt
from joserfc.errors import BadSignatureError, JoseError
from joserfc.jwk import KeySet

from app.operations.organizations.settings import update_settings
from tests.factories import Factory
from tests.oauth.conftest import REDIRECT_URI, Flow

ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]


def keys_of(flow: Flow) -> KeySet:
    """The published keys of the organization."""
    return KeySet.import_key_set(flow.http.get(f"{flow.issuer}/oauth/jwks").get_json())


def decoded(flow: Flow, token: str) -> jwt.Token:
    """The verified token."""
    return jwt.decode(token, keys_of(flow), algorithms=ALGORITHMS)


def claims_of(flow: Flow, token: str) -> dict[str, Any]:
    """The verified claims."""
    return dict(decoded(flow, token).claims)


def test_it_says_who_signed_in_to_which_client(flow: Flow) -> None:
    """OI-1. protocol: ID token, auth_time; ID token, amr and sid."""
    before = int(time.time())
    document = flow.tokens(nonce="n-0S6_WzA2Mj", scope="openid profile email")
    token = decoded(flow, document["id_token"])
    claims = token.claims
    assert token.header == {"alg": "ES256", "kid": token.header["kid"], "typ": "JWT"}
    assert claims["iss"] == flow.issuer
    assert claims["sub"] == flow.user.public_id
    assert claims["aud"] == flow.client.client_id
    assert claims["nonce"] == "n-0S6_WzA2Mj"
    assert before - 2 <= claims["auth_time"] <= claims["iat"] <= time.time() + 2
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["amr"] == ["pwd"]
    assert claims["sid"].startswith("ses_")


def test_it_holds_nothing_that_was_not_asked_of_it(flow: Flow) -> None:
    """Profile claims are userinfo's; nothing a user typed is in it (OI-2).

    protocol: ID token, nonce; ID token, nothing unasked.
    """
    claims = claims_of(flow, flow.tokens()["id_token"])
    assert set(claims) == {"iss", "sub", "aud", "exp", "iat", "auth_time", "acr", "amr", "at_hash", "sid"}


@pytest.mark.parametrize("nonce", ["0", "n" * 1024, "ünï☃", 'say "hi"', "a b+c&d=e"])
def test_the_nonce_comes_back_unchanged(flow: Flow, nonce: str) -> None:
    """OI-1. protocol: ID token, nonce."""
    assert claims_of(flow, flow.tokens(nonce=nonce)["id_token"])["nonce"] == nonce


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_has_its_key_and_at_hash(flow: Flow, algorithm: str) -> None:
    """OIDC Core 3.1.3.6: the hash of at_hash is the signature's. protocol: signing algorithms; ID token, at_hash."""
    other = flow.other_client(
        redirect_uris=[REDIRECT_URI], trust="first_party", id_token_signed_response_alg=algorithm
    )
    document = other.tokens()
    token = decoded(other, document["id_token"])
    assert token.header["alg"] == algorithm
    made = (hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256)(
        document["access_token"].encode()
    ).digest()
    assert token.claims["at_hash"] == urlsafe_b64encode(made[: len(made) // 2]).decode().rstrip("=")


def test_the_organization_chooses_the_life(flow: Flow) -> None:
    """protocol: ID token, lifetime."""
    with flow.app.app_context():
        changes = {"oauth": {"id_token_ttl_seconds": 300}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, changes)
    claims = claims_of(flow, flow.tokens()["id_token"])
    assert claims["exp"] - claims["iat"] == 300


def test_the_subject_is_the_same_for_ever_and_the_session_too(flow: Flow) -> None:
    """protocol: ID token, sub."""
    first, second = (claims_of(flow, flow.tokens()["id_token"]) for _ in range(2))
    assert (first["sub"], first["sid"], first["auth_time"]) == (
        second["sub"],
        second["sid"],
        second["auth_time"],
    )


def test_a_refreshed_one_keeps_the_sign_in_and_has_no_nonce(flow: Flow) -> None:
    """OIDC Core 12.2."""
    first = flow.tokens(nonce="n")
    renewed = flow.refresh(first["refresh_token"]).get_json()
    before, after = claims_of(flow, first["id_token"]), claims_of(flow, renewed["id_token"])
    assert "nonce" not in after
    assert all(before[name] == after[name] for name in ("iss", "sub", "aud", "auth_time", "amr", "sid"))
    assert before["at_hash"] != after["at_hash"]


def test_another_organizations_key_never_verifies_it(flow: Flow, make: Factory) -> None:
    """TN-15: even under the other's ``kid``."""
    token = flow.tokens()["id_token"]
    there = make.organization(settings={"oauth": {"signing": {"algorithm": "ES256"}}})
    foreign = flow.http.get(f"{there.issuer}/oauth/jwks").get_json()
    with pytest.raises((JoseError, ValueError)):
        jwt.decode(token, KeySet.import_key_set(foreign), algorithms=ALGORITHMS)
    own_kid = decoded(flow, token).header["kid"]
    for key in foreign["keys"]:
        key["kid"] = own_kid
    with pytest.raises(BadSignatureError):
        jwt.decode(token, KeySet.import_key_set(foreign), algorithms=ALGORITHMS)


def test_it_is_no_access_token(flow: Flow) -> None:
    """TK-6."""
    token = flow.tokens()["id_token"]
    assert flow.http.get("/oauth/userinfo", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert not flow.is_alive(token)
