"""Notices to administrators about viewed secrets and new administrators, limited per hour (SE-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.clients.credentials import list_credentials, reveal_credential
from app.operations.mail import notices
from app.operations.mail.notices import notify_administrators
from app.operations.organizations.administrators import add_administrator
from app.operations.users.invitations import accept_invitation, create_invitation
from app.rules.actor import Actor
from tests.support.databases import Database
from tests.support.importing import admin, bring_in
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


def test_viewed_secret_notifies_administrators_once_an_hour(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    """SE-4."""
    client = make.client(acme)
    actor = make.actor(acme, user=make.user(acme, email="eve@acme.example"))
    (secret,) = list_credentials(actor, client.client_id).items
    for _ in range(3):
        reveal_credential(actor, client.client_id, secret.public_id)
    deliver()
    assert sorted(mail["To"] for mail in box.mails) == ["boss@acme.example", "other@acme.example"]
    assert box.mails[0]["Subject"] == "A client secret of Acme was viewed"
    assert "eve@acme.example viewed a secret of the client Orchard" in plain(box.mails[0])


def test_new_administrator_is_reported(make: Any, acme: Any, box: Mailbox, deliver: Deliver) -> None:
    new = make.user(acme, email="new@acme.example")
    add_administrator(make.actor(acme), acme.slug, user_id=new.public_id)
    deliver()
    assert sorted(mail["To"] for mail in box.mails) == [
        "boss@acme.example",
        "new@acme.example",
        "other@acme.example",
    ]


def test_role_that_follows_another_is_reported_too(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after as many notices of lesser roles as an hour may have."""
    monkeypatch.setattr(notices, "MAX_ADMINISTRATOR_NOTICES_PER_HOUR", 1)
    new = make.user(acme, email="new@acme.example")
    for role in ("developer", "admin"):
        add_administrator(make.actor(acme), acme.slug, user_id=new.public_id, role=role)
        deliver()
    texts = [plain(mail) for mail in box.mails if mail["To"] == "boss@acme.example"]
    assert [text.partition("the role ")[2].split()[0] for text in texts] == ["Developer", "Administrator"]


@pytest.fixture
def eve(make: Any, acme: Any) -> Actor:
    return admin(make, acme)


def test_invited_administrator_is_reported_on_acceptance(
    acme: Any, eve: Actor, box: Mailbox, deliver: Deliver
) -> None:
    for email, role in (("new@acme.example", "admin"), ("nobody@acme.example", "member")):
        create_invitation(eve, acme.slug, email=email, role=role)
        deliver()
        accept_invitation(box.links()[-1].rpartition("/")[2], name="New", password_hash="x")
    deliver()
    (reported,) = [plain(mail) for mail in box.mails if mail["To"] == "boss@acme.example"]
    assert f"{eve.label} gave new@acme.example the role Administrator in Acme" in reported


def test_imported_administrators_are_reported(acme: Any, eve: Actor, box: Mailbox, deliver: Deliver) -> None:
    text = "email,roles\nnew@acme.example,admin\ndev@acme.example,admin\nnobody@acme.example,member\n"
    bring_in(eve, text, on_existing="update")
    deliver()
    reported = sorted(plain(mail) for mail in box.mails if mail["To"] == "boss@acme.example")
    assert [text.partition(" the role Administrator in Acme")[0] for text in reported] == [
        f"{eve.label} gave dev@acme.example",
        f"{eve.label} gave new@acme.example",
    ]


def test_administrator_notices_are_limited_per_hour(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "MAX_ADMINISTRATOR_NOTICES_PER_HOUR", 2)
    for number in range(5):
        notify_administrators(make.actor(acme), "secret_revealed", f"client {number}", {"client": "x"})
    deliver()
    assert len(box.mails) == 2 * 2
    notify_administrators(make.actor(acme), "administrator_added", "user", {"who": "x", "role": "x"})
    deliver()
    assert len(box.mails) == 3 * 2, "revealed secrets do not suppress the notice of a new administrator"


def test_refused_action_and_missing_mail_server_send_no_notice(
    make: Any, acme: Any, database: Database
) -> None:
    notify_administrators(make.actor(acme), "secret_revealed", "client", {"client": "x"})
    assert (database.count("outbox"), database.count("attempts")) == (0, 0)
