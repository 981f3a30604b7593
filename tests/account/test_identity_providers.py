"""Signing in with an identity provider, creating and linking accounts, and what an answer must prove."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import AuditEvent
from app.models.grant import AuthorizationRequest
from app.models.identity_provider import IdentityProvider, LinkedIdentity
from app.models.organization import Organization
from app.models.session import Session
from app.models.user import User
from app.operations.maintenance.exported_events import ExportedEvent, end_again
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.identity_providers import (
    clear_cached_providers,
    create_identity_provider,
    delete_identity_provider,
    update_identity_provider,
)
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.users.invitations import create_invitation
from app.rules.errors import Conflict
from app.rules.identifiers import public_id
from app.rules.organizations.lockout_prevention import WouldLockOut
from tests.account.conftest import Visitor
from tests.account.test_second_step import REDIRECT_URI, request_of
from tests.support.https_server import Response, reaching
from tests.support.identity_provider import FakeProvider, identity_provider
from tests.support.signer import new_key


@dataclass
class Provider:
    """The provider of Acme, and Acme's record of it."""

    app: Flask
    make: Any
    acme: Any
    fake: FakeProvider
    record: Any
    admin: Any

    def change(self, **fields: Any) -> None:
        """Change fields of the record."""
        with self.app.app_context():
            update_identity_provider(self.admin, self.record.public_id, fields)

    def set_policy(self, **authentication: Any) -> None:
        """Change settings of the organization below ``authentication``."""
        with self.app.app_context():
            update_settings(self.make.system(self.acme), self.acme.slug, {"authentication": authentication})

    def begin(self, visitor: Visitor, **parameters: str) -> str:
        """Press the button of the sign-in page, and return the URL of the provider."""
        home = f"/organizations/{self.acme.slug}"
        page = visitor.get(f"{home}/login", query_string=parameters)
        assert "Continue with Example" in page.text, page.text
        begun = visitor.post(f"{home}/login/with/example", **parameters)
        assert begun.status_code == 303, begun.text
        return begun.location

    def sign_in(self, visitor: Visitor, **parameters: str) -> Any:
        """Sign in with the provider, and return the answer to the browser."""
        return self.come_back(visitor, self.fake.authorize(self.begin(visitor, **parameters)))

    def come_back(self, visitor: Visitor, url: str) -> Any:
        """Follow the provider's redirect."""
        parts = urlsplit(url)
        visitor.page = visitor.http.get(
            f"{parts.path}?{parts.query}", headers={"Sec-Fetch-Site": "cross-site"}
        )
        return visitor.page

    def rows(self, model: Any) -> list[Any]:
        """Return all rows of the organization."""
        with self.app.app_context():
            return list(db.session.scalars(select(model).where(model.organization_id == self.acme.id)))

    def set_organization(self, **values: Any) -> None:
        """Set the values in the row of the organization."""

        @transaction
        def act() -> None:
            db.session.execute(update(Organization).where(Organization.id == self.acme.id).values(**values))
            cache_invalidation.invalidate(self.acme.id)

        with self.app.app_context():
            act()

    def set(self, model: Any, **values: Any) -> None:
        """Set the values in every row of the organization."""

        @transaction
        def act() -> None:
            db.session.execute(update(model).where(model.organization_id == self.acme.id).values(**values))

        with self.app.app_context():
            act()


@pytest.fixture
def provider(app: Flask, make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    clear_cached_providers()
    with identity_provider() as fake:
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], fake.server))
        admin = make.actor(acme, user=make.user(acme, role="admin"))
        with app.app_context():
            record = create_identity_provider(admin, fake.fields)
        yield Provider(app, make, acme, fake, record, admin)


def refusal(page: Any) -> str:
    """Return the reason that the sign-in page shows."""
    return page.text.partition('id="refusal">')[2].partition("</p>")[0]


