"""Password reset by email (EN-1, RP-1 to RP-3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.directory.users import find_user_by_email
from app.operations.organizations.settings import update_settings
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.users import password_resets
from app.operations.users.password_resets import request_reset, reset_password
from app.operations.users.users import disable_user
from app.rules.errors import Forbidden, InvalidInput, TooManyRequests
from tests.oauth.conftest import audited
from tests.support.databases import Database
from tests.support.mail_server import Mailbox

pytestmark = pytest.mark.usefixtures("context")
NEW = "a wholly different password"
Deliver = Callable[[], int]


def ask(organization: Any, email: str = "ada@acme.example", *, network: int = 1) -> None:
    request_reset(organization, email, ip_address=f"192.0.{network}.7", request_id=None)


def test_reset_by_email_verifies_the_email(
    acme: Any, ada: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    """RP-2: the link has the configured origin."""
    ask(acme, "ADA@acme.example")
    assert deliver() == 2
    (link,) = box.links()
    assert link.startswith(f"http://localhost/organizations/{acme.slug}/reset/gth_pw_")
    reset_password(acme, link.rpartition("/")[2], NEW)
    assert isinstance(sign_in(acme.id, ada.email, NEW), SignedIn)
    user = find_user_by_email(acme.id, ada.email)
    assert user is not None and user.email_verified
    assert audited(database, "user.password_reset_requested") == 1


def test_reset_for_known_and_unknown_email_writes_the_same(
    acme: Any, ada: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    """EN-1: no account is looked up before the response."""
    ask(acme, ada.email)
    ask(acme, "bob@acme.example")
    rows = database.query("SELECT CAST(kind AS CHAR), CAST(receiver AS CHAR), LENGTH(payload) FROM outbox")
    assert len(rows) == 2 and rows[0] == rows[1]
    assert database.count("account_links") == 0
    assert audited(database, "user.password_reset_requested") == 0
    deliver()
    assert [mail["To"] for mail in box.mails] == [ada.email]


def test_disabled_user_gets_no_reset_email(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    disable_user(make.actor(acme), ada.id)
    ask(acme)
    deliver()
    assert box.mails == []


def test_reset_emails_are_limited_silently(acme: Any, ada: Any, box: Mailbox, deliver: Deliver) -> None:
    for network in range(10):
        ask(acme, network=network)
    deliver()
    assert len(box.mails) == password_resets.MAX_EMAILS_PER_ACCOUNT


def test_reset_requests_are_limited_per_network(acme: Any, box: Mailbox) -> None:
    for number in range(password_resets.MAX_REQUESTS_PER_NETWORK):
        ask(acme, f"nobody{number}@acme.example")
    with pytest.raises(TooManyRequests):
        ask(acme, "ada@acme.example")
    ask(acme, "ada@acme.example", network=2)


def test_reset_is_refused_where_disabled(make: Any, acme: Any, database: Database, box: Mailbox) -> None:
    """The settings ``authentication.recovery.password_reset`` and ``authentication.password.enabled``."""
    for closed in ({"recovery": {"password_reset": False}}, {"password": {"enabled": False}}):
        with pytest.raises(Forbidden):
            ask(make.organization(settings={"authentication": closed}))
    with pytest.raises(InvalidInput):
        ask(acme, "nobody")
    assert database.count("outbox") == 0


def test_reset_without_mail_server_is_refused(acme: Any, database: Database) -> None:
    assert not password_resets.is_password_recovery_offered(acme)
    with pytest.raises(Forbidden):
        ask(acme)


def test_reset_link_is_refused_after_being_disabled(
    make: Any, acme: Any, ada: Any, box: Mailbox, deliver: Deliver
) -> None:
    ask(acme)
    off = {"authentication": {"recovery": {"password_reset": False}}}
    update_settings(make.actor(acme), acme.slug, off)
    deliver()
    assert box.mails == []
