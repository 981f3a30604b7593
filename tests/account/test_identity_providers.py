"""Signing in with an identity provider, which may create or link a user."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID

import pytest
from flask import Flask
from msgspec.structs import replace
from sqlalchemy import update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.grant import AuthorizationRequest
from app.models.identity_provider import LinkedIdentity
from app.models.session import Session
from app.models.user import GroupMember, User
from app.operations.directory.users import find_user_by_email
from app.operations.sign_in.identity_providers import delete_identity_provider
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.users import provider_sign_in
from app.operations.users.groups import create_group
from app.operations.users.invitations import create_invitation
from app.rules.errors import Conflict
from app.rules.identifiers import public_id
from app.rules.organizations.lockout_prevention import WouldLockOut
from tests.account.conftest import Visitor
from tests.account.providers import Provider, refusal
from tests.account.test_second_step import REDIRECT_URI, request_of
from tests.support.caches import clear_cached_providers
from tests.support.https_server import Response


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
    events = provider.rows(AuditEvent)
    assert {"user.registered", "identity.linked", "session.started"} <= {row.action for row in events}
    # Otherwise, nobody could say later whom a hostile provider signed in.
    started = [row.after for row in events if row.action == "session.started"]
    assert started == [{"methods": ["fed"], "provider": provider.record.public_id}] * 2
    (registered,) = [row for row in events if row.action == "user.registered"]
    assert registered.address == "127.0.0.1" and registered.request_id
    activity = visitor.get(f"/organizations/{provider.acme.slug}/account/activity").text
    assert "The account was created" in activity and "Not by you" not in activity
    assert "was linked" in activity
    # There is no password to change, so nothing asks for it.
    password = visitor.get(f"/organizations/{provider.acme.slug}/account/password").text
    assert "You sign in without a password" in password and 'id="current_password"' not in password


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
    ("columns", "role", "claims", "is_verified"),
    [
        ({}, "member", {}, True),
        ({"external_id": "248289761001"}, "member", {"email_verified": False}, False),
        ({"external_id": "another"}, "member", {"email_verified": False}, None),
        ({"external_id": "another"}, "member", {"email": "other@acme.example"}, None),
        # Somebody registered with the email, and may have set a password.
        ({"made_unproven": True, "external_id": "248289761001"}, "member", {}, None),
        ({"external_id": "248289761001"}, "auditor", {}, None),
        ({"external_id": "248289761001", "status": "disabled"}, "member", {}, None),
        ({"external_id": "248289761001", "provisioned_by": UUID(int=1)}, "member", {}, None),
    ],
)
def test_provider_signs_in_the_users_that_it_provisioned(
    provider: Provider,
    visitor: Visitor,
    make: Any,
    columns: dict[str, Any],
    role: str,
    claims: dict[str, Any],
    is_verified: bool | None,
) -> None:
    """IP-14: neither creating nor linking by email is on, and nobody has verified the email here."""
    user = make.user(provider.acme, email="grace@acme.example", role=role)
    values = {"email_verified": False, "provisioned_by": provider.record.id, **columns}
    provider.set_user(user.id, **values)
    provider.fake.claims |= claims
    page = provider.sign_in(visitor)
    assert page.status_code == (403 if is_verified is None else 303), page.text
    assert [row.user_id for row in provider.rows(LinkedIdentity)] == [user.id] * (is_verified is not None)
    assert [row.email_verified for row in provider.rows(User) if row.id == user.id] == [bool(is_verified)]
    assert provider.sign_in(Visitor(provider.app)).status_code == page.status_code


@pytest.mark.parametrize("is_managed", [True, False])
def test_provider_confirms_another_email_that_it_gave_to_a_linked_user(
    provider: Provider, make: Any, is_managed: bool
) -> None:
    user = make.user(provider.acme, email="grace@acme.example")
    provider.change(link_users=True)
    provider.sign_in(Visitor(provider.app))
    moved = {
        "email": "hopper@acme.example",
        "email_canonical": "hopper@acme.example",
        "email_verified": False,
    }
    provider.set_user(user.id, provisioned_by=provider.record.id if is_managed else None, **moved)
    for email, is_verified in (("grace@acme.example", False), ("Hopper@acme.example", is_managed)):
        provider.fake.claims["email"] = email
        assert provider.sign_in(Visitor(provider.app)).status_code == 303
        assert [row.email_verified for row in provider.rows(User) if row.id == user.id] == [is_verified]


@pytest.mark.parametrize(("outdated", "status"), [(1, 303), (2, 400)])
def test_user_who_changes_meanwhile_is_read_again(
    provider: Provider,
    visitor: Visitor,
    make: Any,
    monkeypatch: pytest.MonkeyPatch,
    outdated: int,
    status: int,
) -> None:
    """Between the provider's answer and the lock of the user's row, the directory may give their email to another."""
    make.user(provider.acme, email="grace@acme.example", role="member")
    provider.change(link_users=True)
    found: list[Any] = []

    def find_before_a_change(*arguments: Any) -> Any:
        found.append(find_user_by_email(*arguments))
        return replace(found[-1], version=found[-1].version - (len(found) <= outdated))

    monkeypatch.setattr(provider_sign_in, "find_user_by_email", find_before_a_change)
    assert provider.sign_in(visitor).status_code == status
    assert len(found) == 2 and len(provider.rows(LinkedIdentity)) == (status == 303)


def test_disabled_user_and_too_many_answers_are_refused(
    provider: Provider, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that sign somebody in do not count: a whole office may begin its day at one address."""
    few = provider_sign_in._PER_NETWORK.with_max_failures(3)
    monkeypatch.setattr(provider_sign_in, "_PER_NETWORK", few)
    provider.change(create_users=True)
    for _ in range(4):
        assert provider.sign_in(Visitor(provider.app)).status_code == 303
    provider.set(User, status="disabled")
    page = provider.sign_in(visitor)
    assert page.status_code == 403 and "is disabled" in refusal(page)
    answers = [provider.sign_in(Visitor(provider.app)).status_code for _ in range(3)]
    assert answers == [403, 403, 429]


