"""Pending registrations: sign-in needs confirmation, and responses do not reveal which accounts exist."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from app.extensions import db
from app.models.user import Registration
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import find_user_by_email
from app.operations.maintenance.janitor import purge_expired
from app.operations.organizations.settings import NO_MAIL_SERVER_WARNING, update_settings
from app.operations.sign_in.password_sign_in import SignInRefused, sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store import clock, outbox
from app.operations.users import registrations, sign_up
from app.operations.users.deletion import delete_user
from app.operations.users.registrations import (
    RegistrationEnded,
    approve_registration,
    confirm_registration,
    find_registration,
    list_registrations,
)
from app.operations.users.sign_up import next_registration_step, register_user
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, TooManyRequests
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
Deliver = Callable[[], int]
OTHERS = "a password that another user chose"


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(
        name="Acme", settings={"authentication": {"registration": {"mode": "open", "verify_email": True}}}
    )


def register(organization: Any, **changes: Any) -> None:
    good = {"email": "new@example.com", "name": "New Person", "password": PASSWORD, "ip_address": "192.0.2.7"}
    register_user(organization, **({**good, "request_id": None} | changes))


def token_in(mail: Any) -> str:
    found = re.search(r"/confirm/(\S+)", plain(mail))
    assert found is not None
    return found[1]


def enters(organization: Any, password: str = PASSWORD, email: str = "new@example.com") -> bool:
    return isinstance(sign_in(organization.id, email, password, ip_address="192.0.2.7"), SignedIn)


def test_confirmed_registration_creates_the_account(
    acme: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    """OI-5: the link verifies the email, and the password identifies the requester."""
    register(acme)
    deliver()
    (mail,) = box.mails
    assert (mail["To"], mail["Subject"]) == ("new@example.com", "Confirm your Acme account")
    assert sign_in(acme.id, "new@example.com", PASSWORD) == SignInRefused("mismatch", attempts_left=9)
    confirm_registration(acme, token_in(mail), PASSWORD)
    user = find_user_by_email(acme.id, "new@example.com")
    assert user is not None and user.email_verified and user.name == "New Person"
    assert enters(acme)
    assert database.count("role_assignments") == 1 and database.count("registrations") == 0
    assert audited(database, "user.registered") == 1


def test_email_to_a_stranger_has_nothing_that_another_stranger_wrote(
    acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    register(acme, name="Your account is locked. Visit https://evil.example to unlock it")
    deliver()
    (mail,) = box.mails
    assert "evil" not in mail.as_string() and "locked" not in plain(mail)


def test_confirmation_needs_the_password_and_counts_failures(
    acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    register(acme)
    deliver()
    token = token_in(box.mails[0])
    for _ in range(10):
        with pytest.raises(InvalidInput):
            confirm_registration(acme, token, OTHERS)
    with pytest.raises(TooManyRequests):
        confirm_registration(acme, token, PASSWORD)
    assert find_user_by_email(acme.id, "new@example.com") is None


def test_confirmation_link_works_once(acme: Any, box: Mailbox, deliver: Deliver) -> None:
    register(acme)
    deliver()
    token = token_in(box.mails[0])
    confirm_registration(acme, token, PASSWORD)
    with pytest.raises(RegistrationEnded):
        confirm_registration(acme, token, PASSWORD)


def test_registration_with_another_email_changes_nothing(acme: Any, box: Mailbox, deliver: Deliver) -> None:
    """OI-5: before and after the owner; each link requires the password of its requester."""
    register(acme, password=OTHERS, name="Eve")
    register(acme)
    register(acme, password=OTHERS, name="Eve")
    deliver()
    mine = box.mails[1]
    for foreign in (box.mails[0], box.mails[2]):
        with pytest.raises(InvalidInput):
            confirm_registration(acme, token_in(foreign), PASSWORD)
    confirm_registration(acme, token_in(mine), PASSWORD)
    for foreign in (box.mails[0], box.mails[2]):
        with pytest.raises(RegistrationEnded):
            confirm_registration(acme, token_in(foreign), OTHERS)
    assert enters(acme) and not enters(acme, OTHERS)


def test_en1_registration_for_known_email_does_the_same_work(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    make.user(acme, email="ada@example.com")
    for email in ("ada@example.com", "new@example.com"):
        before = {table: database.count(table) for table in ("attempts", "outbox", "registrations", "users")}
        register(acme, email=email)
        after = {table: database.count(table) for table in before}
        assert {table: after[table] - before[table] for table in before} == {
            "attempts": 2,
            "outbox": 1,
            "registrations": 0,
            "users": 0,
        }
    deliver()
    assert [(mail["To"], mail["Subject"]) for mail in box.mails] == [
        ("ada@example.com", "You already have an account at Acme"),
        ("new@example.com", "Confirm your Acme account"),
    ]
    assert enters(acme, email="ada@example.com")


def test_registration_emails_are_limited_silently(acme: Any, box: Mailbox, deliver: Deliver) -> None:
    for number in range(sign_up.MAX_EMAILS_PER_MAILBOX + 3):
        register(acme, ip_address=f"198.51.{number}.1")
    deliver()
    assert len(box.mails) == sign_up.MAX_EMAILS_PER_MAILBOX


def test_pending_registrations_per_email_are_limited(
    acme: Any, box: Mailbox, deliver: Deliver, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.setattr(registrations, "MAX_PENDING_PER_EMAIL", 2)
    for email in ("other@example.com", *["ada@example.com"] * 3):
        register(acme, email=email)
    deliver()
    open_links = [find_registration(acme, token_in(mail)) is not None for mail in box.mails]
    assert open_links == [True, False, True, True]
    assert database.count("registrations") == 3


def test_pending_registrations_per_organization_are_limited(
    acme: Any, box: Mailbox, deliver: Deliver, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.setattr(registrations, "MAX_PENDING_PER_ORGANIZATION", 1)
    for email in ("one@example.com", "two@example.com"):
        register(acme, email=email)
    deliver()
    assert database.count("registrations") == 1 and len(box.mails) == 1


def test_unconfirmed_registration_expires_and_is_deleted(
    acme: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    register(acme)
    deliver()
    with db.engine.begin() as connection:
        connection.execute(update(Registration).values(expires_at=clock.now() - timedelta(seconds=1)))
    with pytest.raises(RegistrationEnded):
        confirm_registration(acme, token_in(box.mails[0]), PASSWORD)
    purge_expired(Actor.system("", "tests"), pause=0)
    assert database.count("registrations") == 0


@pytest.mark.parametrize("change", [{"mode": "closed"}, {"allowed_email_domains": ["acme.example"]}])
def test_confirmation_is_refused_after_registration_closed(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver, change: Any
) -> None:
    register(acme)
    deliver()
    register(acme)
    update_settings(make.actor(acme), acme.slug, {"authentication": {"registration": change}})
    deliver()
    assert len(box.mails) == 1
    with pytest.raises(RegistrationEnded):
        confirm_registration(get_organization_by_id(acme.id), token_in(box.mails[0]), PASSWORD)


def test_full_organization_says_so_and_keeps_the_registration(
    make: Any, box: Mailbox, deliver: Deliver
) -> None:
    """EN-1: whatever the email. The link works once there is room again."""
    settings = {"limits": {"max_users": 1}, "authentication": {"registration": {"mode": "open"}}}
    acme = make.organization(settings=settings)
    register(acme)
    deliver()
    ada = make.user(acme, email="ada@example.com")
    for act in (
        lambda: register(acme),
        lambda: register(acme, email=ada.email),
        lambda: confirm_registration(acme, token_in(box.mails[0]), PASSWORD),
        lambda: approve_registration(
            make.actor(acme), list_registrations(make.actor(acme)).items[0].public_id
        ),
    ):
        with pytest.raises(Conflict) as refused:
            act()
        assert refused.value.code == "too_many_users"
    delete_user(make.actor(acme), ada.public_id)
    confirm_registration(acme, token_in(box.mails[0]), PASSWORD)


def test_tn6_link_of_another_organization_is_invalid(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    globex = make.organization(settings={"authentication": {"registration": {"mode": "open"}}})
    register(acme)
    deliver()
    with pytest.raises(RegistrationEnded):
        confirm_registration(globex, token_in(box.mails[0]), PASSWORD)


def test_without_mail_server_administrators_approve_registrations(
    make: Any, acme: Any, answer: Deliver, database: Database
) -> None:
    """OI-5: only this service's verification sets ``email_verified``."""
    assert next_registration_step(acme) == "administrator"
    register(acme)
    answer()
    (one,) = registrations.list_registrations(make.actor(acme, "users:read")).items
    assert (one.email, one.is_mailed) == ("new@example.com", False)
    assert not enters(acme)
    with pytest.raises(Forbidden):
        registrations.approve_registration(make.actor(acme, "users:read"), one.public_id)
    assert not registrations.approve_registration(make.actor(acme), one.public_id).email_verified
    assert enters(acme)
    with pytest.raises(NotFound):
        registrations.approve_registration(make.actor(acme), one.public_id)
    assert audited(database, "user.registered") == 1