def test_first_sign_in_creates_user_and_later_ones_find_them(provider: Provider, app: Flask) -> None:
    provider.change(create_users=True)
    first = provider.sign_in(Visitor(app))
    assert (first.status_code, first.location) == (303, f"/organizations/{provider.acme.slug}/account"), (
        first.text
    )
    (user,) = [row for row in provider.rows(User) if row.email == "grace@acme.example"]
    assert (user.name, user.email_verified, user.password_hash) == ("Grace Hopper", True, None)
    # The account is known by its subject: another email, even that of another user, changes nothing.
    provider.fake.claims |= {"email": provider.admin.label, "email_verified": True}
    visitor = Visitor(app)
    assert provider.sign_in(visitor).status_code == 303
    assert "grace@acme.example" in visitor.get(f"/organizations/{provider.acme.slug}/account/profile").text
    assert {row.user_id for row in provider.rows(Session)} == {user.id}
    assert {row.amr for row in provider.rows(Session)} == {"fed"}
    actions = [row.action for row in provider.rows(AuditEvent)]
    assert {"user.registered", "identity.linked", "session.started"} <= set(actions)


def test_answer_returns_to_the_page_that_asked(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True)
    there = f"/organizations/{provider.acme.slug}/account/security"
    assert provider.sign_in(visitor, next=there).location == there
    assert (
        provider.sign_in(Visitor(provider.app), next="https://evil.example/").location
        != "https://evil.example/"
    )


@pytest.mark.parametrize(
    ("fields", "claims", "reason"),
    [
        ({}, {}, "isn't linked"),
        ({"create_users": True}, {"email_verified": False}, "didn't confirm"),
        ({"create_users": True}, {"email_verified": None}, "didn't confirm"),
        ({"create_users": True, "trust_emails": True}, {"email_verified": False}, "didn't confirm"),
        ({"create_users": True}, {"email": "no address"}, "didn't confirm"),
        ({"create_users": True}, {"email": "ada@acme.example"}, "already an account"),
        ({"create_users": True}, {"email": "eve@evil.example"}, "from your domain"),
        ({"link_users": True}, {}, "isn't linked"),
        ({"link_users": True}, {"email": "ada@acme.example", "email_verified": "false"}, "didn't confirm"),
        ({"link_users": True}, {"email": "unproven@acme.example"}, "already an account"),
        ({"link_users": True}, {"email": "disabled@acme.example"}, "disabled"),
        ({"link_users": True}, {"email": "auditor@acme.example"}, "already an account"),
    ],
)
def test_people_without_account_are_refused(
    provider: Provider, visitor: Visitor, make: Any, fields: Any, claims: Any, reason: str
) -> None:
    make.user(provider.acme, email="ada@acme.example")
    make.user(provider.acme, email="auditor@acme.example", role="auditor")
    for name, values in (("unproven", {"email_verified": False}), ("disabled", {"status": "disabled"})):
        made = make.user(provider.acme, email=f"{name}@acme.example")

        @transaction
        def act(made: Any = made, values: Any = values) -> None:
            db.session.execute(update(User).where(User.id == made.id).values(**values))

        with provider.app.app_context():
            act()
    if fields:
        provider.change(**fields)
    provider.set_policy(registration={"allowed_email_domains": ["acme.example"]})
    provider.fake.claims |= claims
    page = provider.sign_in(visitor)
    assert page.status_code == 403 and reason in refusal(page), page.text
    assert not provider.rows(LinkedIdentity) and not provider.rows(Session)
    assert [row.after["reason"] for row in provider.rows(AuditEvent) if row.action == "sign_in.failed"]


@pytest.mark.parametrize(("role", "status"), [("admin", 403), ("auditor", 403), ("member", 303)])
def test_verified_email_never_links_a_user_with_permissions(
    provider: Provider, visitor: Visitor, make: Any, role: str, status: int
) -> None:
    """Whoever may change settings could become an administrator with a provider of their own."""
    make.user(provider.acme, email="grace@acme.example", role=role)
    provider.change(link_users=True)
    page = provider.sign_in(visitor)
    assert page.status_code == status
    assert status == 303 or "already an account" in refusal(page)


