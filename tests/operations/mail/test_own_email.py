"""Verifying and changing the own email by a link (OI-5, SS-6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import update

from app.extensions import db
from app.models.user import AccountLink, User
from app.operations.directory.users import get_user
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import SignedIn
from app.operations.store import clock
from app.operations.users import email_change
from app.operations.users.email_change import (
    EmailVerificationEnded,
    WrongAccount,
    find_email_verification,
    request_email_verification,
    verify_email,
)
from app.operations.users.password_resets import issue_reset_link
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, InvalidInput, TooManyRequests
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
Deliver = Callable[[], int]
NEW = "ada@new.example"


def as_herself(user: Any, ago: int = 5) -> Actor:
    home = user.organization.id
    now = clock.now()
    return Actor(
        "user", home, home, user_id=user.id, label=user.email, ip_address="192.0.2.7",
        authenticated_at=now - timedelta(seconds=ago),
    )  # fmt: skip


def token_in(mail: Any) -> str:
    found = re.search(r"/confirm-address/(\S+)", plain(mail))
    assert found is not None
    return found[1]


def enter(user: Any, email: str) -> SignedIn:
    outcome = sign_in(user.organization.id, email, PASSWORD, ip_address="192.0.2.7")
    assert isinstance(outcome, SignedIn)
    return outcome


def test_email_change_ends_sessions_and_notifies_the_old_email(
    acme: Any, ada: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    """SS-6."""
    here, there = enter(ada, ada.email), enter(ada, ada.email)
    deliver()
    box.mails.clear()
    request_email_verification(as_herself(ada), NEW)
    assert get_user(acme.id, ada.id).email == ada.email, "nothing changes before the link is used"
    deliver()
    (mail,) = box.mails
    assert mail["To"] == NEW
    verify_email(replace(as_herself(ada), session_id=here.session_id), token_in(mail))
    user = get_user(acme.id, ada.id)
    assert (user.email, user.email_verified) == (NEW, True)
    assert find_session(here.token) is not None and find_session(there.token) is None
    deliver()
    assert (box.mails[1]["To"], box.mails[1]["Subject"]) == (
        ada.email,
        "The email of your Acme account was changed",
    )
    assert "UTC, from the IP address 192.0.2.7. Emails about" in plain(box.mails[1])
    assert enter(ada, NEW)
    assert audited(database, "user.email_changed") == 1
    with pytest.raises(EmailVerificationEnded):
        verify_email(as_herself(ada), token_in(mail))


def test_current_email_is_verified_and_sessions_remain(
    acme: Any, ada: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    """OI-5."""
    with db.engine.begin() as connection:
        connection.execute(update(User).values(email_verified=False))
    standing = enter(ada, ada.email)
    request_email_verification(as_herself(ada), "Ada@Acme.example")
    deliver()
    verify_email(as_herself(ada), token_in(box.mails[0]))
    assert get_user(acme.id, ada.id).email_verified
    assert find_session(standing.token) is not None
    assert audited(database, "user.email_verified") == 1
    with pytest.raises(InvalidInput) as refused:
        request_email_verification(as_herself(ada), ada.email)
    assert refused.value.code == "unchanged"


def test_email_of_another_user_is_neither_revealed_nor_taken(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    """EN-1: the response is the same, and the owner is notified."""
    make.user(acme, email="bob@acme.example")
    request_email_verification(as_herself(ada), "bob@acme.example")
    deliver()
    (mail,) = box.mails
    assert (mail["To"], mail["Subject"]) == ("bob@acme.example", "You already have an account at Acme")
    assert "confirm-address" not in plain(mail)
    # Each of both ways is a link in the HTML part.
    html = mail.get_body(("html",)).get_content()
    assert all(f'/organizations/{acme.slug}/{page}"' in html for page in ("login", "forgot"))


def test_en1_earlier_link_expires_for_known_and_unknown_email(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    """Otherwise the requester could find out by trying the earlier link."""
    make.user(acme, email="bob@acme.example")
    request_email_verification(as_herself(ada), NEW)
    deliver()
    request_email_verification(as_herself(ada), "bob@acme.example")
    assert find_email_verification(as_herself(ada), token_in(box.mails[0])) is None


def test_oi5_email_link_works_only_for_the_requesting_account(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    """An account requests someone else's email, and the owner opens the link."""
    stranger = make.user(acme, email="stranger@acme.example")
    request_email_verification(as_herself(ada), NEW)
    deliver()
    for act in (find_email_verification, verify_email):
        with pytest.raises(WrongAccount):
            act(as_herself(stranger), token_in(box.mails[0]))
    assert get_user(acme.id, ada.id).email == ada.email