def test_unreachable_provider_is_named(provider: Provider, visitor: Visitor) -> None:
    provider.fake.answers["/token"] = Response(500)
    assert "couldn't sign you in" in refusal(provider.sign_in(visitor))
    clear_cached_providers()
    provider.fake.answers["/tenant/.well-known/openid-configuration"] = Response(503)
    visitor.get(f"/organizations/{provider.acme.slug}/login")
    page = visitor.post(f"/organizations/{provider.acme.slug}/login/with/example")
    assert page.status_code == 503 and "can't be reached" in refusal(page)


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


@pytest.mark.parametrize(
    "demand", [{"prompt": "login"}, {"max_age": "60"}, {"prompt": "create"}, {"default_max_age": 60}]
)
def test_silent_sign_in_meets_no_demand_for_a_new_one(
    provider: Provider, visitor: Visitor, make: Any, demand: dict[str, Any]
) -> None:
    """SS-7: not if it was made beside the request of the app, which asks the provider to sign the user in again."""
    provider.change(create_users=True)
    provider.set_policy(registration={"mode": "open"})
    default = {name: value for name, value in demand.items() if name == "default_max_age"}
    client = make.client(provider.acme, redirect_uris=[REDIRECT_URI], **default)
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


def test_postponed_second_factor_is_not_offered_again_to_whoever_signs_in_again(
    provider: Provider, visitor: Visitor, make: Any
) -> None:
    """PO-4: each offer would take away the time of the new sign-in, and the app would ask for another one."""
    provider.change(create_users=True)
    provider.set_policy(mfa={"policy": "required", "grace_period_seconds": 86400})
    offered = provider.sign_in(visitor).location
    visitor.get(offered)
    visitor.post(offered, later="1")
    client = make.client(provider.acme, redirect_uris=[REDIRECT_URI])
    asked = visitor.http.get("/oauth/authorize", query_string={**request_of(client), "max_age": "60"})
    token = parse_qs(urlsplit(asked.location).query)["request"][0]
    again = provider.sign_in(visitor, request=token)
    asking = visitor.http.get(again.location)
    assert asking.status_code == 200 and "consent" in asking.text
    # The session of another user in the browser does not count.
    provider.fake.claims |= {"sub": "another", "email": "bob@acme.example"}
    assert "/login/enrol?" in provider.sign_in(visitor, account="another").location


