"""Emails about client requests: to administrators, and to members about the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.authorization import approval_requests
from app.operations.authorization.approval_requests import (
    approve_client_request,
    create_client_request,
    decline_client_request,
    list_client_requests,
)
from app.operations.directory import lookups
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
Deliver = Callable[[], int]


@pytest.fixture
def acme(make: Any) -> Any:
    made = make.organization(name="Acme")
    make.user(made, email="boss@acme.example", role="admin")
    make.user(made, email="other@acme.example", role="admin")
    make.user(made, email="dev@acme.example", role="developer")
    return made


@pytest.fixture
def orchard(make: Any, acme: Any) -> Any:
    return make.client(acme)


def ask(make: Any, client: Any, email: str, reason: str = "For the harvest") -> None:
    view = lookups.find_client(client.client_id)
    assert view is not None
    user = make.user(client.organization, email=email)
    create_client_request(make.actor(client.organization, "users:read", user=user), view, ("openid",), reason)


def test_client_request_email_names_user_app_and_reason(
    make: Any, acme: Any, orchard: Any, box: Mailbox, deliver: Deliver
) -> None:
    ask(make, orchard, "ada@acme.example", "For the harvest\n\nhttps://evil.example/button")
    deliver()
    assert sorted(mail["To"] for mail in box.mails) == ["boss@acme.example", "other@acme.example"]
    text = plain(box.mails[0])
    assert box.mails[0]["Subject"] == "Request to approve Orchard at Acme"
    assert "ada@acme.example asked to use the app Orchard" in text
    assert "For the harvest https://evil.example/button" in text, "no button is made of a member's words"
    assert f"/portal/{acme.slug}/client-requests" in text


def test_approval_notifies_everyone_who_asked(
    make: Any, acme: Any, orchard: Any, box: Mailbox, deliver: Deliver
) -> None:
    for email in ("ada@acme.example", "grace@acme.example"):
        ask(make, orchard, email)
    deliver()
    box.mails.clear()
    waiting = list_client_requests(make.actor(acme)).items
    approve_client_request(make.actor(acme), waiting[0].public_id)
    deliver()
    assert sorted(mail["To"] for mail in box.mails) == ["ada@acme.example", "grace@acme.example"]
    assert all(mail["Subject"] == "You can now use Orchard" for mail in box.mails)


def test_declined_request_email_contains_the_message(
    make: Any, acme: Any, orchard: Any, box: Mailbox, deliver: Deliver
) -> None:
    ask(make, orchard, "ada@acme.example")
    deliver()
    box.mails.clear()
    [waiting] = list_client_requests(make.actor(acme)).items
    decline_client_request(make.actor(acme), waiting.public_id, {"message": "We have another one."})
    deliver()
    [mail] = box.mails
    assert mail["To"] == "ada@acme.example" and "We have another one." in plain(mail)


def test_client_request_emails_are_limited_per_hour(
    make: Any, orchard: Any, box: Mailbox, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval_requests, "MAX_EMAILS_PER_HOUR", 2)
    for number in range(4):
        ask(make, orchard, f"ada{number}@acme.example")
    deliver()
    assert len(box.mails) == 2 * 2