def test_email_that_became_forbidden_meanwhile_is_not_set(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    request_email_verification(as_herself(ada), NEW)
    deliver()
    for may_edit, domains, refused in ((False, [], Forbidden), (True, ["acme.example"], InvalidInput)):
        change = {
            "user_permissions": {"members_can_edit_profile": may_edit},
            "authentication": {"registration": {"allowed_email_domains": domains}},
        }
        update_settings(make.system(acme), acme.slug, change)
        with pytest.raises(refused):
            verify_email(as_herself(ada), token_in(box.mails[0]))
    change["authentication"]["registration"]["allowed_email_domains"] = ["new.example"]
    update_settings(make.system(acme), acme.slug, change)
    assert verify_email(as_herself(ada), token_in(box.mails[0])) is False


def test_email_taken_meanwhile_is_not_taken_over(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    request_email_verification(as_herself(ada), NEW)
    deliver()
    make.user(acme, email=NEW)
    with pytest.raises(EmailVerificationEnded):
        verify_email(as_herself(ada), token_in(box.mails[0]))
    assert get_user(acme.id, ada.id).email == ada.email


def test_email_link_expires_by_age_newer_link_and_new_password(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    request_email_verification(as_herself(ada), NEW)
    request_email_verification(as_herself(ada), NEW)
    deliver()
    older, newer = (token_in(mail) for mail in box.mails)
    assert (
        find_email_verification(as_herself(ada), older) is None
        and find_email_verification(as_herself(ada), newer) is not None
    )
    with db.engine.begin() as connection:
        connection.execute(update(User).values(password_changed_at=clock.now()))
    assert find_email_verification(as_herself(ada), newer) is None
    with db.engine.begin() as connection:
        connection.execute(update(AccountLink).values(expires_at=clock.now()))
    assert find_email_verification(as_herself(ada), newer) is None


def test_reset_link_cannot_verify_an_email(make: Any, acme: Any, ada: Any) -> None:
    link = issue_reset_link(make.actor(acme), ada.id).link
    assert link is not None and find_email_verification(as_herself(ada), link.rpartition("/")[2]) is None


def test_tn6_link_of_another_organization_is_invalid(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    request_email_verification(as_herself(ada), NEW)
    deliver()
    with pytest.raises(EmailVerificationEnded):
        verify_email(as_herself(make.user(make.organization())), token_in(box.mails[0]))


def test_email_change_requires_a_recent_sign_in(ada: Any, box: Mailbox) -> None:
    with pytest.raises(FreshSignInRequired):
        request_email_verification(as_herself(ada, ago=3600), NEW)


def test_email_change_links_are_limited_per_hour(ada: Any, box: Mailbox, deliver: Deliver) -> None:
    for _ in range(email_change.MAX_EMAILS_PER_HOUR):
        request_email_verification(as_herself(ada), NEW)
    with pytest.raises(TooManyRequests):
        request_email_verification(as_herself(ada), "ada@third.example")
    deliver()
    assert len(box.mails) == email_change.MAX_EMAILS_PER_HOUR


@pytest.mark.parametrize(
    ("settings", "email", "refusal"),
    [
        ({"user_permissions": {"members_can_edit_profile": False}}, NEW, Forbidden),
        (
            {"authentication": {"registration": {"allowed_email_domains": ["acme.example"]}}},
            NEW,
            InvalidInput,
        ),
        ({}, "no address", InvalidInput),
    ],
)
def test_email_change_can_be_disabled(
    make: Any, box: Mailbox, settings: dict[str, Any], email: str, refusal: type[Exception]
) -> None:
    user = make.user(make.organization(settings=settings))
    with pytest.raises(refusal):
        request_email_verification(as_herself(user), email)


def test_without_mail_server_emails_cannot_be_verified(ada: Any) -> None:
    with pytest.raises(Conflict) as refused:
        request_email_verification(as_herself(ada), NEW)
    assert refused.value.code == "no_mail_server"
