"""Emails: composition from templates, the recipient's language, and queueing in the outbox.

Payloads are encrypted, because an email may contain a link (P1, TK-2).
"""

from __future__ import annotations

import functools
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct
from msgspec.structs import asdict

from app.config import ROOT, current
from app.operations.directory.lookups import get_organization_by_id, get_unpurged_organization
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import find_user_by_email
from app.operations.store import keyring, outbox, rate_limits
from app.operations.store.outbox import DeliveryRejected, Message
from app.operations.store.transactions import transaction_part
from app.rules.errors import NotFound, TooManyRequests
from app.rules.languages.dates import format_long_time
from app.rules.languages.translation import ENGLISH, catalog_of, language_for, lazy_gettext, translate
from app.rules.mail.email_addresses import canonical_email, is_email

KIND = "mail"
KIND_ABOUT_DELETION = "mail_about_deletion"
"""The kind of emails that are also sent for a deleted organization. Workers of earlier releases would drop them."""
_RECEIVER, _RECEIVER_OF_ANYBODY = "mail", "mail of forms"
"""Emails share two receivers, so that a mail server that is down costs two attempts per pause and two threads.

The second is for emails that anybody can cause: while too many of them wait, the others do not.
"""
CAUSED_BY_ANYBODY = frozenset({"account_exists", "confirm_registration", "password_reset"})
"""Templates of the forms to sign up and for a forgotten password."""
_ABOUT_DELETION = frozenset({"organization_deleted"})

MAX_PER_MAILBOX_PER_HOUR = 5
"""Emails with one template that administrators of an organization can send to a mailbox, which may be a stranger's."""
MAX_TO_CHOSEN_ADDRESSES_PER_DAY = 2_000
"""Such emails of one organization, so that nobody can write to strangers without end."""

# Values that are URLs, events and what members write to their administrators. All others are names.
_WITH_LINKS = frozenset({"action", "apps", "forgot", "link", "message", "reason", "security", "url", "where"})
_WORD_JOINER = "\u2060"
# The dot of a domain, also as wide scripts write it, and the colon of a scheme. A vowel of ".भारत" is a mark.
_LINK_SIGN = re.compile(r"[.。．｡](?=[^\W\d](?:[^\W\d]|[^\x00-\x7f]))|:(?=//)")


class Email(Struct, frozen=True):
    """An email to send. It is dropped after ``until``, when its content is no longer true.

    Without ``language``, the language is chosen on delivery, by the email address.
    """

    to: str
    template: str
    values: Mapping[str, str]
    until: str | None = None
    language: str | None = None


def is_possible() -> bool:
    """Return whether a mail server is configured; without one, links are shown to administrators."""
    return current().mail_server is not None


def send(
    organization: OrganizationSnapshot,
    to: str,
    template: str,
    values: Mapping[str, str] | None = None,
    *,
    until: datetime | None = None,
    language: str | None = None,
) -> None:
    """Send an email once the current transaction has committed; do nothing without a mail server.

    ``template`` names a file in templates/mail; its values hold times in ISO 8601. ``until`` is when a link in the
    email expires. The recipient's canonical address is used, because no two accounts share it. ``language`` is the
    recipient's; by default it is chosen by the address.
    """
    address = canonical_email(to)
    if address is None or not is_possible():
        return
    email = Email(address, template, dict(values or {}), until.isoformat() if until else None, language)
    receiver = _RECEIVER_OF_ANYBODY if template in CAUSED_BY_ANYBODY else _RECEIVER
    kind = KIND_ABOUT_DELETION if template in _ABOUT_DELETION else KIND
    enqueue_sealed(organization.id, kind, asdict(email), receiver=receiver)


def link_to_page(url: str, authorization_request: str | None) -> str:
    """Return the URL with the token of the authorization request to which the user returns after its page, if any.

    ``emailed`` tells the page that the request may have ended, or be another browser's.
    """
    return f"{url}?request={authorization_request}&emailed=1" if authorization_request else url


def require_quota(organization: OrganizationSnapshot, to: str, template: str) -> None:
    """Count an email that an administrator sends to an address of their choice, in the current transaction.

    Without a mail server nothing is counted. Raises TooManyRequests beyond ``MAX_PER_MAILBOX_PER_HOUR`` and
    ``MAX_TO_CHOSEN_ADDRESSES_PER_DAY``.
    """
    if not is_possible():
        return
    mailbox = rate_limits.bucket_key("mailbox", template, canonical_email(to) or to)
    if not rate_limits.consume_quota(organization.id, mailbox, MAX_PER_MAILBOX_PER_HOUR, timedelta(hours=1)):
        raise TooManyRequests(
            "Too many of these emails were sent to this address. Try again in an hour.",
            retry_after=3600,
        )
    everyone = rate_limits.bucket_key("emails to chosen addresses")
    if not rate_limits.consume_quota(
        organization.id, everyone, MAX_TO_CHOSEN_ADDRESSES_PER_DAY, timedelta(days=1)
    ):
        raise TooManyRequests(
            lazy_gettext(
                "This organization sent %(max)s invitations and reset links in a day. Try again later.",
                max=MAX_TO_CHOSEN_ADDRESSES_PER_DAY,
            ),
            retry_after=3600,
        )


