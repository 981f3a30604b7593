"""The mail server: its location, transport security and sender."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import idna

from .settings import UnsafeConfiguration, file, is_loopback_url, text

_URL, _FROM, _CA = "GATEHOUSE_SMTP_URL", "GATEHOUSE_MAIL_FROM", "GATEHOUSE_SMTP_CA_BUNDLE"
_FORM = f"{_URL} must look like smtp://user:password@mail.example.com:587 or smtps://mail.example.com."
_ATOM = r"[a-z0-9!#$%&'*+/=?^_`{|}~-]+"
# No IP address: its last label is a number.
_SENDER = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@(?:[a-z0-9-]+\.)*(?![0-9]+$)[a-z0-9-]+")
_MAX_LENGTH, _MAX_LOCAL_PART = 254, 64


@dataclass(frozen=True, slots=True)
class MailServer:
    """``security`` is TLS from the start, required STARTTLS, or none, which is allowed on loopback only."""

    host: str
    port: int
    security: Literal["tls", "starttls", "none"]
    sender: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_bundle: Path | None = None


def mail_server(env: Mapping[str, str]) -> MailServer | None:
    """Return the configured mail server, or None. Raises UnsafeConfiguration, which never contains the password."""
    url = text(env, _URL)
    if not url:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UnsafeConfiguration(_FORM) from None
    if parts.scheme not in {"smtp", "smtps"} or not host or parts.path.strip("/") or parts.query:
        raise UnsafeConfiguration(_FORM)
    sender = _canonical_sender(env.get(_FROM, ""))
    if sender is None:
        raise UnsafeConfiguration(f"{_URL} is set, so {_FROM} must be the sender's email address.")
    is_tls = parts.scheme == "smtps"
    plain: Literal["starttls", "none"] = "none" if is_loopback_url(url) else "starttls"
    return MailServer(
        host=host,
        port=port or (465 if is_tls else 587),
        security="tls" if is_tls else plain,
        sender=sender,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password or "") if parts.username else None,
        ca_bundle=file(env, _CA),
    )


def _canonical_sender(text: str) -> str | None:
    """Return the sender's mailbox in ASCII and lower case, or None if it is invalid (RFC 5321 section 4).

    The rule for users' emails would import ``app``. The server's main process reads this package and must not, because
    then a reload would use the code that it started with.
    """
    local_part, _, domain = text.strip().lower().rpartition("@")
    try:
        mailbox = f"{local_part}@{idna.encode(domain, uts46=True, std3_rules=True).decode()}"
    except ValueError:
        return None
    is_short = len(mailbox) <= _MAX_LENGTH and len(local_part) <= _MAX_LOCAL_PART
    return mailbox if is_short and _SENDER.fullmatch(mailbox) else None
