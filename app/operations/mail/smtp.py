"""SMTP: the only module that opens a connection to the mail server."""

from __future__ import annotations

import smtplib
import time
from email.message import EmailMessage
from typing import Any

from app.config.mail import MailServer
from app.operations.store.outgoing_http import OutgoingRequestFailed, tls_context

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 20.0


class MailNotAccepted(Exception):
    """The server does not accept this email; ``code`` is its reply code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the mail server answered {code}")
        self.code = code


class MailRefused(MailNotAccepted):
    """The server rejected this email permanently."""


class MailLater(MailNotAccepted):
    """The server does not accept this email now."""


def send_mail(server: MailServer, mail: EmailMessage, to: str, *, local_name: str) -> None:
    """Hand an email to the mail server.

    ``local_name`` is the host name of the greeting. Raises MailRefused, MailLater, or OutgoingRequestFailed for
    anything that would also stop other emails: no connection, no TLS, a failed login, a sender that is not allowed.
    """
    try:
        with _connected(server, local_name) as connection:
            if not to.isascii() and not connection.has_extn("smtputf8"):
                raise MailRefused(553)
            connection.send_message(mail, server.sender, [to])
    except smtplib.SMTPRecipientsRefused as refusal:
        raise _verdict(refusal.recipients[to][0]) from refusal
    except smtplib.SMTPDataError as refusal:
        raise _verdict(refusal.smtp_code) from refusal
    except (smtplib.SMTPException, OSError) as error:
        raise OutgoingRequestFailed("The mail server did not accept the email.") from error


def _verdict(code: int) -> Exception:
    if code == 421:  # RFC 5321 section 3.8: the server is closing the connection.
        return OutgoingRequestFailed("The mail server is closing.")
    return MailRefused(code) if code >= 500 else MailLater(code)


class _Deadline(smtplib.SMTP):
    """A connection with one deadline for all replies, so that many slow replies cannot exceed it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._deadline = time.monotonic() + TOTAL_SECONDS
        super().__init__(*args, **kwargs)

    def getreply(self) -> tuple[int, bytes]:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0 or self.sock is None:
            self.close()
            raise TimeoutError("the mail server took too long")
        self.sock.settimeout(remaining)
        return super().getreply()


class _DeadlineTls(_Deadline, smtplib.SMTP_SSL):
    """The same with TLS from the first byte."""


def _connected(server: MailServer, local_name: str) -> smtplib.SMTP:
    arguments: dict[str, Any] = {"local_hostname": local_name, "timeout": CONNECT_SECONDS}
    if server.security == "tls":
        return _signed_in(
            _DeadlineTls(server.host, server.port, context=tls_context(server.ca_bundle), **arguments), server
        )
    connection = _Deadline(server.host, server.port, **arguments)
    try:
        if server.security == "starttls":
            # Raises if the server does not offer TLS, so that nothing is sent in clear text.
            connection.starttls(context=tls_context(server.ca_bundle))
        return _signed_in(connection, server)
    except BaseException:
        connection.close()
        raise


def _signed_in(connection: smtplib.SMTP, server: MailServer) -> smtplib.SMTP:
    connection.ehlo_or_helo_if_needed()
    if server.user is not None:
        connection.login(server.user, server.password or "")
    return connection
