"""Composing emails: one template makes the plain text and the HTML part."""

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
from app.rules.languages.sentences import translate


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
    """Compose an email from a template, in the organization's name.

    The template's first paragraph is the subject; a paragraph that is a URL becomes a link in the HTML part.
    ``message_id`` is the same for each attempt, so that mailboxes recognize a second copy. Line breaks in values are
    removed, so that no name can start a header or a paragraph.
    """
    branding = organization.settings["branding"]
    title = _line(branding["display_name"] or organization.name)
    lines = {name: _line(value) for name, value in values.items()}
    text = _texts(language).get_template(f"{template}.txt").render(lines, title=title)
    subject, *paragraphs = [_line(part) for part in text.split("\n\n") if part.strip()]
    mail = EmailMessage()
    mail["Subject"] = subject
    mail["From"] = Address(display_name=title, addr_spec=sender)
    mail["To"] = to
    mail["Date"] = format_datetime(written_at)
    mail["Message-ID"] = f"<{message_id}@{urlsplit(organization.base_url).hostname}>"
    # RFC 3834 section 5: no automatic reply answers it.
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
    # Set after the parts, because adding parts removes such headers.
    mail["Content-Language"] = language
    return mail


def _line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


@functools.cache
def _texts(language: str) -> Environment:
    # Plain text needs no escaping; the HTML part escapes it.
    return _translating(language, Environment(loader=_loader(), undefined=StrictUndefined, autoescape=False))  # noqa: S701


@functools.cache
def _pages(language: str) -> Environment:
    return _translating(language, Environment(loader=_loader(), undefined=StrictUndefined, autoescape=True))


def _translating(language: str, environment: Environment) -> Environment:
    """Add translation and the ``moment`` filter for the language to the environment."""
    catalog = catalog_of(language)
    environment.add_extension("jinja2.ext.i18n")
    environment.install_gettext_callables(catalog.gettext, catalog.ngettext, newstyle=True)  # type: ignore[attr-defined]
    environment.policies["ext.i18n.trimmed"] = True
    environment.filters["moment"] = lambda at: written_moment(datetime.fromisoformat(at), language)
    environment.filters["translate"] = lambda text: translate(text, catalog.gettext)
    return environment


def _loader() -> FileSystemLoader:
    return FileSystemLoader(ROOT / "templates" / "mail")
