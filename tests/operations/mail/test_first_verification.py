"""An account registered with someone else's email shares nothing with its owner after verification (RP-3, OI-5)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.grant import Grant
from app.models.identity_provider import LinkedIdentity
from app.models.session import Session
from app.models.user import User
from app.operations.authorization.consents import get_consent_state, store_consent
from app.operations.directory.lookups import find_client
from app.operations.directory.users import find_user_by_email
from app.operations.organizations.administrators import add_administrator
from app.operations.sign_in.factor_enrollment import regenerate_recovery_codes, remove_authenticator_app
from app.operations.sign_in.passkey_registration import begin_registration, finish_registration
from app.operations.sign_in.passkey_sign_in import PasskeyRefused, begin_passkey_sign_in, sign_in_with_passkey
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.second_factors import count_recovery_codes, find_methods_of_user
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn
from app.operations.store.transactions import transaction
from app.operations.users.email_change import request_email_verification, verify_email
from app.operations.users.invitations import accept_invitation, create_invitation
from app.operations.users.password_resets import issue_reset_link, request_reset, reset_password
from app.operations.users.sign_up import register_user
from app.operations.users.user_changes import update_user
from app.rules.actor import Actor
from tests.factories import PASSWORD, MadeUser
from tests.oauth.conftest import audited
from tests.support.authenticator import set_rows, signed_in_actor, with_app
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain
from tests.support.security_key import Authenticator
from tests.support.world_rows import granted, linked

pytestmark = pytest.mark.usefixtures("context")
NEW = "a wholly different password"
OPEN = {"authentication": {"registration": {"mode": "open", "verify_email": False}}}
THERE = Browser("the browser of the first registration")
Deliver = Callable[[], int]


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(name="Acme", settings=OPEN)


@pytest.fixture
def squatted(acme: Any) -> MadeUser:
    """Create an account that someone else registered with Ada's email."""
    return registered(acme, "ada@acme.example")


def registered(organization: Any, email: str) -> MadeUser:
    register_user(
        organization, email=email, name="Ada", password=PASSWORD, ip_address="192.0.2.66", request_id=None
    )
    user = find_user_by_email(organization.id, email)
    assert user is not None
    return MadeUser(organization, user.id, email)


def with_passkey(user: MadeUser, amr: tuple[str, ...] = ("pwd",)) -> Authenticator:
    who, key = signed_in_actor(user, amr=amr), Authenticator()
    finish_registration(who, key.create(begin_registration(who, THERE)), "Mine", THERE)
    return key


def enter_by(key: Authenticator, organization: Any) -> Any:
    stranger = Actor.anonymous(organization.id, "192.0.2.66")
    answer = key.get(begin_passkey_sign_in(organization, THERE.id))
    return sign_in_with_passkey(stranger, organization, answer, THERE)


def reset_by_mail(user: MadeUser, box: Mailbox, deliver: Deliver) -> Any:
    request_reset(user.organization, user.email, ip_address="192.0.2.7", request_id=None)
    deliver()
    link = next(link for link in reversed(box.links()) if "/reset/" in link)
    box.mails.clear()
    done = reset_password(user.organization, link.rpartition("/")[2], NEW, ip_address="192.0.2.7")
    deliver()
    return done


