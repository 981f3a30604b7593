"""What the answer of an identity provider must prove (OpenID Connect Core 1.0 section 3.1.3.7)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from flask import Flask

from app.models.audit import AuditEvent
from app.models.identity_provider import LinkedIdentity
from app.models.session import Session
from app.models.user import User
from app.operations.sign_in.identity_providers import create_identity_provider, delete_identity_provider
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store import clock
from app.operations.users.invitations import create_invitation
from app.uptime import uptime
from tests.account.conftest import Visitor
from tests.account.providers import Provider, refusal
from tests.account.test_second_step import REDIRECT_URI, request_of
from tests.support.caches import clear_cached_providers
from tests.support.https_server import Response
from tests.support.identity_provider import CLIENT_SECRET
from tests.support.signer import new_key


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": ["another", "gatehouse-at-the-provider"]},
        {"azp": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1_700_000_000},
        {"iat": 1_700_000_000},
        {"iat": 4_000_000_000},
        {"iat": None},
        {"sub": ""},
        {"sub": None},
        {"sub": "s" * 256},
        {"sub": 5},
        {"sub": "\ud800"},
        {"sub": "né"},
    ],
)
def test_other_id_tokens_are_refused(provider: Provider, visitor: Visitor, changes: Any) -> None:
    provider.change(create_users=True)
    provider.fake.changes = changes
    page = provider.sign_in(visitor)
    assert page.status_code == 400 and "couldn't sign you in" in refusal(page), page.text
    assert not provider.rows(LinkedIdentity) and not provider.rows(Session)


@pytest.mark.parametrize(
    ("document", "changes"),
    [
        ("metadata", {"token_endpoint_auth_methods_supported": 5}),
        ("metadata", {"issuer": ["https://evil.example"]}),
        ("metadata", {"jwks_uri": "https://127.0.0.2/keys"}),
        ("metadata", {"token_endpoint": "http://evil.example/token"}),
        ("metadata", {"issuer": "https://evil.example"}),
        ("keys", {"keys": 5}),
        ("keys", {"keys": [5, {}, {"kty": "oct", "k": "AAAA"}, {"kty": []}]}),
        (
            "keys",
            {"keys": [new_key().as_dict(private=False) | {"use": "enc"}, new_key().as_dict(private=True)]},
        ),
        ("keys", {"keys": [{"kty": "OKP", "crv": "X25519", "x": "MTEx" * 10 + "MTE"}]}),
    ],
)
def test_unusable_configuration_is_refused(
    provider: Provider, visitor: Visitor, document: str, changes: Any
) -> None:
    clear_cached_providers()
    if document == "metadata":
        provider.fake.metadata = changes
    else:
        provider.fake.answers["/keys"] = Response(200, json.dumps(changes).encode())
    visitor.get(f"/organizations/{provider.acme.slug}/login")
    page = visitor.post(f"/organizations/{provider.acme.slug}/login/with/example")
    assert page.status_code == 503 and "can't be reached" in refusal(page)
    # The next visitor causes no further requests, and no further event.
    asked = list(provider.fake.asked)
    visitor.post(f"/organizations/{provider.acme.slug}/login/with/example")
    assert provider.fake.asked == asked
    (failed,) = [row for row in provider.rows(AuditEvent) if row.action == "identity_provider.failed"]
    assert failed.after["problem"].startswith("its metadata could not be read: ") and failed.address


@pytest.mark.parametrize("access_token", ["one\r\nHost: two", "é", ""])
def test_unusable_access_tokens_are_refused(provider: Provider, visitor: Visitor, access_token: str) -> None:
    provider.change(create_users=True)
    provider.fake.claims = {"sub": "one"}
    provider.fake.access_token = access_token
    assert provider.sign_in(visitor).status_code == 403
    assert "/userinfo" not in provider.fake.asked


@pytest.mark.parametrize("is_linking", [False, True])
@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("change", ["disabled", "deleted"])
def test_provider_that_changes_during_a_sign_in_signs_nobody_in(
    provider: Provider, visitor: Visitor, make: Any, change: str, is_linked: bool, is_linking: bool
) -> None:
    provider.change(create_users=True)
    if is_linked:
        provider.sign_in(Visitor(provider.app))
    before = len(provider.rows(User)), len(provider.rows(Session))

    def act() -> None:
        if change == "disabled":
            provider.change(status="disabled")
        else:
            with provider.app.app_context():
                delete_identity_provider(provider.admin, provider.record.public_id)

    provider.fake.on_token = act
    if is_linking:
        user = make.user(provider.acme)
        visitor.sign_in(user)
        before = before[0] + 1, before[1] + 1
        home = f"/organizations/{provider.acme.slug}/account/security/identities"
        visitor.get(home)
        begun = visitor.post(f"{home}/link/example")
        provider.come_back(visitor, provider.fake.authorize(begun.location))
        assert user.id not in {row.user_id for row in provider.rows(LinkedIdentity)}
    else:
        page = provider.sign_in(visitor)
        assert page.status_code in {400, 403} and refusal(page), page.text
    assert before == (len(provider.rows(User)), len(provider.rows(Session)))


def test_keys_of_others_and_weak_algorithms_are_refused_and_new_keys_found(
    provider: Provider, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.change(create_users=True)
    assert provider.sign_in(visitor).status_code == 303
    published = provider.fake.key
    provider.fake.key = new_key()
    provider.fake.answers["/keys"] = Response(
        200, b'{"keys": [%s]}' % _public(published), {"Content-Type": "application/json"}
    )
    assert provider.sign_in(Visitor(provider.app)).status_code == 400
    del provider.fake.answers["/keys"]
    # New keys are looked for once a minute at most.
    provider.fake.rotate_key()
    assert provider.sign_in(Visitor(provider.app)).status_code == 400
    monkeypatch.setattr("app.operations.sign_in.provider_metadata.uptime", lambda: uptime() + 61)
    assert provider.sign_in(Visitor(provider.app)).status_code == 303


def _public(key: Any) -> bytes:
    return json.dumps({**key.as_dict(private=False), "kid": "first"}).encode()


def test_answer_belongs_to_one_browser_and_works_once(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True)
    answer = provider.fake.authorize(provider.begin(visitor))
    stranger = Visitor(provider.app)
    stranger.get(f"/organizations/{provider.acme.slug}/login")
    assert "took too long" in refusal(provider.come_back(stranger, answer))
    assert provider.come_back(visitor, answer).status_code == 303
    assert "took too long" in refusal(provider.come_back(visitor, answer))
    for state in ("", "x", "AAAA", "ä"):
        path = f"/organizations/{provider.acme.slug}/login/with/example/callback"
        page = visitor.get(path, query_string={"state": state, "code": "x", "iss": provider.fake.issuer})
        assert page.status_code == 400 and "took too long" in refusal(page)


@pytest.mark.parametrize(
    "other",
    ["provider", "organization", "restored", "late", "suspended", "another user", "signed out", "ended"],
)
def test_answer_is_valid_only_where_and_while_it_was_asked_for(
    provider: Provider, visitor: Visitor, make: Any, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    provider.change(create_users=True)
    elsewhere = make.organization()

    def end_sessions() -> None:
        with provider.app.app_context():
            end_sessions_of_user(provider.acme.id, provider.rows(Session)[0].user_id)

    with provider.app.app_context():
        create_identity_provider(provider.admin, provider.fake.fields | {"slug": "second"})
        create_identity_provider(make.system(elsewhere), provider.fake.fields | {"create_users": True})
    if is_linking := other in {"another user", "signed out", "ended"}:
        visitor.sign_in(make.user(provider.acme))
        home = f"/organizations/{provider.acme.slug}/account/security/identities"
        visitor.get(home)
        answer = provider.fake.authorize(visitor.post(f"{home}/link/example").location)
    else:
        answer = provider.fake.authorize(provider.begin(visitor))
    status = 400
    if other == "provider":
        answer = answer.replace("/with/example/", "/with/second/")
    elif other == "organization":
        answer = answer.replace(f"/{provider.acme.slug}/", f"/{elsewhere.slug}/")
    elif other == "restored":
        provider.set_organization(restored_at=clock.now() + timedelta(seconds=1))
    elif other == "late":
        now = clock.now() + timedelta(minutes=16)
        monkeypatch.setattr(clock, "now", lambda: now)
    elif other == "suspended":
        provider.set_organization(status="suspended")
        status = 404
    elif other == "another user":
        visitor.post(f"/organizations/{provider.acme.slug}/logout")
        visitor.sign_in(make.user(provider.acme))
        status = 303
    elif other == "signed out":
        visitor.post(f"/organizations/{provider.acme.slug}/logout")
    else:
        provider.fake.on_token = end_sessions
        status = 303
    assert provider.come_back(visitor, answer).status_code == status
    assert not provider.rows(LinkedIdentity)
    # The client secret is sent for no code that another provider may have issued.
    assert "/token" not in provider.fake.asked or is_linking


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": "RS256"},
        {"alg": "ES384"},
        {"alg": ["ES256"]},
        {"alg": None},
        {"crit": ["exp"]},
        {"kid": "another"},
        {"kid": {}},
        {"padding": "x" * 50_000},
    ],
)
def test_other_headers_of_id_tokens_are_refused(provider: Provider, visitor: Visitor, header: Any) -> None:
    provider.change(create_users=True)
    provider.fake.header = header
    assert "couldn't sign you in" in refusal(provider.sign_in(visitor))
    assert not provider.rows(LinkedIdentity)


def test_answer_of_another_issuer_or_with_an_error_is_refused(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True)
    answer = provider.fake.authorize(provider.begin(visitor))
    mixed_up = answer.replace("iss=https", "iss=http")
    assert "couldn't sign you in" in refusal(provider.come_back(visitor, mixed_up))
    for error, reason in (("access_denied", "cancelled"), ("server_error", "couldn't sign you in")):
        provider.fake.error = error
        assert reason in refusal(provider.sign_in(visitor))


def test_administrators_read_what_the_provider_said(provider: Provider, visitor: Visitor) -> None:
    # IP-9: no secret is in an event, also if the provider repeats it.
    said = {"error": "invalid_client", "error_description": f"The secret {CLIENT_SECRET} has\nexpired."}
    provider.fake.answers["/token"] = Response(401, json.dumps(said).encode())
    provider.sign_in(visitor)
    # Whoever begins a sign-in can return with any error: administrators must not read a stranger's text.
    for error in ("unauthorized_client", "Secret expired: enter it at evil.example", "access_denied"):
        provider.fake.error = error
        provider.sign_in(visitor)
    failures = [row for row in provider.rows(AuditEvent) if row.action == "identity_provider.failed"]
    assert [(row.target_id, row.after["problem"]) for row in failures] == [
        (
            provider.record.public_id,
            "the token endpoint answered 401 'invalid_client' 'The secret (client secret) has\\nexpired.'",
        ),
        (provider.record.public_id, "the user's browser returned with the error 'unauthorized_client'"),
        (provider.record.public_id, "the user's browser returned with an unknown error"),
    ]


def test_email_of_the_userinfo_endpoint_counts(provider: Provider) -> None:
    """The name may be in the ID token or there, too."""
    provider.change(create_users=True)
    for named_in in ("claims", "userinfo"):
        email = f"{named_in}@acme.example"
        provider.fake.claims = {"sub": named_in}
        provider.fake.userinfo = {"email": email, "email_verified": True}
        getattr(provider.fake, named_in)["name"] = "Grace"
        assert provider.sign_in(Visitor(provider.app)).status_code == 303
        assert {row.email: row.name for row in provider.rows(User)}[email] == "Grace", named_in
    provider.fake.userinfo["sub"] = provider.fake.claims["sub"] = "two"
    provider.fake.userinfo["sub"] = "another"
    assert provider.sign_in(Visitor(provider.app)).status_code == 400


def test_provider_that_is_disabled_meanwhile_leads_back_to_the_other_ways(
    provider: Provider, visitor: Visitor, make: Any, app: Flask
) -> None:
    """Before the button is pressed, at the provider, with an invitation and while linking an account."""
    client = make.client(provider.acme, redirect_uris=[REDIRECT_URI])
    page = visitor.http.get("/oauth/authorize", query_string=request_of(client)).location
    asked = dict(parse_qsl(urlsplit(page).query))
    with app.app_context():
        link = create_invitation(provider.admin, provider.acme.slug, email="bob@acme.example").link
    home, token = f"/organizations/{provider.acme.slug}", str(link).rpartition("/")[2]
    invited = provider.begin(visitor, invitation=token)
    answer = provider.fake.authorize(provider.begin(visitor, **asked))
    linking = Visitor(app)
    linking.sign_in(make.user(provider.acme))
    linking.get(f"{home}/account/security/identities")
    linked = linking.post(f"{home}/account/security/identities/link/example").location
    linking.get(f"{home}/account/security/identities")
    provider.change(status="disabled")
    for page in (provider.come_back(visitor, answer), visitor.post(f"{home}/login/with/example", **asked)):
        assert page.status_code == 404 and "no longer available" in refusal(page)
        assert f'name="request" value="{asked["request"]}"' in page.text and 'id="password"' in page.text
    found = [provider.come_back(visitor, provider.fake.authorize(invited)).location]
    visitor.get(f"{home}/login")
    found.append(visitor.post(f"{home}/login/with/example", invitation=token).location)
    for location in found:
        assert urlsplit(location).path.endswith(token), location
        assert "no longer available" in refusal(visitor.get(location))
    linking.post(f"{home}/account/security/identities/link/example")
    assert "no longer available" in linking.get(f"{home}/account/security/identities").text
    provider.come_back(linking, provider.fake.authorize(linked))
    assert "no longer available" in linking.get(f"{home}/account/security/identities").text
    assert Visitor(app).http.get(f"{home}/login/with/example/callback").status_code == 404