def test_second_account_with_the_email_of_a_linked_user_is_refused(
    provider: Provider, visitor: Visitor, make: Any
) -> None:
    make.user(provider.acme, email="grace@acme.example")
    provider.change(link_users=True)
    provider.sign_in(visitor)
    provider.fake.claims["sub"] = "another"
    page = provider.sign_in(Visitor(provider.app))
    assert page.status_code == 403 and "another account of Example" in refusal(page), page.text


def test_verified_email_links_existing_user(provider: Provider, visitor: Visitor, make: Any) -> None:
    user = make.user(provider.acme, email="Grace@Acme.example")
    provider.change(link_users=True, trust_emails=True)
    del provider.fake.claims["email_verified"]
    assert provider.sign_in(visitor).status_code == 303
    (linked,) = provider.rows(LinkedIdentity)
    assert (linked.user_id, linked.subject) == (user.id, "248289761001")


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
    # The next visitor causes no further requests.
    asked = list(provider.fake.asked)
    visitor.post(f"/organizations/{provider.acme.slug}/login/with/example")
    assert provider.fake.asked == asked


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
    monkeypatch.setattr("app.operations.sign_in.provider_metadata.KEY_REFRESH_INTERVAL", timedelta())
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


def test_disabled_user_and_too_many_answers_are_refused(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True)
    provider.sign_in(visitor)
    provider.set(User, status="disabled")
    page = provider.sign_in(Visitor(provider.app))
    assert page.status_code == 403 and "is disabled" in refusal(page)
    answers = [provider.sign_in(Visitor(provider.app)).status_code for _ in range(60)]
    assert set(answers) == {403, 429}


def test_answer_of_another_issuer_or_with_an_error_is_refused(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True)
    answer = provider.fake.authorize(provider.begin(visitor))
    mixed_up = answer.replace("iss=https", "iss=http")
    assert "couldn't sign you in" in refusal(provider.come_back(visitor, mixed_up))
    for error, reason in (("access_denied", "cancelled"), ("server_error", "couldn't sign you in")):
        provider.fake.error = error
        assert reason in refusal(provider.sign_in(visitor))


def test_unreachable_provider_is_named(provider: Provider, visitor: Visitor) -> None:
    provider.fake.answers["/token"] = Response(500)
    assert "couldn't sign you in" in refusal(provider.sign_in(visitor))
    clear_cached_providers()
    provider.fake.answers["/tenant/.well-known/openid-configuration"] = Response(503)
    visitor.get(f"/organizations/{provider.acme.slug}/login")
    page = visitor.post(f"/organizations/{provider.acme.slug}/login/with/example")
    assert page.status_code == 503 and "can't be reached" in refusal(page)


def test_email_of_the_userinfo_endpoint_counts(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True)
    provider.fake.claims = {"sub": "one"}
    provider.fake.userinfo = {"email": "grace@acme.example", "email_verified": True, "name": "Grace"}
    assert provider.sign_in(visitor).status_code == 303
    provider.fake.userinfo["sub"] = provider.fake.claims["sub"] = "two"
    provider.fake.userinfo["sub"] = "another"
    assert provider.sign_in(Visitor(provider.app)).status_code == 400


@pytest.mark.parametrize(
    ("changes", "ago"),
    [
        ({"is_root": True}, timedelta(days=1)),
        ({"sessions_not_before": timedelta(seconds=30)}, timedelta(seconds=30)),
        ({"tokens_valid_from": timedelta(seconds=30)}, timedelta(seconds=30)),
    ],
    ids=["root acts where a day is recent", "sessions were ended", "tokens were ended"],
)
def test_silent_sign_in_is_as_old_as_possible(
    provider: Provider, visitor: Visitor, changes: Any, ago: timedelta
) -> None:
    """PO-4: the provider may have asked nothing, so it confirms nothing."""
    provider.change(create_users=True)
    values = {name: clock.now() - value if name != "is_root" else value for name, value in changes.items()}
    provider.set_organization(**values)
    answer = provider.fake.authorize(provider.begin(visitor))
    provider.come_back(visitor, answer)
    (session,) = provider.rows(Session)
    assert ago <= clock.now() - session.authenticated_at < ago + timedelta(minutes=1)