def test_app_leads_to_the_provider_that_it_names(provider: Provider, visitor: Visitor, make: Any) -> None:
    provider.change(create_users=True)
    client = make.client(provider.acme, redirect_uris=[REDIRECT_URI])

    def sign_in_page(named: str, **more: str) -> Any:
        asked = {**request_of(client), "prompt": "login", "identity_provider": named}
        page = visitor.http.get("/oauth/authorize", query_string=asked).location
        return visitor.http.get(f"{page}&{urlencode(more)}")

    for named, more in (
        ("another", {}),
        ("x" * 41, {}),
        ("Example", {}),
        ("example", {"account": "another"}),
    ):
        page = sign_in_page(named, **more)
        assert page.status_code == 200 and "Continue with Example" in page.text
    begun = sign_in_page("example")
    sent = parse_qs(urlsplit(begun.location).query)
    assert begun.location.startswith(provider.fake.server.base_url) and sent["prompt"] == ["login"]
    # Who does not want to sign in there sees the other ways.
    provider.fake.error = "access_denied"
    page = provider.come_back(visitor, provider.fake.authorize(begun.location))
    assert "cancelled" in refusal(page) and "Continue with Example" in page.text
    provider.fake.error = ""
    done = provider.come_back(visitor, provider.fake.authorize(sign_in_page("example").location))
    assert urlsplit(done.location).path.endswith("/oauth/authorize/resume")
    # A link to the sign-in page can do the same.
    home = f"/organizations/{provider.acme.slug}/login?identity_provider=example"
    assert provider.app.test_client().get(home).location.startswith(provider.fake.server.base_url)
    provider.change(status="disabled")
    assert sign_in_page("example").status_code == 200
    provider.change(status="enabled")
    provider.set_organization(status="suspended")
    assert provider.app.test_client().get(home).status_code == 200


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
    (passed,) = [row for row in provider.rows(AuditEvent) if row.action == "sign_in.first_proof_given"]
    assert passed.after["provider"] == provider.record.public_id


@pytest.mark.parametrize("end", ["provider disabled", "provider deleted", "user revoked", "all revoked"])
def test_sign_in_that_waits_for_a_second_factor_ends(
    provider: Provider, visitor: Visitor, make: Any, end: str
) -> None:
    """SS-5, IP-11: it would start a session after everything else has ended."""
    provider.set_policy(mfa={"policy": "required"})
    provider.change(create_users=True)
    path = provider.sign_in(visitor).location
    assert visitor.get(path).status_code == 200
    (linked,) = provider.rows(LinkedIdentity)
    if end == "provider disabled":
        provider.change(status="disabled")
    elif end == "provider deleted":
        with provider.app.app_context():
            delete_identity_provider(provider.admin, provider.record.public_id)
    else:
        subject = {"all": True} if end == "all revoked" else {"user_id": public_id("usr", linked.user_id)}
        with provider.app.app_context():
            bulk_revoke(make.system(provider.acme), provider.acme.slug, subject | {"include_sessions": True})
    assert visitor.post(path, later="1").status_code == 303
    assert visitor.get(path).status_code == 303
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
    with app.app_context():
        named = {"provider_id": provider.record.public_id, "value": "staff"}
        create_group(provider.admin, provider.acme.slug, {"name": "Staff", "provider_groups": [named]})
    provider.fake.claims |= {"sub": "bob", "email": "bob@example.net", "email_verified": False}
    provider.fake.claims["groups"] = ["staff"]
    assert accept().location == f"/portal/{provider.acme.slug}"
    (user,) = [row for row in provider.rows(User) if row.email == "bob@acme.example"]
    assert user.id in {row.user_id for row in provider.rows(LinkedIdentity) if row.subject == "bob"}
    assert [row.user_id for row in provider.rows(GroupMember)] == [user.id]
    provider.fake.claims |= {"sub": "eve"}
    visitor.get(f"/organizations/{provider.acme.slug}/login?account=another")
    ended = provider.fake.authorize(visitor.post(begin, invitation=token).location)
    assert provider.come_back(visitor, ended).status_code == 409
    assert not [row for row in provider.rows(LinkedIdentity) if row.subject == "eve"]
