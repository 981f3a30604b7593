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
from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.languages.catalogs import catalog_of
from app.rules.languages.choice import ENGLISH
from app.rules.languages.moments import written_moment
from app.rules.languages.sentences import said


def compose(
    organization: OrganizationSnapshot,
    template: str,
    values: Mapping[str, str],
    *,
    to: str,
    sender: str,
    message_id: str,
    written_at: datetime,
    language: str = ENGLISH,
) -> EmailMessage:
    """The mail that says what the template says, in the organization's name and in the language.

    The template's first paragraph is the subject; a paragraph that is an address becomes a button in the HTML part.
    ``message_id`` is the same for each attempt at a message, so that mailboxes know a second copy. Values are put
    into one line: no name can begin a header or a paragraph.
    """
    branding = organization.settings["branding"]
    title = _line(branding["display_name"] or organization.name)
    told = {name: _line(value) for name, value in values.items()}
    text = _texts(language).get_template(f"{template}.txt").render(told, title=title)
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
    page = _pages(language).get_template("message.html")
    accent = branding["accent_color"]
    mail.add_alternative(
        page.render(subject=subject, paragraphs=paragraphs, title=title, accent=accent, language=language),
        subtype="html",
    )
    # After the parts: making them takes such headers away.
    mail["Content-Language"] = language
    return mail


def _line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


@functools.cache
def _texts(language: str) -> Environment:
    # Plain text: what HTML needs escaped is escaped in the HTML part.
    return _speaking(language, Environment(loader=_loader(), undefined=StrictUndefined, autoescape=False))  # noqa: S701


@functools.cache
def _pages(language: str) -> Environment:
    return _speaking(language, Environment(loader=_loader(), undefined=StrictUndefined, autoescape=True))


def _speaking(language: str, environment: Environment) -> Environment:
    """The environment, whose templates translate, and read moments as the language writes them."""
    catalog = catalog_of(language)
    environment.add_extension("jinja2.ext.i18n")
    environment.install_gettext_callables(catalog.gettext, catalog.ngettext, newstyle=True)  # type: ignore[attr-defined]
    environment.policies["ext.i18n.trimmed"] = True
    environment.filters["moment"] = lambda at: written_moment(datetime.fromisoformat(at), language)
    environment.filters["said"] = lambda text: said(text, catalog.gettext)
    return environment


def _loader() -> FileSystemLoader:
    return FileSystemLoader(ROOT / "templates" / "mail")
