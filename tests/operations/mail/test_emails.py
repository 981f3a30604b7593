"""Queued emails: encrypted in the outbox, delivered at least once, in the name of one organization."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from msgspec.structs import replace
from sqlalchemy import update

from app.extensions import db
from app.models.audit import OutboxMessage
from app.operations.mail import delivery, emails
from app.operations.store import clock, outbox
from app.operations.store.transactions import transaction
from app.rules.sealing import UnsealError
from tests.oauth.conftest import audited
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, mailing, plain

pytestmark = pytest.mark.usefixtures("context")
LINK = "https://id.example.com/organizations/acme/reset/gth_pw_canary"
VALUES = {"email": "ada@acme.example", "link": LINK, "until": "2026-11-21T12:00:00+00:00"}
Deliver = Callable[[], int]


@transaction
def send(organization: Any, to: str = "ada@acme.example", **more: Any) -> None:
    emails.send(organization, to, "password_reset", VALUES, **more)


@transaction
def make_due() -> None:
    db.session.execute(update(OutboxMessage).values(available_at=clock.now()))


def outcomes(database: Database) -> list[Any]:
    return [row[0] for row in database.query("SELECT CAST(outcome AS CHAR) FROM outbox ORDER BY id")]


def test_email_is_sent_in_the_organization_name(acme: Any, box: Mailbox, deliver: Deliver) -> None:
    send(acme, "Ada@Acme.Example")
    assert deliver() == 1
    (mail,) = box.mails
    assert mail["Subject"] == "Reset your Acme password"
    assert mail["To"] == "ada@acme.example"
    assert mail["From"].addresses[0].display_name == "Acme"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert box.links() == [LINK]
    html = mail.get_body(("html",))
    assert html is not None and f'<a href="{LINK}"' in html.get_content()


@each(
    ("support_email", "reply_to"),
    [
        ("help@acme.example", "help@acme.example"),
        ("hilfe@müller.example", "hilfe@xn--mller-kva.example"),
        ("hülfe@acme.example", None),
    ],
)
def test_replies_go_to_the_support_email(
    make: Any, box: Mailbox, deliver: Deliver, support_email: str, reply_to: str | None
) -> None:
    send(make.organization(settings={"branding": {"support_email": support_email}}))
    deliver()
    assert box.mails[-1]["Reply-To"] == reply_to


def test_link_is_not_in_database_or_log(
    acme: Any, box: Mailbox, deliver: Deliver, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """P1, TK-2."""
    caplog.set_level(logging.DEBUG)
    box.answers["END"] = "451 busy"
    send(acme)
    deliver()
    rows = str(database.query("SELECT * FROM outbox"))
    assert "canary" not in rows and "ada@" not in rows
    assert "canary" not in caplog.text and "ada@" not in caplog.text


def test_name_cannot_inject_headers_or_paragraphs(make: Any, box: Mailbox, deliver: Deliver) -> None:
    hostile = make.organization(name="Acme")

    @transaction
    def act() -> None:
        values = VALUES | {"email": "x\r\nBcc: all@example.com\n\nhttps://evil.example/"}
        emails.send(hostile, "ada@acme.example", "password_reset", values)

    act()
    deliver()
    (mail,) = box.mails
    assert mail["Bcc"] is None
    assert "\nhttps://evil.example" not in plain(mail)
    html = mail.get_body(("html",))
    assert html is not None and 'href="https://evil.example' not in html.get_content()


@pytest.mark.parametrize(
    "name",
    [
        "You won: https://evil.example/prize",
        "www.evil.example",
        "evil.example",
        "Claim at evil。example",
        "evil.भारत",
        "x@evil.example/",
    ],
)
def test_names_are_no_links(make: Any, box: Mailbox, deliver: Deliver, name: str) -> None:
    """Mail programs make links of URLs and domains, and the email comes from the operator's domain."""
    send(make.organization(name=name))
    deliver()
    (mail,) = box.mails
    html = mail.get_body(("html",))
    assert html is not None
    body = re.sub(r"<title>.*?</title>", "", html.get_content())
    for text in (plain(mail), body):
        assert name in text.replace("\u2060", ""), "the same to a reader"
        assert not re.search(r"evil[.。](example|भारत)|https://evil", text)
        assert LINK in text and VALUES["email"] in text
    assert name in mail["Subject"]


def test_markup_in_name_is_escaped(make: Any, box: Mailbox, deliver: Deliver) -> None:
    odd = make.organization(
        name="Acme", settings={"branding": {"display_name": "<img src=x onerror=alert(1)>"}}
    )
    send(odd)
    deliver()
    html = box.mails[0].get_body(("html",))
    assert html is not None and "<img" not in html.get_content()