def read_email(message: Message) -> Email:
    """Return the email of an outbox message. Raises UnsealError if it was changed or is another organization's."""
    return Email(**open_payload(message.organization_id, message.kind, message.payload))


def language_of(
    organization: OrganizationSnapshot, profile: Mapping[str, Any], page_language: str | None = None
) -> str:
    """Return the language of an email to the user with this profile.

    ``page_language`` is that of the page on which the email was requested, for users who have not chosen one.
    """
    return language_for(
        own=profile.get("locale"),
        accepted=() if page_language is None else (page_language,),
        default=organization.settings["localization"]["default_locale"],
    )


def language_of_address(organization: OrganizationSnapshot, address: str) -> str:
    """Return the language of an email to an address, whether or not a user of the organization has it."""
    user = find_user_by_email(organization.id, address)
    return language_of(organization, user.profile if user is not None else {})


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
    removed, so that no name can start a header or a paragraph. Mail programs make no links of URLs and domains in
    names, because the email comes from the operator's domain and may go to a stranger.
    """
    branding = organization.settings["branding"]
    title = _line(organization.title)
    lines = {name: _line(value) for name, value in values.items()}
    subject = _paragraphs(template, language, lines, title)[0]
    unlinked = {
        name: value if name in _WITH_LINKS else _without_links(value) for name, value in lines.items()
    }
    heading, *paragraphs = _paragraphs(template, language, unlinked, _without_links(title))
    mail = EmailMessage()
    mail["Subject"] = subject
    mail["From"] = Address(display_name=title, addr_spec=sender)
    mail["To"] = to
    mail["Date"] = format_datetime(written_at)
    mail["Message-ID"] = f"<{message_id}@{urlsplit(organization.base_url).hostname}>"
    # RFC 3834 section 5: no automatic reply answers it.
    mail["Auto-Submitted"] = "auto-generated"
    reply_to = canonical_email(branding["support_email"] or "")
    # Letters beyond ASCII would be encoded as in words, which no mail program reads as an address (RFC 2047 section 5).
    if reply_to is not None and reply_to.isascii():
        mail["Reply-To"] = reply_to
    mail.set_content("\n\n".join(paragraphs) + "\n")
    page = _pages(language).get_template("message.html")
    accent = branding["accent_color"]
    mail.add_alternative(
        page.render(
            subject=subject,
            heading=heading,
            paragraphs=paragraphs,
            title=_without_links(title),
            accent=accent,
            language=language,
        ),
        subtype="html",
    )
    # Set after the parts, because adding parts removes such headers.
    mail["Content-Language"] = language
    return mail


def _line(text: str) -> str:
    return " ".join(
        "".join(char if char.isprintable() or char == _WORD_JOINER else " " for char in text).split()
    )


def _paragraphs(template: str, language: str, lines: Mapping[str, str], title: str) -> list[str]:
    text = _texts(language).get_template(f"{template}.txt").render(lines, title=title)
    return [_line(part) for part in text.split("\n\n") if part.strip()]


def _without_links(text: str) -> str:
    """Return the text with an invisible joiner in what mail programs would turn into the link of a page."""
    return " ".join(
        word if is_email(word) else _LINK_SIGN.sub(rf"\g<0>{_WORD_JOINER}", word) for word in text.split(" ")
    )


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
    environment.filters["moment"] = lambda at: format_long_time(datetime.fromisoformat(at), language)
    environment.filters["translate"] = lambda text: translate(text, catalog.gettext)
    return environment


def _loader() -> FileSystemLoader:
    return FileSystemLoader(ROOT / "templates" / "mail")


@transaction_part
def enqueue_sealed(organization_id: str, kind: str, values: Mapping[str, Any], *, receiver: str) -> None:
    """Queue a message whose payload is encrypted."""
    outbox.enqueue(organization_id, kind, seal_payload(organization_id, kind, values), receiver=receiver)


def get_organization_of_message(message: Message, *, or_deleted: bool = False) -> OrganizationSnapshot:
    """Return the organization of an outbox message.

    Raises DeliveryRejected if it was deleted, or with ``or_deleted`` once it was purged.
    """
    with suppress(NotFound):
        return get_organization_by_id(message.organization_id)
    if or_deleted:
        with suppress(NotFound):
            return get_unpurged_organization(message.organization_id)
    raise DeliveryRejected("the organization was deleted")


def seal_payload(organization_id: str, kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as an encrypted payload for a message of this kind."""
    sealed = keyring.seal(organization_id, json.dumps(values).encode(), f"outbox {kind}")
    return {"sealed": b64encode(sealed).decode()}


def open_payload(organization_id: str, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values. Raises UnsealError if they were changed or belong to another organization or kind."""
    values: dict[str, Any] = json.loads(
        keyring.unseal(organization_id, b64decode(payload["sealed"]), f"outbox {kind}")
    )
    return values
