"""The SMTP connection: encryption, deadlines and the meaning of reply codes (F22)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.message import EmailMessage

import pytest

from app.config import MailServer
from app.operations.mail import smtp
from app.operations.mail.smtp import MailLater, MailRefused, send_mail
from app.operations.store.outgoing_http import OutgoingRequestFailed
from tests.support.mail_server import SENDER, Mailbox, mail_server

TO = "ada@example.com"


@pytest.fixture
def box() -> Iterator[Mailbox]:
    with mail_server() as made:
        yield made


def send(server: MailServer, to: str = TO) -> None:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = "News", SENDER, to
    mail.set_content("It is done.\n")
    send_mail(server, mail, to, local_name="id.example.com")


def test_smtp_sends_an_email(box: Mailbox) -> None:
    send(box.server())
    assert [mail["Subject"] for mail in box.mails] == ["News"]
    assert box.commands[0] == "ehlo id.example.com"
    assert f"mail FROM:<{SENDER}>" in [command.split(" size")[0] for command in box.commands]


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_smtp_with_tls_logs_in_and_sends(security: str) -> None:
    with mail_server(security) as box:  # type: ignore[arg-type]
        send(box.server(security, user="gatehouse", password="s3cret"))  # type: ignore[arg-type]
        assert len(box.mails) == 1
        auth = [command.split()[0] for command in box.commands].index("AUTH")
        assert security == "tls" or "STARTTLS" in box.commands[:auth]


def test_smtp_without_starttls_sends_nothing() -> None:
    """Passwords and links are never sent in clear text."""
    with mail_server("starttls") as box:
        box.offers_starttls = False
        with pytest.raises(OutgoingRequestFailed):
            send(box.server("starttls", user="gatehouse", password="s3cret"))
        assert {command.split()[0].upper() for command in box.commands} <= {"EHLO", "QUIT"}


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_smtp_rejects_an_untrusted_certificate(security: str) -> None:
    with mail_server(security) as box:  # type: ignore[arg-type]
        with pytest.raises(OutgoingRequestFailed):
            send(box.server(security, ca_bundle=None))  # type: ignore[arg-type]
        assert box.mails == []


@pytest.mark.parametrize(
    ("moment", "answer", "outcome"),
    [
        ("RCPT", "550 nobody here", MailRefused),
        ("RCPT", "450 come back later", MailLater),
        ("END", "554 spam", MailRefused),
        ("END", "451 busy", MailLater),
        ("END", "421 closing", OutgoingRequestFailed),
        ("MAIL", "550 not your address", OutgoingRequestFailed),
        ("AUTH", "535 wrong password", OutgoingRequestFailed),
        ("220", "554 go away", OutgoingRequestFailed),
    ],
)
def test_smtp_reply_code_maps_to_its_error(
    box: Mailbox, moment: str, answer: str, outcome: type[Exception]
) -> None:
    """An error about one email does not stop others."""
    box.answers[moment] = answer
    with pytest.raises(outcome):
        send(box.server(user="gatehouse", password="s3cret"))
    assert box.mails == []


def test_smtp_rejects_an_unsupported_address(box: Mailbox) -> None:
    with pytest.raises(MailRefused):
        send(box.server(), "ädä@example.com")


def test_smtp_without_server_fails() -> None:
    with mail_server() as box:
        server = box.server()
    with pytest.raises(OutgoingRequestFailed):
        send(server)


@pytest.mark.slow
def test_smtp_has_one_deadline_for_all_replies(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter than the outbox's lease, so that no second worker sends the same email."""
    assert smtp.TOTAL_SECONDS + smtp.CONNECT_SECONDS < 30
    monkeypatch.setattr(smtp, "TOTAL_SECONDS", 0.5)
    box.pause = 2
    began = time.monotonic()
    with pytest.raises(OutgoingRequestFailed):
        send(box.server())
    assert time.monotonic() - began < 8
