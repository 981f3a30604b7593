"""A mail server on the loopback interface: real SMTP on a real socket, with scripted behavior."""

from __future__ import annotations

import dataclasses
import email.policy
import re
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Literal

from app.config import Config, MailServer
from tests.support.https_server import certificate

SENDER = "gatehouse@mail.example"


@dataclass(slots=True)
class Mailbox:
    """Received emails; ``answers`` replaces the reply to a command, ``pause`` delays each reply."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    pause: float = 0.0
    offers_starttls: bool = True

    def links(self) -> list[str]:
        """Return the URLs in the plain-text parts, in order."""
        return [link for mail in self.mails for link in re.findall(r"https?://\S+", plain(mail))]

    def server(self, security: Literal["tls", "starttls", "none"] = "none", **more: object) -> MailServer:
        """Return the settings that point the service to it."""
        told = MailServer("localhost", self.port, security, SENDER, ca_bundle=certificate()[1])
        return dataclasses.replace(told, **more)  # type: ignore[arg-type]


def plain(mail: EmailMessage) -> str:
    """Return the plain-text part."""
    part = mail.get_body(("plain",))
    assert part is not None
    return str(part.get_content())


def mailing(config: Config, server: MailServer | None) -> Config:
    """Return the configuration with the mail server."""
    return dataclasses.replace(config, mail_server=server)


class _Talk(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        if self.server.security == "tls":
            self._secure()
        self._say("220", "220 ready")
        while line := self.rfile.readline(2000).decode().strip():
            self.server.box.commands.append(line)
            if not self._answer(line.split()[0].upper()):
                break

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def _answer(self, command: str) -> bool:
        """Reply to a command; return whether the session continues."""
        if command == "EHLO":
            offers = self.server.security == "starttls" and self.server.box.offers_starttls
            self._say(
                command, f"250-localhost\r\n{'250-STARTTLS' if offers else '250-8BITMIME'}\r\n250 AUTH PLAIN"
            )
        elif command == "STARTTLS":
            self._say(command, "220 go on")
            self._secure()
        elif command == "DATA":
            if self._say(command, "354 go on").startswith("354"):
                self._take()
        else:
            usual = {"QUIT": "221 bye", "AUTH": "235 yes"}.get(command, "250 yes")
            self._say(command, usual)
        return command != "QUIT"

    def _take(self) -> None:
        lines = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b"."))
        if self._say("END", "250 taken").startswith("250"):
            parsed = BytesParser(policy=email.policy.default).parsebytes(b"".join(lines))
            assert isinstance(parsed, EmailMessage)
            self.server.box.mails.append(parsed)

    def _secure(self) -> None:
        self.rfile.close()
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)

    def _say(self, moment: str, answer: str) -> str:
        time.sleep(self.server.box.pause)
        answer = self.server.box.answers.get(moment, answer)
        self.wfile.write(f"{answer}\r\n".encode())
        return answer


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, box: Mailbox, security: str) -> None:
        self.box, self.security = box, security
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate()[0])
        super().__init__(("127.0.0.1", 0), _Talk)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore disconnects, which some tests cause on purpose."""


@contextmanager
def mail_server(security: Literal["tls", "starttls", "none"] = "none") -> Iterator[Mailbox]:
    """Run a server that accepts every email."""
    box = Mailbox()
    server = _Server(box, security)
    box.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield box
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