def test_sign_in_outlives_the_request_of_the_app(provider: Provider, visitor: Visitor, make: Any) -> None:
    provider.change(create_users=True)
    asked = visitor.http.get(
        "/oauth/authorize", query_string=request_of(make.client(provider.acme, redirect_uris=[REDIRECT_URI]))
    )
    token = parse_qs(urlsplit(asked.location).query)["request"][0]
    url = provider.begin(visitor, request=token)
    provider.set(AuthorizationRequest, completed_at=clock.now())
    page = provider.come_back(visitor, provider.fake.authorize(url))
    assert (page.status_code, page.location) == (303, f"/organizations/{provider.acme.slug}/account")
    assert visitor.get(page.location + "/profile").status_code == 200


@pytest.mark.parametrize("demand", [{"prompt": "login"}, {"max_age": "60"}, {"prompt": "create"}])
def test_silent_sign_in_meets_no_demand_for_a_new_one(
    provider: Provider, visitor: Visitor, make: Any, demand: dict[str, str]
) -> None:
    """SS-7: not if it was made beside the request of the app, which asks the provider to sign the user in again."""
    provider.change(create_users=True)
    provider.set_policy(registration={"mode": "open"})
    client = make.client(provider.acme, redirect_uris=[REDIRECT_URI])
    asked = visitor.http.get("/oauth/authorize", query_string={**request_of(client), **demand})
    token = parse_qs(urlsplit(asked.location).query)["request"][0]
    resume = f"/organizations/{provider.acme.slug}/oauth/authorize/resume"
    provider.sign_in(visitor)
    again = visitor.http.get(resume, query_string={"request": token})
    assert urlsplit(again.location or "").path.rpartition("/")[2] in {"login", "register"}, again.text
    done = provider.sign_in(visitor, request=token)
    assert urlsplit(done.location).path == resume
    asking = visitor.http.get(done.location)
    assert asking.status_code == 200 and "consent" in asking.text


def test_head_request_completes_nothing(provider: Provider, visitor: Visitor) -> None:
    provider.change(create_users=True)
    answer = provider.fake.authorize(provider.begin(visitor))
    parts = urlsplit(answer)
    assert visitor.http.head(f"{parts.path}?{parts.query}").status_code == 405
    assert provider.come_back(visitor, answer).status_code == 303


def test_second_factor_is_still_required(provider: Provider, visitor: Visitor, make: Any) -> None:
    """MF-6: no path skips the organization's policy."""
    provider.set_policy(mfa={"policy": "required"})
    provider.change(create_users=True)
    page = provider.sign_in(visitor)
    assert page.status_code == 303 and "/login/enrol?" in page.location
    assert not provider.rows(Session)


@pytest.mark.parametrize(
    ("auth_time_ago", "status"),
    [(None, 303), (5, 303), (3600, 403)],
    ids=["unsaid", "just now", "an hour ago"],
)
def test_reauthentication_asks_the_provider_to_sign_in_again(
    provider: Provider, visitor: Visitor, auth_time_ago: int | None, status: int
) -> None:
    provider.change(create_users=True)
    provider.sign_in(visitor)
    # The provider may have asked nothing, so the sign-in is not recent.
    assert all(clock.now() - row.authenticated_at > timedelta(minutes=9) for row in provider.rows(Session))
    url = provider.begin(visitor, reauthenticate="1")
    sent = parse_qs(urlsplit(url).query)
    assert (sent["prompt"], sent["max_age"]) == (["login"], ["0"])
    if auth_time_ago is not None:
        provider.fake.claims["auth_time"] = int(clock.now().timestamp()) - auth_time_ago
    assert provider.come_back(visitor, provider.fake.authorize(url)).status_code == status
    if status == 303:
        (session,) = provider.rows(Session)
        assert clock.now() - session.authenticated_at < timedelta(minutes=1)


