"""Logout hints: without a valid one, logout needs confirmation or shows an error page."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest
from sqlalchemy import update

from app.extensions import db
from app.models.token import SigningKey
from app.operations.clients import clients
from app.operations.grants import signing_keys
from app.operations.store import clock
from app.operations.store.transactions import transaction
from tests.factories import Factory
from tests.oauth.conftest import Flow, location
from tests.oauth.test_logout import BACK, is_question, is_signed_in, logout

pytestmark = pytest.mark.either


@pytest.fixture
def leaving(flow: Flow) -> Flow:
    """A flow whose client has a post-logout redirect URI; the user is signed in."""
    return flow.other_client(
        trust="first_party",
        redirect_uris=flow.client.registered.client.redirect_uris,
        post_logout_redirect_uris=[BACK],
    )


def tampered(token: str) -> str:
    head, payload, signature = token.split(".")
    return f"{head}.{payload}.{('A' if signature[0] != 'A' else 'B') + signature[1:]}"


def with_header(token: str, **fields: object) -> str:
    _, payload, signature = token.split(".")
    header = json.dumps({"typ": "JWT", "alg": "ES256"} | fields).encode()
    return f"{urlsafe_b64encode(header).rstrip(b'=').decode()}.{payload}.{signature}"


def test_invalid_hint_is_ignored(leaving: Flow, make: Factory) -> None:
    """OR-4: another organization's, another client's, an access token, a forged one."""
    own = leaving.tokens()["id_token"]
    organization = leaving.organization
    claims = {"iss": organization.issuer, "aud": leaving.client.client_id, "sub": leaving.user.public_id}
    with leaving.app.app_context():
        access = signing_keys.sign_jwt(
            organization, "ES256", claims | {"auth_time": 1, "at_hash": "x"}, token_type="at+jwt"
        )
    other = leaving.other_client(
        trust="first_party", redirect_uris=leaving.client.registered.client.redirect_uris
    )
    for hint, named in (
        (tampered(own), leaving.client.client_id),
        (own, other.client.client_id),
        (other.tokens()["id_token"], leaving.client.client_id),
        (access, leaving.client.client_id),
        ("", leaving.client.client_id),
        ("a.b", leaving.client.client_id),
        (own * 20, leaving.client.client_id),
        ("ä" * 10, leaving.client.client_id),
        (with_header(own, kid=[]), leaving.client.client_id),
    ):
        page = logout(leaving, id_token_hint=hint, client_id=named, post_logout_redirect_uri=BACK)
        assert is_question(page), hint[:20]
    assert is_signed_in(leaving)


def test_hint_and_client_are_unknown_at_another_organization(leaving: Flow, make: Factory) -> None:
    """MX-3."""
    hint = leaving.tokens()["id_token"]
    elsewhere = make.organization()
    answer = logout(
        leaving,
        path=f"/organizations/{elsewhere.slug}/oauth/logout",
        id_token_hint=hint,
        post_logout_redirect_uri=BACK,
    )
    assert location(answer) == f"/organizations/{elsewhere.slug}/logout"
    assert is_signed_in(leaving)


def test_expired_hint_of_a_retired_key_is_accepted(leaving: Flow) -> None:
    """OIDC RP-Initiated Logout section 2: the OP should accept ID tokens that have expired."""
    hint = leaving.tokens()["id_token"]

    @transaction
    def retire() -> None:
        db.session.execute(
            update(SigningKey).values(state="retired", slot=None, retired_at=clock.now(), remove_at=None)
        )

    with leaving.app.app_context():
        retire()
        expired = {"exp": 1, "iat": 1, "auth_time": 1, "at_hash": "x", "aud": leaving.client.client_id}
        old = signing_keys.sign_jwt(
            leaving.organization,
            "ES256",
            {"iss": leaving.issuer, "sub": leaving.user.public_id, **expired},
            token_type="JWT",
        )
    assert location(logout(leaving, id_token_hint=old, post_logout_redirect_uri=BACK)) == BACK
    leaving.sign_in()
    assert location(logout(leaving, id_token_hint=hint, post_logout_redirect_uri=BACK)) == BACK


def test_logout_does_not_redirect_to_a_disabled_client(leaving: Flow) -> None:
    hint = leaving.tokens()["id_token"]
    with leaving.app.app_context():
        admin = leaving.make.actor(leaving.organization)
        clients.update_client(admin, leaving.client.client_id, {"status": "disabled"})
    page = logout(
        leaving,
        id_token_hint=hint,
        post_logout_redirect_uri=BACK,
        path=f"/organizations/{leaving.organization.slug}/oauth/logout",
    )
    assert is_question(page)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/oauth/logout", ""),
        ("/oauth/logout", "id_token_hint=x.y.z"),
        ("/oauth/logout", "client_id=nobody"),
        ("/oauth/logout", "state=a&state=b"),
        ("/oauth/logout", "id_token_hint=%ff"),
        ("/oauth/logout", "id_token_hint=%00"),
        ("/oauth/logout", "client_id=https%3A%2F%2Fnobody.example%2Fclient"),
        ("/oauth/logout", f"id_token_hint=a.{'A' * 9000}.b"),
    ],
)
def test_request_without_information_shows_a_page(leaving: Flow, path: str, query: str) -> None:
    """Never a 500, whatever is missing; by GET and by POST."""
    for answer in (
        leaving.http.get(f"{path}?{query}"),
        leaving.http.post(path, data=query, content_type="application/x-www-form-urlencoded"),
    ):
        assert answer.status_code == 400, answer.text[:500]
        assert 'id="error-title"' in answer.text
    assert is_signed_in(leaving)


def test_other_content_type_and_unknown_organization_show_a_page(leaving: Flow) -> None:
    assert leaving.http.post("/oauth/logout", json={"a": 1}).status_code == 400
    assert leaving.http.get("/organizations/nobody/oauth/logout").status_code == 404
