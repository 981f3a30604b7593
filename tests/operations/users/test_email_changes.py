"""An administrator changes a user's email: sessions and grants end, and the old email is notified (SS-6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sessions import find_session
from app.operations.users.user_changes import update_user
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")


def test_changed_email_ends_sessions_and_notifies_the_old_one(
    make: Any, box: Mailbox, deliver: Callable[[], int]
) -> None:
    """SS-6."""
    acme = make.organization()
    ada = make.user(acme, email="ada@acme.example")
    token = make.sign_in(ada).token
    deliver()
    box.mails.clear()
    updated = update_user(make.actor(acme), ada.public_id, {"email": "ada@lovelace.example"})
    assert updated.changed == ["email"] and not updated.record.user.email_verified
    assert find_session(token) is None
    deliver()
    assert [mail["To"] for mail in box.mails] == ["ada@acme.example"]
    assert "An administrator of" in plain(box.mails[0]) and "192.0.2" not in plain(box.mails[0])


def test_new_email_requires_a_recent_sign_in(make: Any) -> None:
    """Otherwise a session left open would be enough to have a password reset link sent to another address."""
    acme = make.organization()
    ada = make.user(acme, email="ada@acme.example", role="admin")
    late = make.actor(acme, user=ada, authenticated_ago_seconds=3600)
    bob = make.user(acme)
    for user in (ada, bob):
        with pytest.raises(FreshSignInRequired):
            update_user(late, user.public_id, {"email": "mallory@example.com"})
    assert update_user(late, ada.public_id, {"email": "Ada@ACME.example", "name": "Ada"}).changed
    now = make.actor(acme, user=ada)
    assert update_user(now, ada.public_id, {"email": "ada@example.com"}).changed == ["email"]


def test_other_spelling_of_the_email_ends_nothing(
    make: Any, box: Mailbox, deliver: Callable[[], int]
) -> None:
    acme = make.organization()
    ada = make.user(acme, email="ada@acme.example")
    token = make.sign_in(ada).token
    deliver()
    box.mails.clear()
    update_user(make.actor(acme), ada.public_id, {"email": "Ada@ACME.example"})
    assert find_session(token) is not None
    deliver()
    assert box.mails == []
