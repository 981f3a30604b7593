"""Queueing emails: a template with its values, encrypted in the outbox because it may contain a link (P1, TK-2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from app.config import current
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.mail.sealed_payloads import open_payload, seal_payload
from app.operations.store import outbox
from app.rules.mail.email_addresses import canonical_email

KIND = "mail"
RECEIVER = "mail"
"""All emails share one receiver, so that a mail server that is down costs one attempt per pause and one thread."""


@dataclass(frozen=True, slots=True)
class Email:
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
    outbox.enqueue(
        organization.id, KIND, seal_payload(organization.id, KIND, asdict(email)), receiver=RECEIVER
    )


def read_email(organization_id: str, payload: Mapping[str, str]) -> Email:
    """Return the email of an outbox message. Raises UnsealError if it was changed or is another organization's."""
    return Email(**open_payload(organization_id, KIND, payload))
