"""Composing: one text makes the plain and the HTML part of a mail, whatever people called themselves."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.config import ROOT
from app.operations.directory import OrganizationView


def compose(
    organization: OrganizationView,
    template: str,
    values: Mapping[str, str],
    *,
    to: str,
    sender: str,
    message_id: str,
    written_at: datetime,
) -> EmailMessage:
    """The mail that says what the template says in the organization's name.

    The template's first paragraph is the subject; a paragraph that is an address becomes a button in the HTML part.
    ``message_id`` is the same for each attempt at a message, so that mailboxes know a second copy. Values are put
    into one line: no name can begin a header or a paragraph.
    """
    branding = organization.settings["branding"]
    title = _line(branding["display_name"] or organization.name)
    told = {name: _line(value) for name, value in values.items()}
    text = _texts().get_template(f"{template}.txt").render(told, title=title)
    subject, *paragraphs = [_line(part) for part in text.split("\n\n") if part.strip()]
    mail = EmailMessage()
    mail["Subject"] = subject
    mail["From"] = Address(display_name=title, addr_spec=sender)
    mail["To"] = to
    mail["Date"] = format_datetime(written_at)
    mail["Message-ID"] = f"<{message_id}@{urlsplit(organization.base_url).hostname}>"
    # RFC 3834 section 5: no holiday note answers it.
    mail["Auto-Submitted"] = "auto-generated"
    if branding["support_email"]:
        mail["Reply-To"] = branding["support_email"]
    mail.set_content("\n\n".join(paragraphs) + "\n")
    page = _pages().get_template("message.html")
    accent = branding["accent_color"]
    mail.add_alternative(
        page.render(subject=subject, paragraphs=paragraphs, title=title, accent=accent), subtype="html"
    )
    return mail


def _line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


@functools.cache
def _texts() -> Environment:
    # Plain text: what HTML needs escaped is escaped in the HTML part.
    return Environment(loader=_loader(), undefined=StrictUndefined, autoescape=False)  # noqa: S701


@functools.cache
def _pages() -> Environment:
    return Environment(loader=_loader(), undefined=StrictUndefined, autoescape=True)


def _loader() -> FileSystemLoader:
    return FileSystemLoader(ROOT / "templates" / "mail")