def test_declined_registration_creates_no_account(
    make: Any, acme: Any, answer: Deliver, database: Database
) -> None:
    register(acme)
    answer()
    (one,) = registrations.list_registrations(make.actor(acme)).items
    registrations.reject_registration(make.actor(acme), one.public_id)
    assert database.count("registrations") == 0 and audited(database, "registration.refused") == 1
    with pytest.raises(NotFound):
        registrations.get_registration(make.actor(acme), one.public_id)


def test_pending_registrations_of_other_organizations_are_hidden(
    make: Any, acme: Any, answer: Deliver
) -> None:
    """TN-2."""
    register(acme)
    answer()
    (one,) = registrations.list_registrations(make.actor(acme)).items
    stranger = make.actor(make.organization())
    assert registrations.list_registrations(stranger).items == ()
    for act in (
        registrations.get_registration,
        registrations.approve_registration,
        registrations.reject_registration,
    ):
        with pytest.raises(NotFound):
            act(stranger, one.public_id)


def test_password_and_link_are_not_stored_in_clear_text(
    acme: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    """TK-2."""
    register(acme)
    assert PASSWORD.encode() not in database.dump()
    deliver()
    assert token_in(box.mails[0]).encode() not in database.dump()
    assert db.session.scalars(select(Registration)).one().password_hash.startswith("$argon2id")


@pytest.fixture
def answer(app: Any, registered_kinds: None) -> Deliver:
    """Run the outbox as it works without a mail server."""

    def run() -> int:
        tried = 0
        while (message := outbox.claim_due_message(busy_receivers=(), full_organizations=())) is not None:
            outbox.deliver(message)
            tried += 1
        return tried

    return run


@pytest.fixture
def registered_kinds() -> None:
    registrations.register_registration_delivery()


def test_opening_registration_without_mail_server_warns(make: Any, request: pytest.FixtureRequest) -> None:
    acme = make.organization()
    change = {"authentication": {"registration": {"mode": "open"}}}
    assert update_settings(make.actor(acme), acme.slug, change, dry_run=True).warnings == (
        NO_MAIL_SERVER_WARNING,
    )
    request.getfixturevalue("box")
    assert update_settings(make.actor(acme), acme.slug, change).warnings == ()
