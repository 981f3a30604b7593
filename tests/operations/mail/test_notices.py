"""Notices of what concerns an account's safety: to its owner, bounded, and only of what was committed (RP-3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from app.operations.mail import notices
from app.operations.mail.notices import notify_user
from app.operations.sign_in.passwords import change_password
from app.operations.users.password_resets import issue_reset_link, reset_password
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from tests.factories import PASSWORD
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
NEW = "a wholly different password"
Deliver = Callable[[], int]


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(name="Acme")


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    return make.user(acme, email="ada@acme.example")


def as_herself(user: Any) -> Actor:
    home = user.organization.id
    return Actor("user", home, home, user_id=user.id, label=user.email, ip_address="192.0.2.7")


def test_whose_password_was_reset_is_told(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    """RP-3: by whatever way the link came."""
    issue_reset_link(make.actor(acme), ada.id)
    deliver()
    link = re.search(r"\S+/reset/(\S+)", plain(box.mails[0]))
    assert link is not None
    reset_password(acme, link[1], NEW, ip_address="192.0.2.7")
    deliver()
    mail = box.mails[1]
    assert (mail["To"], mail["Subject"]) == (ada.email, "Your password at Acme was reset")
    assert "from 192.0.2.7" in plain(mail)


def test_whose_password_was_changed_is_told(ada: Any, box: Mailbox, deliver: Deliver) -> None:
    change_password(as_herself(ada), PASSWORD, NEW)
    deliver()
    assert [mail["Subject"] for mail in box.mails] == ["Your password at Acme was changed"]


def test_what_was_refused_is_told_to_nobody(ada: Any, box: Mailbox, database: Database) -> None:
    with pytest.raises(InvalidInput):
        change_password(as_herself(ada), "a wrong password", NEW)
    assert database.count("outbox") == 0


def test_nobody_gets_more_than_so_many_an_hour(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    grace = make.user(acme, email="grace@acme.example")
    for _ in range(notices.MOST_AN_HOUR + 5):
        notify_user(as_herself(ada), ada.id, "password_changed")
    notify_user(as_herself(grace), grace.id, "password_changed")
    deliver()
    told = [mail["To"] for mail in box.mails]
    assert told.count(ada.email) == notices.MOST_AN_HOUR
    assert told.count(grace.email) == 1


def test_many_of_one_kind_silence_no_other(ada: Any, box: Mailbox, deliver: Deliver) -> None:
    """Who signs in from ten new browsers, and then changes the address, does not do that in silence."""
    for _ in range(notices.MOST_AN_HOUR + 1):
        notify_user(as_herself(ada), ada.id, "new_browser", browser="Firefox")
    notify_user(as_herself(ada), ada.id, "email_changed", to="old@acme.example", new=ada.email)
    deliver()
    assert [mail["To"] for mail in box.mails] == [ada.email] * notices.MOST_AN_HOUR + ["old@acme.example"]


def test_without_a_mail_server_nothing_is_counted(ada: Any, database: Database) -> None:
    notify_user(as_herself(ada), ada.id, "password_changed")
    assert database.count("outbox") == 0 and database.count("attempts") == 0
