"""The mail server: its location, transport security and sender."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from .settings import UnsafeConfiguration, file, is_loopback_url, text

_URL, _FROM, _CA = "GATEHOUSE_SMTP_URL", "GATEHOUSE_MAIL_FROM", "GATEHOUSE_SMTP_CA_BUNDLE"
_FORM = f"{_URL} must look like smtp://user:password@mail.example.com:587 or smtps://mail.example.com."


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
    sender = _canonical_email(env.get(_FROM, ""))
    if sender is None or not sender.isascii():
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


def _canonical_email(text: str) -> str | None:
    """Return the canonical form of an email address, or None when it is invalid.

    The rule's file is loaded by its path: the server's main process reads this package and must not import ``app``,
    because then a reload would use the code that it started with.
    """
    file_of_rule = Path(__file__).parents[1] / "rules" / "mail" / "email_addresses.py"
    spec = importlib.util.spec_from_file_location("gatehouse_emails", file_of_rule)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(file_of_rule)
    rule = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rule)
    canonical: str | None = rule.canonical_email(text)
    return canonical
