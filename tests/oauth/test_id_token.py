"""ID tokens: claims, signature, audience and lifetime."""

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

pytestmark = pytest.mark.either

ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]


def keys_of(flow: Flow) -> KeySet:
    """Return the organization's published keys."""
    return KeySet.import_key_set(flow.http.get(f"{flow.issuer}/oauth/jwks").get_json())


def decoded(flow: Flow, token: str) -> jwt.Token:
    """Return the verified token."""
    return jwt.decode(token, keys_of(flow), algorithms=ALGORITHMS)


def claims_of(flow: Flow, token: str) -> dict[str, Any]:
    """Return the verified claims."""
    return dict(decoded(flow, token).claims)


def test_id_token_identifies_user_client_and_sign_in(flow: Flow) -> None:
    """OI-1."""
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


PROTOCOL = {"iss", "sub", "aud", "exp", "iat", "auth_time", "acr", "amr", "at_hash", "sid"}
EMAIL = {"email", "email_verified"}


@pytest.mark.parametrize(
    ("scope", "chosen", "expected"),
    [
        ("openid", None, set()),
        ("openid email", None, EMAIL),
        ("openid profile", None, {"name"}),
        ("openid profile email", "full", {"name"} | EMAIL),
        ("openid profile email", "minimal", set()),
    ],
)
def test_id_token_has_the_claims_of_its_scopes_unless_the_client_wants_fewer(
    flow: Flow, scope: str, chosen: str | None, expected: set[str]
) -> None:
    """OI-2: as at the large providers; the rest of the profile is in userinfo, which stays complete."""
    more = {} if chosen is None else {"id_token_claims": chosen}
    other = flow.other_client(redirect_uris=[REDIRECT_URI], trust="first_party", **more)
    tokens = other.tokens(scope=scope)
    claims = claims_of(other, tokens["id_token"])
    assert set(claims) == expected | PROTOCOL - ({"sid"} if chosen == "minimal" else set())
    if "name" in expected:
        assert claims["name"] == "Ada Lovelace"
    if "email" in expected:
        assert (claims["email"], claims["email_verified"]) == (flow.user.email, True)
    header = {"Authorization": f"Bearer {tokens['access_token']}"}
    info = flow.http.get("/oauth/userinfo", headers=header).get_json()
    asked = scope.split()
    assert ("email" in info, "name" in info) == ("email" in asked, "profile" in asked)


def test_minimal_id_token_has_a_sid_if_the_client_gets_logout_tokens(flow: Flow) -> None:
    """OpenID Connect Back-Channel Logout section 2.1: logout tokens refer to it."""
    uri = "https://orchard.example/logout"
    fields = {"id_token_claims": "minimal", "backchannel_logout_uri": uri, "redirect_uris": [REDIRECT_URI]}
    other = flow.other_client(trust="first_party", **fields)
    assert claims_of(other, other.tokens()["id_token"])["sid"].startswith("ses_")


@pytest.mark.parametrize("nonce", ["0", "n" * 1024, "ünï☃", 'say "hi"', "a b+c&d=e"])
def test_nonce_is_returned_unchanged(flow: Flow, nonce: str) -> None:
    """OI-1."""
    assert claims_of(flow, flow.tokens(nonce=nonce)["id_token"])["nonce"] == nonce


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_uses_its_own_key_and_at_hash(flow: Flow, algorithm: str) -> None:
    """OIDC Core 3.1.3.6: at_hash uses the hash of the signature algorithm."""
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


def test_organization_can_change_the_id_token_lifetime(flow: Flow) -> None:
    with flow.app.app_context():
        changes = {"oauth": {"id_token_ttl_seconds": 300}}
        update_settings(flow.make.system(flow.organization), flow.organization.slug, changes)
    claims = claims_of(flow, flow.tokens()["id_token"])
    assert claims["exp"] - claims["iat"] == 300


def test_sub_and_sid_are_stable(flow: Flow) -> None:
    first, second = (claims_of(flow, flow.tokens()["id_token"]) for _ in range(2))
    assert (first["sub"], first["sid"], first["auth_time"]) == (
        second["sub"],
        second["sid"],
        second["auth_time"],
    )


def test_refreshed_id_token_keeps_auth_time_and_has_no_nonce(flow: Flow) -> None:
    """OIDC Core 12.2."""
    first = flow.tokens(nonce="n")
    renewed = flow.refresh(first["refresh_token"]).get_json()
    before, after = claims_of(flow, first["id_token"]), claims_of(flow, renewed["id_token"])
    assert "nonce" not in after
    assert all(before[name] == after[name] for name in ("iss", "sub", "aud", "auth_time", "amr", "sid"))
    assert before["at_hash"] != after["at_hash"]


def test_key_of_another_organization_does_not_verify_the_token(flow: Flow, make: Factory) -> None:
    """TN-15: even under the other key's ``kid``."""
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


def test_id_token_is_not_accepted_as_an_access_token(flow: Flow) -> None:
    """TK-6."""
    token = flow.tokens()["id_token"]
    assert flow.http.get("/oauth/userinfo", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert not flow.is_alive(token)
