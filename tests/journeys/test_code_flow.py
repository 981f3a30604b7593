"""The code flow of an ordinary OpenID Connect client: Authlib over HTTP, against two workers."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode

import pytest
import requests
from authlib.integrations.base_client.errors import OAuthError
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.journeys.conftest import REDIRECT_URI, VERIFIER, Journey
from tests.support.form_browser import FormBrowser


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def introspected(journey: Journey, token: str) -> dict[str, object]:
    endpoint = journey.metadata()["introspection_endpoint"]
    return requests.post(endpoint, data={"token": token}, headers=journey.client.basic, timeout=60).json()


def test_client_learns_who_signed_in(journey: Journey) -> None:
    session = journey.session()
    tokens = journey.tokens(session, nonce="n-0S6_WzA2Mj")
    metadata = journey.metadata()
    keys = KeySet.import_key_set(requests.get(metadata["jwks_uri"], timeout=60).json())
    decoded = jwt.decode(tokens["id_token"], keys, algorithms=["RS256"])
    options = {
        "iss": {"essential": True, "value": journey.issuer},
        "aud": {"essential": True, "value": journey.client.client_id},
    }
    parameters = {"nonce": "n-0S6_WzA2Mj", "client_id": journey.client.client_id}
    parameters["access_token"] = tokens["access_token"]
    claims = CodeIDToken(decoded.claims, decoded.header, options, parameters)
    claims.validate(leeway=5)
    assert claims["sub"] == journey.user.public_id
    half = hashlib.sha256(tokens["access_token"].encode()).digest()[:16]
    assert claims["at_hash"] == urlsafe_b64encode(half).rstrip(b"=").decode()
    userinfo = session.get(metadata["userinfo_endpoint"]).json()
    assert userinfo["sub"] == claims["sub"]
    assert (userinfo["email"], userinfo["email_verified"]) == (journey.user.email, True)
    assert userinfo["name"] == "Ada Lovelace"


def test_response_names_the_issuer_and_returns_the_state(journey: Journey) -> None:
    session = journey.session()
    page = journey.authorize(session, FormBrowser(journey.server.url), state='a "state" & more')
    assert page.left is not None
    assert page.left.startswith(REDIRECT_URI + "?")
    assert page.query["iss"] == journey.issuer
    assert page.query["state"] == 'a "state" & more'


def test_second_authorization_needs_no_consent(journey: Journey) -> None:
    visitor = FormBrowser(journey.server.url)
    assert journey.authorize(journey.session(), visitor).left is not None
    url, _ = journey.session().create_authorization_url(
        journey.metadata()["authorization_endpoint"], code_verifier=VERIFIER
    )
    assert visitor.visit(url).left is not None


def test_denied_consent_returns_access_denied(journey: Journey) -> None:
    visitor = FormBrowser(journey.server.url)
    url, state = journey.session().create_authorization_url(
        journey.metadata()["authorization_endpoint"], code_verifier=VERIFIER
    )
    page = visitor.sign_in(visitor.visit(url), journey.user.email, journey.user.password)
    denied = visitor.press(page, "consent-deny")
    assert denied.query["error"] == "access_denied"
    assert (denied.query["state"], denied.query["iss"]) == (state, journey.issuer)


def test_refresh_rotates_and_reuse_revokes_the_family(journey: Journey) -> None:
    session = journey.session()
    first = dict(journey.tokens(session))
    endpoint = journey.metadata()["token_endpoint"]
    second = session.refresh_token(endpoint, refresh_token=first["refresh_token"])
    third = session.refresh_token(endpoint, refresh_token=second["refresh_token"])
    assert len({first["refresh_token"], second["refresh_token"], third["refresh_token"]}) == 3
    assert introspected(journey, third["access_token"])["active"] is True
    with pytest.raises(OAuthError) as reuse:
        session.refresh_token(endpoint, refresh_token=first["refresh_token"])
    assert reuse.value.error == "invalid_grant"
    assert introspected(journey, third["access_token"]) == {"active": False}
    with pytest.raises(OAuthError):
        session.refresh_token(endpoint, refresh_token=third["refresh_token"])


def test_refresh_can_be_repeated_within_the_grace_period(journey: Journey) -> None:
    session = journey.session()
    first = dict(journey.tokens(session))
    endpoint = journey.metadata()["token_endpoint"]
    once = dict(session.refresh_token(endpoint, refresh_token=first["refresh_token"]))
    again = dict(session.refresh_token(endpoint, refresh_token=first["refresh_token"]))
    assert again["refresh_token"] == once["refresh_token"]
    assert again["access_token"] == once["access_token"]


def test_introspection_returns_subject_and_expiry(journey: Journey) -> None:
    tokens = journey.tokens(journey.session())
    told = introspected(journey, tokens["access_token"])
    assert told["active"] is True
    assert told["client_id"] == journey.client.client_id
    assert told["sub"] == journey.user.public_id
    assert set(str(told["scope"]).split()) == set(tokens["scope"].split())
    assert isinstance(told["exp"], int)


def test_revoking_a_refresh_token_revokes_its_access_tokens(journey: Journey) -> None:
    session = journey.session()
    tokens = dict(journey.tokens(session))
    metadata = journey.metadata()
    answer = session.revoke_token(
        metadata["revocation_endpoint"], token=tokens["refresh_token"], token_type_hint="refresh_token"
    )
    assert answer.status_code == 200
    assert introspected(journey, tokens["access_token"]) == {"active": False}
    refused = requests.get(metadata["userinfo_endpoint"], headers=bearer(tokens["access_token"]), timeout=60)
    assert refused.status_code == 401
    with pytest.raises(OAuthError) as error:
        session.refresh_token(metadata["token_endpoint"], refresh_token=tokens["refresh_token"])
    assert error.value.error == "invalid_grant"


def test_code_is_valid_only_with_its_own_verifier(journey: Journey) -> None:
    session = journey.session()
    page = journey.authorize(session, FormBrowser(journey.server.url))
    endpoint = journey.metadata()["token_endpoint"]
    with pytest.raises(OAuthError) as error:
        session.fetch_token(endpoint, authorization_response=page.left, code_verifier="x" * 43)
    assert error.value.error == "invalid_grant"
    # A wrong verifier neither consumes nor revokes (CD-6).
    assert session.fetch_token(endpoint, authorization_response=page.left, code_verifier=VERIFIER)


def test_public_client_needs_no_secret(journey: Journey) -> None:
    spa = journey.make.client(
        journey.client.organization, type="spa", redirect_uris=[REDIRECT_URI], scopes=["openid"]
    )
    session = journey.session(
        client_id=spa.client_id, client_secret=None, scope="openid", token_endpoint_auth_method="none"
    )
    assert "id_token" in journey.tokens(session)
