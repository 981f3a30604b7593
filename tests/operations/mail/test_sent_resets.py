"""Reset links that an administrator requests: sent by email if there is a mail server (RP-1, RP-3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.directory.users import get_user
from app.operations.mail import emails
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.users.password_resets import find_reset, issue_reset_link, reset_password
from app.rules.errors import TooManyRequests
from tests.support.databases import Database
from tests.support.mail_server import Mailbox

pytestmark = pytest.mark.usefixtures("context")
NEW = "a wholly different password"


def test_reset_link_is_emailed_and_not_returned(
    make: Any, box: Mailbox, deliver: Callable[[], int], database: Database
) -> None:
    """RP-1, RP-2, PW-4: the administrator never sees the link, and using it verifies the email."""
    acme = make.organization(name="Acme")
    ada = make.user(acme, email="ada@acme.example")
    new = issue_reset_link(make.actor(acme), ada.id)
    assert new.link is None
    deliver()
    (mail,) = box.mails
    assert mail["To"] == ada.email
    (link,) = box.links()
    assert link.startswith(f"{acme.base_url}/organizations/{acme.slug}/reset/gth_pw_")
    token = link.rpartition("/")[2]
    assert token.encode() not in database.dump()
    reset_password(acme, token, NEW)
    assert get_user(acme.id, ada.id).email_verified
    assert isinstance(sign_in(acme.id, ada.email, NEW), SignedIn)


def test_reset_link_is_returned_without_reset_by_email(
    make: Any, box: Mailbox, deliver: Callable[[], int]
) -> None:
    acme = make.organization(settings={"authentication": {"recovery": {"password_reset": False}}})
    ada = make.user(acme)
    link = issue_reset_link(make.actor(acme), ada.id).link
    assert link is not None and deliver() == 0
    reset = find_reset(acme, link.rpartition("/")[2])
    assert reset is not None and not reset.is_mailed


@pytest.mark.usefixtures("box")
def test_reset_links_cannot_flood_a_mailbox(make: Any, database: Database) -> None:
    acme = make.organization(name="Acme")
    ada = make.user(acme, email="ada@acme.example")
    for _ in range(emails.MAX_PER_MAILBOX_PER_HOUR):
        issue_reset_link(make.actor(acme), ada.id)
    with pytest.raises(TooManyRequests):
        issue_reset_link(make.actor(acme), ada.id)
    assert database.count("outbox") == emails.MAX_PER_MAILBOX_PER_HOUR
