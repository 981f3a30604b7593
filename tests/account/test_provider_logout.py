"""Sign-outs at an identity provider end the sessions here (OpenID Connect Back-Channel Logout 1.0)."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.models.audit import AuditEvent
from app.models.second_factor import PendingSignIn
from app.models.session import Session
from app.web.failed_requests import failed_requests
from tests.account.conftest import Visitor
from tests.account.providers import Provider
from tests.account.test_second_step import verify
from tests.factories import PASSWORD
from tests.support.authenticator import with_app
from tests.support.caches import clear_cached_providers
from tests.support.cases import each
from tests.support.https_server import Response
from tests.support.signer import new_key

EVENT = "http://schemas.openid.net/event/backchannel-logout"


def sign_out(provider: Provider, token: str, **more: Any) -> Any:
    """Send a logout token as the provider does."""
    path = f"/organizations/{provider.acme.slug}/oauth/backchannel-logout/example"
    return provider.app.test_client().post(path, data={"logout_token": token}, **more)


def is_signed_in(provider: Provider, visitor: Visitor) -> bool:
    return visitor.get(f"/organizations/{provider.acme.slug}/account/profile").status_code == 200


def ended(provider: Provider) -> list[Any]:
    return [row for row in provider.rows(AuditEvent) if row.action == "session.ended_by_provider"]


@each(
    ("sid", "token", "ends"),
    [
        (None, {}, "both"),
        ("first", {}, "both"),
        ("first", {"sid": "first"}, "first"),
        ("first", {"sid": "first", "sub": None}, "first"),
        ("first", {"sid": "another"}, ""),
        ("first", {"sid": "another", "sub": None}, ""),
        ("first", {"sub": "another"}, ""),
        # Nobody has linked the account, or no longer: see the session that stays when a user unlinks it.
        ("first", {"sid": "first", "sub": "another"}, "first"),
        # The ID token did not say which session it is.
        (None, {"sid": "first"}, "first"),
        (None, {"sid": "first", "sub": None}, ""),
    ],
)
def test_sign_out_ends_sessions_that_began_there(
    app: Flask, provider: Provider, sid: str | None, token: dict[str, Any], ends: str
) -> None:
    """Neither sessions of others nor those that began with a password end."""
    provider.change(create_users=True)
    first, second, stranger, at_home = (Visitor(app) for _ in range(4))
    provider.fake.claims = {"sub": "bob", "email": "bob@acme.example", "email_verified": True, "sid": "bob"}
    provider.sign_in(stranger)
    at_home.sign_in(provider.make.user(provider.acme))
    provider.fake.claims = {"sub": "eve", "email": "eve@acme.example", "email_verified": True}
    sign_out(provider, provider.fake.logout_token())
    provider.fake.changes = {} if sid is None else {"sid": sid}
    provider.sign_in(first)
    provider.fake.changes = {"sid": "second"}
    provider.sign_in(second)
    before = len(ended(provider))
    answer = sign_out(provider, provider.fake.logout_token(**token))
    assert answer.status_code == 200 and answer.json == {}
    assert "no-store" in answer.headers["Cache-Control"]
    assert is_signed_in(provider, first) is not bool(ends)
    assert is_signed_in(provider, second) is (ends != "both")
    assert is_signed_in(provider, stranger) and is_signed_in(provider, at_home)
    events = ended(provider)[before:]
    assert [row.after["sessions"] for row in events] == {"both": [2], "first": [1], "": []}[ends]
    assert all(row.after["provider"] == provider.record.public_id for row in events)
    assert all(row.actor_label == "Example" for row in events)


def test_sign_in_with_the_password_takes_the_session_from_the_provider(
    app: Flask, provider: Provider, visitor: Visitor
) -> None:
    user = provider.make.user(provider.acme, email="grace@acme.example")
    provider.change(link_users=True)
    provider.sign_in(visitor)
    visitor.get(f"/organizations/{provider.acme.slug}/login?reauthenticate=1")
    visitor.post(
        f"/organizations/{provider.acme.slug}/login", email=user.email, password=PASSWORD, reauthenticate="1"
    )
    assert sign_out(provider, provider.fake.logout_token()).status_code == 200
    assert is_signed_in(provider, visitor)


@each("sub", ["248289761001", None])
def test_sign_out_ends_a_sign_in_that_waits_for_its_second_factor(
    provider: Provider, visitor: Visitor, sub: str | None
) -> None:
    provider.change(create_users=True)
    provider.set_policy(mfa={"policy": "required"})
    provider.fake.changes = {"sid": "first"}
    provider.sign_in(visitor)
    assert sign_out(provider, provider.fake.logout_token(sub="another")).status_code == 200
    (waiting,) = provider.rows(PendingSignIn)
    assert waiting.provider_sid == "first"
    assert sign_out(provider, provider.fake.logout_token(sub=sub, sid="first")).status_code == 200
    assert not provider.rows(PendingSignIn)


@pytest.mark.parametrize("has_app", [True, False])
def test_sign_out_ends_a_session_that_a_second_step_completed(
    app: Flask, provider: Provider, visitor: Visitor, has_app: bool
) -> None:
    """A code was entered, or the setup was postponed."""
    user = provider.make.user(provider.acme, email="grace@acme.example")
    provider.change(link_users=True)
    provider.set_policy(mfa={"policy": "required"})
    phone = with_app(app, user) if has_app else None
    path = provider.sign_in(visitor).location
    page = visitor.get(path)
    if phone is not None:
        verify(visitor, page, phone.code())
    else:
        visitor.post(path, later="1")
    assert is_signed_in(provider, visitor)
    sign_out(provider, provider.fake.logout_token())
    assert not provider.rows(Session)


def test_sign_out_while_the_organization_is_suspended_is_not_lost(
    provider: Provider, visitor: Visitor
) -> None:
    """Sessions continue when the organization is resumed."""
    provider.change(create_users=True)
    provider.sign_in(visitor)
    provider.set_organization(status="suspended")
    assert sign_out(provider, provider.fake.logout_token()).status_code == 200
    provider.set_organization(status="active")
    assert not is_signed_in(provider, visitor)


@each(
    ("changes", "header", "says"),
    [
        ({"iss": "https://evil.example"}, {}, "another issuer"),
        ({"aud": "another"}, {}, "another client"),
        ({"aud": ["another", "gatehouse-at-the-provider"]}, {}, "another client"),
        ({"exp": 1_700_000_000}, {}, "expired"),
        ({"exp": None}, {}, "expired"),
        ({"iat": 1_700_000_000}, {}, "just now"),
        ({"iat": None}, {}, "just now"),
        ({"events": None}, {}, "events"),
        ({"events": {EVENT: True}}, {}, "events"),
        ({"events": {"https://evil.example": {}}}, {}, "events"),
        ({"events": [EVENT]}, {}, "events"),
        ({"nonce": "n"}, {}, "nonce"),
        ({"sub": None}, {}, "sub and sid"),
        ({"sub": 5}, {}, "sub and sid"),
        ({"sid": ""}, {}, "sub and sid"),
        ({"sid": "s" * 256}, {}, "sub and sid"),
        ({}, {"typ": "at+jwt"}, "typ"),
        ({}, {"typ": 5}, "typ"),
        ({}, {"alg": "none"}, "algorithm"),
        ({}, {"alg": "HS256"}, "algorithm"),
        ({}, {"crit": ["x"]}, "not a signed JWT"),
        ({}, {"kid": "unknown"}, "signature"),
        (None, {}, "not a signed JWT"),
    ],
)
def test_other_logout_tokens_are_refused(
    provider: Provider, visitor: Visitor, changes: dict[str, Any] | None, header: dict[str, Any], says: str
) -> None:
    """IP-12."""
    if not provider.rows(Session):
        provider.change(create_users=True)
        provider.sign_in(visitor)
    token = "x.y" if changes is None else provider.fake.logout_token(header, **changes)
    answer = sign_out(provider, token)
    assert answer.status_code == 400 and answer.json["error"] == "invalid_request"
    assert says in answer.json["error_description"], answer.json
    assert is_signed_in(provider, visitor)


@each("typ", ["JWT", "logout+jwt", "application/logout+JWT", None])
def test_types_of_older_providers_are_accepted(provider: Provider, visitor: Visitor, typ: str | None) -> None:
    provider.change(create_users=True)
    provider.sign_in(visitor)
    header = {"typ": typ} if typ is not None else {}
    assert sign_out(provider, provider.fake.logout_token(header)).status_code == 200
    assert not is_signed_in(provider, visitor)


def test_logout_tokens_of_new_keys_and_of_unreachable_providers(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True)
    provider.sign_in(visitor)
    clear_cached_providers()
    provider.fake.answers["/keys"] = Response(500)
    unreachable = sign_out(provider, provider.fake.logout_token())
    assert unreachable.status_code == 503 and is_signed_in(provider, visitor)
    clear_cached_providers()
    del provider.fake.answers["/keys"]
    forged = provider.fake.key
    provider.fake.key = new_key()
    token = provider.fake.logout_token()
    provider.fake.key = forged
    assert sign_out(provider, token).status_code == 400 and is_signed_in(provider, visitor)
    assert sign_out(provider, provider.fake.logout_token()).status_code == 200
    assert not provider.rows(Session)


@each(
    ("change", "status"),
    [
        ({"status": "disabled"}, 404),
        ({"slug": "unknown"}, 404),
        ({"body": ""}, 400),
        ({"method": "GET"}, 405),
    ],
)
def test_requests_that_name_no_provider_or_token(
    provider: Provider, visitor: Visitor, change: dict[str, str], status: int
) -> None:
    provider.change(create_users=True, **({"status": "disabled"} if "status" in change else {}))
    path = f"/organizations/{provider.acme.slug}/oauth/backchannel-logout/{change.get('slug', 'example')}"
    sent = {} if "body" in change else {"logout_token": provider.fake.logout_token()}
    sent["client_id"] = provider.make.client(provider.acme).client_id
    answer = visitor.http.open(path, method=change.get("method", "POST"), data=sent)
    assert answer.status_code == status and answer.is_json, answer.text
    with provider.app.app_context():
        assert not failed_requests().write_waiting(), "the log of a client that a stranger names"