def test_user_links_and_unlinks_an_account(provider: Provider, visitor: Visitor, make: Any) -> None:
    home = f"/organizations/{provider.acme.slug}/account/security"
    user = make.user(provider.acme)
    visitor.sign_in(user)
    assert "Link an account" in visitor.get(home).text
    visitor.get(f"{home}/identities")
    begun = visitor.post(f"{home}/identities/link/example")
    answer = provider.fake.authorize(begun.location)
    # Another user's browser cannot link it, even with the same answer.
    other = Visitor(provider.app)
    other.sign_in(make.user(provider.acme))
    provider.come_back(other, answer)
    assert not provider.rows(LinkedIdentity)
    assert provider.come_back(visitor, answer).location == f"{home}/identities"
    page = visitor.get(f"{home}/identities").text
    assert "Linked. You can sign in" in page and "grace@acme.example" in page
    (linked,) = provider.rows(LinkedIdentity)
    assert linked.user_id == user.id
    assert provider.sign_in(Visitor(provider.app)).status_code == 303
    # It cannot be linked to someone else.
    third = Visitor(provider.app)
    third.sign_in(make.user(provider.acme))
    third.get(f"{home}/identities")
    provider.come_back(third, provider.fake.authorize(third.post(f"{home}/identities/link/example").location))
    assert "linked to another user" in third.get(f"{home}/identities").text
    remove = page.partition(f"{home}/identities/idn_")[2].partition("/")[0]
    assert visitor.post(f"{home}/identities/idn_{remove}/remove").status_code == 303
    assert not provider.rows(LinkedIdentity)
    assert len(provider.rows(Session)) == 3  # The session of the provider has ended (SS-6).


@pytest.mark.parametrize("action", ["link/example", "remove"])
def test_linking_and_unlinking_require_a_recent_sign_in(
    provider: Provider, visitor: Visitor, make: Any, action: str
) -> None:
    provider.change(create_users=True)
    provider.sign_in(visitor)  # A silent one, so it is not recent.
    home = f"/organizations/{provider.acme.slug}/account/security/identities"
    page = visitor.get(home).text
    if action == "remove":
        action = f"idn_{page.partition(f'{home}/idn_')[2].partition('/')[0]}/remove"
    asked = visitor.post(f"{home}/{action}")
    assert asked.status_code == 303 and "reauthenticate=1" in asked.location
    assert provider.rows(LinkedIdentity)


@pytest.mark.parametrize(
    "policy",
    [
        {"password": {"enabled": False}, "passkeys": {"enabled": False}},
        {"recovery": {"password_reset": False}},
    ],
    ids=["no passwords", "no resets"],
)
def test_only_way_to_sign_in_cannot_be_unlinked(provider: Provider, visitor: Visitor, policy: Any) -> None:
    home = f"/organizations/{provider.acme.slug}/account/security"
    provider.change(create_users=True)
    provider.sign_in(visitor)
    provider.sign_in(visitor, reauthenticate="1")
    provider.set_policy(**policy)
    page = visitor.get(f"{home}/identities").text
    remove = page.partition(f"{home}/identities/idn_")[2].partition("/")[0]
    refused = visitor.post(f"{home}/identities/idn_{remove}/remove")
    assert refused.status_code == 409 and "only way to sign in" in refused.text
    assert provider.rows(LinkedIdentity)


