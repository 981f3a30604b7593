"""Userinfo: the claims of the token's scopes, for valid tokens meant for this issuer."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.user import User
from app.operations.store.transactions import transaction
from tests.factories import Factory, bearer_header
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, Flow
from tests.oauth.test_id_token import claims_of, decoded

pytestmark = pytest.mark.either


def ask(flow: Flow, token: str, path: str = "/oauth/userinfo"):
    return flow.http.get(path, headers=bearer_header(token))


@pytest.mark.parametrize(
    ("scope", "claims"),
    [
        ("openid", {"sub"}),
        ("openid email", {"sub", "email", "email_verified"}),
        ("openid profile", {"sub", "name", "updated_at"}),
        ("openid offline_access", {"sub"}),
    ],
)
def test_scopes_release_only_their_claims(flow: Flow, scope: str, claims: set[str]) -> None:
    """OIDC Core 5.4; right types, no nulls."""
    answer = ask(flow, flow.tokens(scope=scope)["access_token"])
    document = answer.get_json()
    assert answer.status_code == 200
    assert set(document) == claims
    assert document["sub"] == flow.user.public_id
    assert document.get("email_verified", True) is True
    assert isinstance(document.get("updated_at", 0), int)


def test_user_claims_do_not_overwrite_protocol_claims(flow: Flow) -> None:
    """OI-2."""

    @transaction
    def poison() -> None:
        profile = {
            "sub": "usr_root",
            "email": "root@x",
            "iss": "evil",
            "nickname": "A",
            "email_verified": False,
        }
        db.session.execute(update(User).where(User.id == flow.user.id).values(profile=profile))

    with flow.app.app_context():
        poison()
    document = ask(flow, flow.tokens(scope="openid profile email")["access_token"]).get_json()
    assert (document["sub"], document["email"]) == (flow.user.public_id, flow.user.email)
    assert document["email_verified"] is True and "iss" not in document


def test_token_is_accepted_in_the_header_or_a_form(flow: Flow) -> None:
    token = flow.tokens()["access_token"]
    answers = [
        ask(flow, token),
        ask(flow, token, f"/organizations/{flow.organization.slug}/oauth/userinfo"),
        flow.http.get("/oauth/userinfo", headers={"Authorization": f"bearer {token}"}),
        flow.http.post("/oauth/userinfo", headers=bearer_header(token)),
        flow.http.post("/oauth/userinfo", data={"access_token": token}),
    ]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert len({answer.data for answer in answers}) == 1


@pytest.mark.parametrize("place", ["address", "form of a GET", "JSON", "multipart"])
def test_token_is_rejected_elsewhere(flow: Flow, place: str) -> None:
    """RFC 6750; URLs end up in logs."""
    own = {"access_token": flow.tokens()["access_token"]}
    answer = {
        "address": lambda: flow.http.get("/oauth/userinfo", query_string=own),
        "form of a GET": lambda: flow.http.get("/oauth/userinfo", data=own),
        "JSON": lambda: flow.http.post("/oauth/userinfo", json=own),
        "multipart": lambda: flow.http.post("/oauth/userinfo", data=own, content_type="multipart/form-data"),
    }[place]()
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="gatehouse"', "no error code without a token"


def test_token_sent_twice_is_an_invalid_request(flow: Flow) -> None:
    token = flow.tokens()["access_token"]
    both = flow.http.post("/oauth/userinfo", data={"access_token": token}, headers=bearer_header(token))
    assert (both.status_code, both.get_json()["error"]) == (400, "invalid_request")
    body = f"access_token={token}&access_token={token}"
    kind = "application/x-www-form-urlencoded"
    assert flow.http.post("/oauth/userinfo", data=body, content_type=kind).status_code == 400


def test_userinfo_with_an_invalid_token_returns_401(flow: Flow) -> None:
    tokens = flow.tokens()
    flow.http.post("/oauth/revoke", data={"token": tokens["refresh_token"]}, headers=flow.client.basic)
    for token in (
        tokens["access_token"],
        tokens["refresh_token"],
        tokens["id_token"],
        "x",
        flow.client.secret,
    ):
        answer = ask(flow, token)
        assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_token")
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="gatehouse", error="invalid_token"'


def test_token_without_openid_gets_403_insufficient_scope(flow: Flow) -> None:
    answer = ask(flow, flow.tokens(scope="profile email")["access_token"])
    assert (answer.status_code, answer.get_json()["error"]) == (403, "insufficient_scope")
    assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]


def test_token_of_another_organization_is_unknown(flow: Flow, make: Factory) -> None:
    """TN-6."""
    there = make.organization(settings=FAST_KEYS)
    token = flow.tokens()["access_token"]
    assert ask(flow, token, f"/organizations/{there.slug}/oauth/userinfo").status_code == 401


def test_token_for_another_resource_is_rejected(flow: Flow) -> None:
    """TK-6: a token that is only for an API."""
    other = flow.other_client(
        scopes=["openid", "reports:read"],
        resources=["https://api.example"],
        redirect_uris=[REDIRECT_URI],
        trust="first_party",
    )
    tokens = other.tokens(scope="reports:read")
    assert other.introspect(tokens["access_token"])["aud"] == "https://api.example"
    assert ask(other, tokens["access_token"]).status_code in {401, 403}
    assert ask(other, other.tokens(scope="openid")["access_token"]).status_code == 200


def test_response_is_not_cacheable(flow: Flow) -> None:
    assert ask(flow, flow.tokens()["access_token"]).headers["Cache-Control"] == "no-store"


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_signed_response_is_a_jwt(flow: Flow, algorithm: str) -> None:
    """OIDC Core 5.3.2: ``iss``, ``aud`` and the media type; the same claims."""
    other = flow.other_client(
        userinfo_signed_response_alg=algorithm, redirect_uris=[REDIRECT_URI], trust="first_party"
    )
    tokens = other.tokens(scope="openid email")
    answer = ask(other, tokens["access_token"])
    assert (answer.status_code, answer.content_type) == (200, "application/jwt")
    assert answer.headers["Cache-Control"] == "no-store"
    token = decoded(other, answer.text)
    assert token.header["alg"] == algorithm
    assert dict(token.claims) == {
        "iss": flow.issuer,
        "aud": other.client.client_id,
        "sub": claims_of(other, tokens["id_token"])["sub"],
        "email": flow.user.email,
        "email_verified": True,
    }
