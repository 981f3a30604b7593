"""Speaking SMTP: the only place that opens a connection to the mail server."""

from __future__ import annotations

import smtplib
import ssl
import time
from email.message import EmailMessage
from typing import Any

from app.config.mail import MailServer
from app.operations.store.outgoing_http import OutgoingRequestFailed

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 20.0


class MailRefused(Exception):
    """The server will never take this mail; ``code`` is its answer."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the mail server answered {code}")
        self.code = code


class MailLater(Exception):
    """The server is well, and does not take this mail now; ``code`` is its answer."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the mail server answered {code}")
        self.code = code


def send_mail(server: MailServer, mail: EmailMessage, to: str, *, our_name: str) -> None:
    """The mail server has the mail and answers for it from now on.

    ``our_name`` is what we greet it with. Raises MailRefused, MailLater, and OutgoingRequestFailed for whatever would stop
    every other mail too: no connection, no TLS, no sign-in, a sender that is not ours to use.
    """
    try:
        with _connected(server, our_name) as connection:
            if not to.isascii() and not connection.has_extn("smtputf8"):
                raise MailRefused(553)
            connection.send_message(mail, server.sender, [to])
    except smtplib.SMTPRecipientsRefused as refusal:
        raise _verdict(refusal.recipients[to][0]) from refusal
    except smtplib.SMTPDataError as refusal:
        raise _verdict(refusal.smtp_code) from refusal
    except (smtplib.SMTPException, OSError) as fault:
        raise OutgoingRequestFailed("The mail server did not take the mail.") from fault


def _verdict(code: int) -> Exception:
    if code == 421:  # RFC 5321 section 3.8: it is closing, whatever the mail
        return OutgoingRequestFailed("The mail server is closing.")
    return MailRefused(code) if code >= 500 else MailLater(code)


class _Deadline(smtplib.SMTP):
    """A connection whose answers come within one time in all: a slow server gains nothing by many slow answers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._deadline = time.monotonic() + TOTAL_SECONDS
        super().__init__(*args, **kwargs)

    def getreply(self) -> tuple[int, bytes]:
        left = self._deadline - time.monotonic()
        if left <= 0 or self.sock is None:
            self.close()
            raise TimeoutError("the time of this mail is over")
        self.sock.settimeout(left)
        return super().getreply()


class _DeadlineTls(_Deadline, smtplib.SMTP_SSL):
    """The same with TLS from the first byte."""


def _connected(server: MailServer, our_name: str) -> smtplib.SMTP:
    arguments: dict[str, Any] = {"local_hostname": our_name, "timeout": CONNECT_SECONDS}
    if server.security == "tls":
        return _signed_in(_DeadlineTls(server.host, server.port, context=_trust(server), **arguments), server)
    connection = _Deadline(server.host, server.port, **arguments)
    try:
        if server.security == "starttls":
            # Raises when the server offers none: nothing is ever said in clear beyond this machine.
            connection.starttls(context=_trust(server))
        return _signed_in(connection, server)
    except BaseException:
        connection.close()
        raise


def _signed_in(connection: smtplib.SMTP, server: MailServer) -> smtplib.SMTP:
    connection.ehlo_or_helo_if_needed()
    if server.user is not None:
        connection.login(server.user, server.password or "")
    return connection


def _trust(server: MailServer) -> ssl.SSLContext:
    # create_default_context would write session keys wherever SSLKEYLOGFILE of the environment says.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if server.ca_bundle is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=server.ca_bundle)
    return context