def test_links_that_ended_after_a_backup_end_again(provider: Provider, visitor: Visitor) -> None:
    """BK-2: a restored backup has the links and the provider that were removed after it was made."""
    provider.change(create_users=True)
    provider.sign_in(visitor)
    (linked,) = provider.rows(LinkedIdentity)
    user, identity = public_id("usr", linked.user_id), public_id("idn", linked.id)

    def happened(number: int, action: str, target: str, **before: str) -> ExportedEvent:
        event_id = f"evt_01JDZ8W000000000000000000{number}"
        at = f"2026-01-01T00:00:0{number}Z"
        return ExportedEvent(event_id, provider.acme.slug, at, action, target, "", before, {})

    unlinked = happened(1, "identity.unlinked", user, identity=identity)
    deleted = happened(2, "identity_provider.deleted", provider.record.public_id)
    with provider.app.app_context():
        assert end_again([unlinked]) == ([unlinked.words], [], [])
    assert not provider.rows(LinkedIdentity) and not provider.rows(Session)
    with provider.app.app_context():
        assert end_again([deleted]) == ([deleted.words], [], [])
    assert not provider.rows(IdentityProvider)


def test_deleting_a_provider_removes_its_links_in_parts(
    provider: Provider, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.operations.sign_in.identity_providers._BATCH", 2)
    provider.change(create_users=True)
    for number in range(5):
        provider.fake.claims |= {"sub": str(number), "email": f"user{number}@acme.example"}
        provider.sign_in(Visitor(provider.app))
    with provider.app.app_context():
        delete_identity_provider(provider.admin, provider.record.public_id)
    assert not provider.rows(LinkedIdentity) and not provider.rows(IdentityProvider)
    assert len(provider.rows(User)) == 6
    assert "Continue with" not in visitor.get(f"/organizations/{provider.acme.slug}/login").text


def test_organization_without_passwords_needs_a_provider_that_someone_uses(
    provider: Provider, app: Flask
) -> None:
    provider.change(create_users=True)
    without = {"password": {"enabled": False}, "passkeys": {"enabled": False}}
    with pytest.raises(WouldLockOut):
        provider.set_policy(**without)
    visitor = Visitor(app)
    provider.sign_in(visitor)
    provider.set_policy(**without)
    page = Visitor(app).get(f"/organizations/{provider.acme.slug}/login").text
    assert "Continue with Example" in page and 'id="password"' not in page and "doesn't allow" not in page
    with pytest.raises(Conflict, match="only way"):
        provider.change(status="disabled")


def test_invitation_is_accepted_with_a_provider(provider: Provider, visitor: Visitor, app: Flask) -> None:
    """Also where users have neither passwords nor passkeys. The account may have another email."""
    provider.change(create_users=True)
    provider.sign_in(Visitor(app))
    provider.set_policy(password={"enabled": False}, passkeys={"enabled": False})
    with app.app_context():
        made = create_invitation(
            provider.admin, provider.acme.slug, email="bob@acme.example", role="developer"
        )
    path = urlsplit(str(made.link)).path
    token = path.rpartition("/")[2]
    page = visitor.get(path)
    assert "Continue with Example" in page.text and 'id="password"' not in page.text
    made_up = visitor.get(path, query_string={"refused": "disabled", "provider": "Call 555 0100"})
    assert 'id="refusal"' not in made_up.text
    begin = f"/organizations/{provider.acme.slug}/login/with/example"

    def accept() -> Any:
        visitor.get(path)
        return provider.come_back(
            visitor, provider.fake.authorize(visitor.post(begin, invitation=token).location)
        )

    taken = visitor.get(accept().location)
    assert "already linked to another user" in refusal(taken)
    provider.fake.claims |= {"sub": "bob", "email": "bob@example.net", "email_verified": False}
    assert accept().location == f"/portal/{provider.acme.slug}"
    (user,) = [row for row in provider.rows(User) if row.email == "bob@acme.example"]
    assert user.id in {row.user_id for row in provider.rows(LinkedIdentity) if row.subject == "bob"}
    provider.fake.claims |= {"sub": "eve"}
    visitor.get(f"/organizations/{provider.acme.slug}/login?account=another")
    ended = provider.fake.authorize(visitor.post(begin, invitation=token).location)
    assert provider.come_back(visitor, ended).status_code == 409
    assert not [row for row in provider.rows(LinkedIdentity) if row.subject == "eve"]