def test_reset_by_email_owner_removes_earlier_factors(
    app: Any, acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    """RP-3: only the owner of the mailbox can verify the email."""
    with_app(app, squatted)
    key = with_passkey(squatted, ("pwd", "otp", "mfa"))
    assert isinstance(enter_by(key, acme), SignedIn)
    deliver()
    box.mails.clear()
    done = reset_by_mail(squatted, box, deliver)
    assert (done.ended.passkeys, done.ended.has_app) == (1, True)
    assert isinstance(enter_by(key, acme), PasskeyRefused)
    assert find_methods_of_user(acme.id, squatted.id) == ()
    assert [database.count(table) for table in ("recovery_codes", "sessions")] == [0, 0]
    assert isinstance(sign_in(acme.id, squatted.email, NEW), SignedIn)
    (mail,) = box.mails
    assert "set up before: 1 passkey and an authenticator app." in plain(mail)
    assert audited(database, "second_factors.ended") == 1


def test_verification_revokes_earlier_consents(
    make: Any, acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    """CO-2: otherwise an app allowed before would silently receive codes for the owner."""
    client = find_client(make.client(acme).client_id)
    assert client is not None

    @transaction
    def allow() -> None:
        store_consent(signed_in_actor(squatted), client, squatted.id, ("openid", "email"))

    allow()
    assert get_consent_state(client, squatted.id).scopes
    reset_by_mail(squatted, box, deliver)
    assert not get_consent_state(client, squatted.id).scopes
    allow()
    reset_by_mail(squatted, box, deliver)
    assert get_consent_state(client, squatted.id).scopes


def test_factors_added_after_verification_remain(
    make: Any, app: Any, acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver
) -> None:
    """RP-3, MF-6: a second reset finds a verified email, and its notice lists factors and linked accounts."""
    reset_by_mail(squatted, box, deliver)
    with_passkey(squatted)
    with_passkey(squatted, ("pwd", "mfa"))
    linked(make.actor(acme), "example", squatted.public_id)
    box.mails.clear()
    done = reset_by_mail(squatted, box, deliver)
    assert not done.ended
    assert isinstance(sign_in(acme.id, squatted.email, NEW), SecondStepRequired)
    notice = plain(box.mails[0]).replace("\N{WORD JOINER}", "")
    assert "Your account has 2 passkeys. If you don't recognize any of it" in notice
    # A linked account signs in whatever the password is, or will again if its provider is disabled now.
    assert "Your account is linked to Example (example@idp.example). If you don't" in notice


def test_factors_of_a_trusted_account_remain(make: Any, app: Any, box: Mailbox, deliver: Deliver) -> None:
    """RP-3, MF-6: access to the mailbox alone does not own an account that an administrator created."""
    acme = make.organization(name="Acme")
    admin = make.actor(acme)
    user_id = accept_invitation(
        invited(admin, acme, "grace@acme.example"), name="Grace", password_hash="none yet"
    )
    grace = MadeUser(acme, user_id, "grace@acme.example")
    set_rows(User, email_verified=False)
    with_app(app, grace)
    assert not reset_by_mail(grace, box, deliver).ended
    assert find_methods_of_user(acme.id, grace.id) == ("totp",)


def invited(admin: Actor, organization: Any, email: str) -> str:
    """Return the token of an invitation, as if it had been handed over."""
    from app.operations.mail import emails

    possible = emails.is_possible
    emails.is_possible = lambda: False
    try:
        link = create_invitation(admin, organization.slug, email=email).link
    finally:
        emails.is_possible = possible
    assert link is not None
    return link.rpartition("/")[2]


def test_email_set_by_administrator_keeps_factors(
    make: Any, app: Any, acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    """MF-6: a typo in an email must not give the account to the owner of that mailbox."""
    ada = make.user(acme, email="ada@acme.example")
    with_app(app, ada)
    update_user(make.actor(acme), ada.public_id, {"email": "adda@acme.example"})
    moved = dataclasses.replace(ada, email="adda@acme.example")
    assert not reset_by_mail(moved, box, deliver).ended
    assert find_methods_of_user(acme.id, ada.id) == ("totp",)


def test_link_from_administrator_does_not_verify_the_email(
    make: Any, app: Any, acme: Any, squatted: MadeUser
) -> None:
    with_app(app, squatted)
    link = issue_reset_link(make.actor(acme), squatted.id).link
    assert not reset_password(acme, link.rpartition("/")[2], NEW).ended
    assert find_methods_of_user(acme.id, squatted.id) == ("totp",)


def confirm(user: MadeUser, here: SignedIn, box: Mailbox, deliver: Deliver, amr: tuple[str, ...]) -> Any:
    who = replace(signed_in_actor(user, amr=amr), session_id=here.session_id)
    request_email_verification(signed_in_actor(user, amr=("pwd", "otp", "mfa")), user.email)
    deliver()
    found = re.search(r"/confirm-address/(\S+)", plain(box.mails[-1]))
    assert found is not None
    box.mails.clear()
    done = verify_email(who, found[1], known_cookie=here.known_cookie)
    deliver()
    return done


def test_verification_with_session_ends_other_sessions(
    acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    here, _ = (sign_in(acme.id, squatted.email, PASSWORD) for _ in range(2))
    assert isinstance(here, SignedIn)
    done = confirm(squatted, here, box, deliver, ("pwd",))
    assert done
    assert [database.count(table) for table in ("sessions", "known_browsers")] == [1, 1]
    assert [mail["Subject"] for mail in box.mails] == ["Your email at Acme is verified"]


@pytest.mark.parametrize("way", ["verification", "reset"])
def test_removed_links_and_consents_are_recorded(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver, way: str
) -> None:
    """AU-1, IP-10."""
    user = registered(acme, f"{way}@acme.example")
    here = sign_in(acme.id, user.email, PASSWORD)
    assert isinstance(here, SignedIn)
    linked(make.actor(acme), way, user.public_id)
    client = find_client(make.client(acme).client_id)
    assert client is not None
    transaction(store_consent)(signed_in_actor(user), client, user.id, ("openid",))
    if way == "reset":
        reset_by_mail(user, box, deliver)
    else:
        assert confirm(user, here, box, deliver, ("pwd",))
    rows = db.session.scalars(select(AuditEvent).where(AuditEvent.target_id == user.public_id))
    events = {row.action: row.after for row in rows}
    done = events["user.email_verified" if way == "verification" else "user.password_reset"]
    assert done is not None and done["ended_consents"] == 1 and "identity.unlinked" in events
    assert events["user.email_verified"] is not None
    assert events["user.email_verified"]["email"] == user.email
    assert any(mail["Subject"].startswith("Example no longer signs you in") for mail in box.mails)


def test_verification_keeps_the_linked_account_of_the_session(
    make: Any, acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver
) -> None:
    """Where passwords are off, it may be the only way to sign in."""
    here = sign_in(acme.id, squatted.email, PASSWORD)
    assert isinstance(here, SignedIn)
    linked(make.actor(acme), "used", squatted.public_id)
    used = db.session.scalars(select(LinkedIdentity.provider_id)).one()
    linked(make.actor(acme), "other", squatted.public_id)
    set_rows(Session, provider_id=used)
    confirm(squatted, here, box, deliver, ("fed",))
    assert db.session.scalars(select(LinkedIdentity.provider_id)).all() == [used]


def test_verification_with_second_factor_keeps_it(
    app: Any, acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    here = sign_in(acme.id, squatted.email, PASSWORD)
    assert isinstance(here, SignedIn)
    with_app(app, squatted, session_id=here.session_id)
    done = confirm(squatted, here, box, deliver, ("pwd", "otp", "mfa"))
    assert not done
    assert find_methods_of_user(acme.id, squatted.id) == ("totp",)
    assert "Your account has an authenticator app." in plain(box.mails[-1])


def test_verification_removes_factors_not_used_in_the_session(
    app: Any, acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver
) -> None:
    here = sign_in(acme.id, squatted.email, PASSWORD)
    assert isinstance(here, SignedIn)
    with_app(app, squatted, session_id=here.session_id)
    assert confirm(squatted, here, box, deliver, ("pwd",))
    assert find_methods_of_user(acme.id, squatted.id) == ()


def test_ended_session_cannot_add_a_factor(acme: Any, squatted: MadeUser) -> None:
    """RP-3: a request that read its session before a reset ended it stores nothing after the reset."""
    here = sign_in(acme.id, squatted.email, PASSWORD)
    assert isinstance(here, SignedIn)
    who = replace(signed_in_actor(squatted), session_id=here.session_id)
    made = Authenticator().create(begin_registration(who, THERE))
    end_sessions_of_user(acme.id, squatted.id)
    with pytest.raises(FreshSignInRequired):
        finish_registration(who, made, "Mine", THERE)
    assert find_methods_of_user(acme.id, squatted.id) == ()


def test_role_from_administrator_makes_the_account_trusted(
    app: Any, make: Any, acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver
) -> None:
    """MF-6: after that, access to the mailbox cannot remove a second factor."""
    with_app(app, squatted)
    add_administrator(make.actor(acme), acme.slug, user_id=squatted.public_id, role="auditor")
    assert not reset_by_mail(squatted, box, deliver).ended
    assert find_methods_of_user(acme.id, squatted.id) == ("totp",)


def test_ended_session_cannot_change_factors(app: Any, acme: Any, squatted: MadeUser) -> None:
    here = sign_in(acme.id, squatted.email, PASSWORD)
    with_app(app, squatted)
    who = replace(signed_in_actor(squatted, amr=("pwd", "otp", "mfa")), session_id=here.session_id)
    left = count_recovery_codes(acme.id, squatted.id)
    for change in (regenerate_recovery_codes, remove_authenticator_app):
        with pytest.raises(FreshSignInRequired):
            change(who)
    assert (
        find_methods_of_user(acme.id, squatted.id) == ("totp",)
        and count_recovery_codes(acme.id, squatted.id) == left
    )


def test_ended_session_cannot_verify_the_email(
    acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver
) -> None:
    here = sign_in(acme.id, squatted.email, PASSWORD)
    end_sessions_of_user(acme.id, squatted.id)
    with pytest.raises(FreshSignInRequired):
        confirm(squatted, here, box, deliver, ("pwd",))
    assert find_user_by_email(acme.id, squatted.email).email_verified is False  # type: ignore[union-attr]


def test_verification_revokes_consents_without_other_state(
    make: Any, acme: Any, squatted: MadeUser, box: Mailbox, deliver: Deliver
) -> None:
    """The first user has signed out; an app they allowed must lose access."""
    client = find_client((made := make.client(acme)).client_id)
    transaction(store_consent)(signed_in_actor(squatted), client, squatted.id, ("openid",))
    here = sign_in(acme.id, squatted.email, PASSWORD)
    granted(made, squatted)
    set_rows(Grant, session_id=here.session_id)
    granted(made, squatted)
    assert confirm(squatted, here, box, deliver, ("pwd",))
    reasons = db.session.scalars(select(Grant.revoked_reason).order_by(Grant.id)).all()
    assert reasons == [None, "email_verified"]
    assert not get_consent_state(client, squatted.id).scopes
