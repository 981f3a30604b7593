"""Notices to administrators: of viewed secrets and of new administrators, once an hour for the same thing (SE-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.clients.credentials import list_credentials, reveal_credential
from app.operations.mail import administrator_notices as notices
from app.operations.mail.administrator_notices import notify_administrators
from app.operations.organizations.administrators import add_administrator
from tests.support.databases import Database
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


def test_whoever_views_a_secret_is_told_of_to_the_administrators_once_an_hour(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    """SE-4."""
    client = make.client(acme)
    actor = make.actor(acme, user=make.user(acme, email="eve@acme.example"))
    (secret,) = list_credentials(actor, client.client_id)
    for _ in range(3):
        reveal_credential(actor, client.client_id, secret.public_id)
    deliver()
    assert sorted(mail["To"] for mail in box.mails) == ["boss@acme.example", "other@acme.example"]
    assert box.mails[0]["Subject"] == "A client secret of Acme was viewed"
    assert "eve@acme.example viewed a secret of the client Orchard" in plain(box.mails[0])


def test_a_new_administrator_is_told_of(make: Any, acme: Any, box: Mailbox, deliver: Deliver) -> None:
    new = make.user(acme, email="new@acme.example")
    add_administrator(make.actor(acme), acme.slug, user_id=new.public_id)
    deliver()
    assert sorted(mail["To"] for mail in box.mails) == [
        "boss@acme.example",
        "new@acme.example",
        "other@acme.example",
    ]


def test_so_many_an_hour_whatever_happens(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "MOST_AN_HOUR", 2)
    for number in range(5):
        notify_administrators(make.actor(acme), "secret_revealed", f"client {number}", {"client": "x"})
    deliver()
    assert len(box.mails) == 2 * 2


def test_what_is_refused_and_what_has_no_mail_server_is_told_to_nobody(
    make: Any, acme: Any, database: Database
) -> None:
    notify_administrators(make.actor(acme), "secret_revealed", "client", {"client": "x"})
    assert (database.count("outbox"), database.count("attempts")) == (0, 0)
