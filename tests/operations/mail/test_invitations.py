"""Invitations by email: opening the link verifies the email."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from app.operations.directory.users import find_user_by_email
from app.operations.mail import emails
from app.operations.users.invitations import accept_invitation, create_invitation, revoke_invitation
from app.rules.directory.permissions import PERMISSIONS
from app.rules.errors import TooManyRequests
from tests.account.conftest import Visitor
from tests.factories import bearer_header
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain

Deliver = Callable[[], int]


@pytest.mark.usefixtures("context")
def test_invitation_by_email_verifies_the_email(make: Any, acme: Any, box: Mailbox, deliver: Deliver) -> None:
    """OI-5."""
    made = create_invitation(make.actor(acme), acme.slug, email="Grace@Acme.example")
    assert made.link is None
    deliver()
    (mail,) = box.mails
    assert (mail["To"], mail["Subject"]) == ("grace@acme.example", "Join Acme")
    token = box.links()[0].rpartition("/")[2]
    accept_invitation(token, name="Grace", password_hash="x")
    user = find_user_by_email(acme.id, "grace@acme.example")
    assert user is not None and user.email_verified


@pytest.mark.usefixtures("context")
def test_displayed_invitation_link_does_not_verify_the_email(
    make: Any, acme: Any, database: Database
) -> None:
    """OI-5."""
    made = create_invitation(make.actor(acme), acme.slug, email="grace@acme.example")
    assert made.link is not None and database.count("outbox") == 0
    accept_invitation(made.link.rpartition("/")[2], name="Grace", password_hash="x")
    user = find_user_by_email(acme.id, "grace@acme.example")
    assert user is not None and not user.email_verified


@pytest.mark.usefixtures("context")
def test_invitation_email_names_the_inviter_only(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    """The invited user's name is entered by the inviter and must not appear in the email."""
    create_invitation(make.actor(acme), acme.slug, email="grace@acme.example", name="See https evil example")
    deliver()
    assert "evil" not in str(box.mails[0])
    assert "invited you to join Acme" in plain(box.mails[0])


@pytest.mark.usefixtures("context", "box")
def test_invitations_cannot_flood_a_mailbox(make: Any, acme: Any, database: Database) -> None:
    """Revoking one allows no further email, nor does another spelling."""
    actor = make.actor(acme)
    for spelling in ("grace@victim.example", "GRACE@victim.example", "Grace@Victim.example") * 2:
        if database.count("outbox") == emails.MAX_PER_MAILBOX_PER_HOUR:
            break
        made = create_invitation(actor, acme.slug, email=spelling)
        revoke_invitation(actor, acme.slug, made.invitation.public_id)
    with pytest.raises(TooManyRequests):
        create_invitation(actor, acme.slug, email="grace@victim.example")
    create_invitation(actor, acme.slug, email="bob@acme.example")
    assert database.count("outbox") == emails.MAX_PER_MAILBOX_PER_HOUR + 1


@pytest.mark.usefixtures("context", "box")
def test_revoked_invitations_count_for_the_emails_of_a_day(
    make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emails, "MAX_TO_CHOSEN_ADDRESSES_PER_DAY", 2)
    actor = make.actor(acme)
    for number in range(2):
        made = create_invitation(actor, acme.slug, email=f"stranger{number}@victim.example")
        revoke_invitation(actor, acme.slug, made.invitation.public_id)
    with pytest.raises(TooManyRequests, match="2 invitations and reset links in a day"):
        create_invitation(actor, acme.slug, email="stranger2@victim.example")


@pytest.mark.parametrize("mailed", [True, False])
def test_api_returns_the_link_only_without_mail(
    app: Flask, make: Any, acme: Any, request: pytest.FixtureRequest, mailed: bool
) -> None:
    """``POST /organizations/{id}/admins``."""
    if mailed:
        request.getfixturevalue("box")
    root = make.root()
    headers = bearer_header(make.bearer(root, *PERMISSIONS, "organizations:write"))
    answer = app.test_client().post(
        f"/organizations/{root.slug}/admins",
        json={"email": "grace@acme.example", "role": "member"},
        headers=headers,
    )
    assert answer.status_code == 201, answer.text
    assert ("invitation_link" in answer.json["data"]) is not mailed
    made = app.test_client().post(
        "/organizations", json={"name": "New", "admin": {"email": "ada@new.example"}}, headers=headers
    )
    assert made.status_code == 201, made.text
    assert ("link" in made.json["data"]["invitation"]) is not mailed


@pytest.mark.usefixtures("box")
def test_portal_says_that_the_invitation_was_sent(app: Flask, make: Any) -> None:
    root = make.root()
    visitor = Visitor(app)
    visitor.sign_in(make.user(root, role="admin"))
    new = f"/portal/{root.slug}/administrators/new"
    visitor.get(new)
    page = visitor.get(visitor.post(new, email="grace@acme.example", role="auditor").location)
    assert 'id="invitation-mailed"' in page.text and "gth_iv_" not in page.text
    new = f"/portal/{root.slug}/organizations/new"
    visitor.get(new)
    page = visitor.get(visitor.post(new, name="New", email="ada@new.example", person="Ada").location)
    assert 'id="invitation-mailed"' in page.text and "gth_iv_" not in page.text
