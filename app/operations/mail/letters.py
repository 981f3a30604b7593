"""Letters: a text from a template, put into the outbox sealed, for it may hold a link (P1, TK-2)."""

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
"""The mail server: when it is down it costs one attempt a pause, and it never has two threads of a worker."""


@dataclass(frozen=True, slots=True)
class Letter:
    """What is sent to whom; ``until`` is when it would say something that is true no more.

    ``language`` is chosen when it leaves, by the address, where nobody has chosen one.
    """

    to: str
    template: str
    values: Mapping[str, str]
    until: str | None = None
    language: str | None = None


def is_possible() -> bool:
    """Whether there is a mail server; without one, links are shown to administrators."""
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
    """The letter leaves once the unit under way has committed; nothing happens where there is no mail server.

    ``template`` is the name of a file of templates/mail, in which moments are in ISO 8601; ``until`` is when a link in
    it ends. The address is used in its canonical form: that is the one which no two accounts share. ``language`` is
    that of the receiver, whose address tells it where it is left out.
    """
    address = canonical_email(to)
    if address is None or not is_possible():
        return
    letter = Letter(address, template, dict(values or {}), until.isoformat() if until else None, language)
    outbox.enqueue(
        organization.id, KIND, seal_payload(organization.id, KIND, asdict(letter)), receiver=RECEIVER
    )


def read_letter(organization_id: str, payload: Mapping[str, str]) -> Letter:
    """The letter of a message. Raises UnsealError when it was changed or is another organization's."""
    return Letter(**open_payload(organization_id, KIND, payload))
