"""Security notices to users: limited, and only about committed changes (RP-3)."""

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


def as_herself(user: Any) -> Actor:
    home = user.organization.id
    return Actor("user", home, home, user_id=user.id, label=user.email, ip_address="192.0.2.7")


def test_password_reset_is_reported(make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver) -> None:
    """RP-3: for every way of getting the link."""
    issue_reset_link(make.actor(acme), ada.id)
    deliver()
    link = re.search(r"\S+/reset/(\S+)", plain(box.mails[0]))
    assert link is not None
    reset_password(acme, link[1], NEW, ip_address="192.0.2.7")
    deliver()
    mail = box.mails[1]
    assert (mail["To"], mail["Subject"]) == (ada.email, "Your Acme password was reset")
    assert "from 192.0.2.7" in plain(mail)


def test_password_change_is_reported(ada: Any, box: Mailbox, deliver: Deliver) -> None:
    change_password(as_herself(ada), PASSWORD, NEW)
    deliver()
    assert [mail["Subject"] for mail in box.mails] == ["Your Acme password was changed"]


def test_refused_change_is_not_reported(ada: Any, box: Mailbox, database: Database) -> None:
    with pytest.raises(InvalidInput):
        change_password(as_herself(ada), "a wrong password", NEW)
    assert database.count("outbox") == 0


def test_notices_are_limited_per_hour(make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver) -> None:
    grace = make.user(acme, email="grace@acme.example")
    for _ in range(notices.MAX_USER_NOTICES_PER_HOUR + 5):
        notify_user(as_herself(ada), ada.id, "password_changed")
    notify_user(as_herself(grace), grace.id, "password_changed")
    deliver()
    told = [mail["To"] for mail in box.mails]
    assert told.count(ada.email) == notices.MAX_USER_NOTICES_PER_HOUR
    assert told.count(grace.email) == 1


def test_notices_to_a_previous_email_are_limited_for_all_users_together(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    """An administrator may give one user after the other a stranger's email and take it away again."""
    for _ in range(2):
        user = make.user(acme)
        for _ in range(notices.MAX_USER_NOTICES_PER_HOUR - 2):
            notify_user(as_herself(user), user.id, "email_changed", to="bob@victim.example", new=user.email)
    deliver()
    assert len(box.mails) == notices.MAX_USER_NOTICES_PER_HOUR


def test_notice_limit_is_per_kind(ada: Any, box: Mailbox, deliver: Deliver) -> None:
    """Ten sign-ins from new browsers do not suppress the notice about a changed email."""
    for _ in range(notices.MAX_USER_NOTICES_PER_HOUR + 1):
        notify_user(as_herself(ada), ada.id, "new_browser", browser="Firefox")
    notify_user(as_herself(ada), ada.id, "email_changed", to="old@acme.example", new=ada.email)
    deliver()
    assert [mail["To"] for mail in box.mails] == [ada.email] * notices.MAX_USER_NOTICES_PER_HOUR + [
        "old@acme.example"
    ]


def test_without_mail_server_notices_are_not_counted(ada: Any, database: Database) -> None:
    notify_user(as_herself(ada), ada.id, "password_changed")
    assert database.count("outbox") == 0 and database.count("attempts") == 0