def test_second_copy_has_the_same_message_id(
    acme: Any, box: Mailbox, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22: the worker died after the server's reply; the second copy has the same Message-ID."""
    with monkeypatch.context() as dying:
        dying.setattr(outbox, "_update", lambda *_, **__: None)
        send(acme)
        deliver()
    make_due()
    deliver()
    first, second = box.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert first["Message-ID"].startswith("<out_") and first["Message-ID"].endswith("@localhost>")


def test_unavailable_mail_server_is_retried(
    app: Flask, acme: Any, box: Mailbox, deliver: Deliver, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as down:
        down.setitem(app.config, "GATEHOUSE", mailing(app.config["GATEHOUSE"], box.server("tls")))
        send(acme)
        send(acme, "grace@acme.example")
        assert deliver() == 1, "the second waits with the first"
    make_due()
    assert deliver() == 2
    assert len(box.mails) == 2
    assert outcomes(database) == ["delivered", "delivered"]


def test_emails_beyond_the_hourly_limit_of_an_organization_wait(
    make: Any, box: Mailbox, deliver: Deliver, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that anybody can ask for get half of it, and do not delay others. New ones do not overtake."""
    busy, other = make.organization(settings={"limits": {"emails_per_hour": 10}}), make.organization()
    # They are tried again at full five minutes.
    start = clock.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)

    def pass_time(minutes: float) -> None:
        monkeypatch.setattr(clock, "now", lambda: start + timedelta(minutes=minutes))

    def sent_to() -> list[str]:
        sent = [mail["To"].partition("@")[0] for mail in box.mails]
        box.mails.clear()
        return sent

    for number in range(8):
        pass_time(number / 60 - 1)
        send(busy, f"form{number}@acme.example")
        pass_time((number + 0.5) / 60 - 1)
        transaction(emails.send)(busy, f"notice{number}@acme.example", "test", {"url": LINK})
    pass_time(0)
    send(other, "other@acme.example")
    # One attempt more for either kind that waits.
    assert deliver() == 2 + 1 + 7 + 1 + 1
    assert Counter(name.rstrip("0123456789") for name in sent_to()) == {"form": 2, "notice": 7, "other": 1}
    assert audited(database, "mail.delayed") == 1
    pass_time(4)
    transaction(emails.send)(busy, "new@acme.example", "test", {"url": LINK})
    assert deliver() == 1 and sent_to() == []
    # The new one has not made the others wait longer.
    pass_time(5)
    deliver()
    assert sent_to() == ["notice7"]
    pass_time(65)
    deliver()
    assert set(sent_to()) == {"new", "form2", "form3", "form4", "form5", "form6"}, "half of the hour"
    pass_time(125)
    deliver()
    assert sent_to() == ["form7"]
    assert outcomes(database) == ["delivered"] * 18


def test_deferred_email_does_not_delay_others(
    acme: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    box.answers["RCPT"] = "450 come back later"
    send(acme)
    send(acme, "grace@acme.example")
    message = outbox.claim_due_message(busy_receivers=(), full_organizations=())
    assert message is not None
    outbox.deliver(message)
    box.answers.clear()
    assert deliver() == 1
    assert [mail["To"] for mail in box.mails] == ["grace@acme.example"]


def test_email_of_the_next_release_waits_alone(acme: Any, box: Mailbox, deliver: Deliver) -> None:
    """During an upgrade, its workers send it, and this one goes on with what it knows."""
    for template in ("of_the_next_release", "test"):
        transaction(emails.send)(acme, "ada@acme.example", template, {"url": LINK})
    assert deliver() == 2
    assert len(box.mails) == 1


def test_rejected_email_is_dropped_and_audited(
    acme: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    box.answers["RCPT"] = "550 nobody here"
    send(acme)
    deliver()
    assert outcomes(database) == ["refused"]
    assert audited(database, "mail.refused") == 1


def test_email_with_expired_link_is_not_sent(
    acme: Any, box: Mailbox, deliver: Deliver, database: Database
) -> None:
    send(acme, until=clock.now() - timedelta(seconds=1))
    deliver()
    assert box.mails == [] and outcomes(database) == ["refused"]


def test_without_mail_server_nothing_is_queued(acme: Any, database: Database) -> None:
    assert not emails.is_possible()
    send(acme)
    assert database.count("outbox") == 0


def test_rolled_back_email_is_not_sent(acme: Any, box: Mailbox, deliver: Deliver, database: Database) -> None:
    @transaction
    def fail() -> None:
        send(acme)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert database.count("outbox") == 0


def test_email_of_another_organization_cannot_be_decrypted(
    make: Any, acme: Any, box: Mailbox, deliver: Deliver
) -> None:
    """SE-6."""
    send(acme)
    message = outbox.claim_due_message(busy_receivers=(), full_organizations=())
    assert message is not None
    with pytest.raises(UnsealError):
        delivery.deliver(replace(message, organization_id=make.organization().id))
    assert box.mails == []
