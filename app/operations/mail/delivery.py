"""Delivery of letters by the outbox: at least once, and a second copy has the Message-ID of the first."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit

from app.config import current
from app.operations.directory.lookups import get_organization_by_id
from app.operations.mail import letters
from app.operations.mail.compose import compose
from app.operations.mail.languages import language_of_address
from app.operations.mail.letters import Letter
from app.operations.mail.smtp import MailLater, MailRefused, send_mail
from app.operations.store import audit, clock, outbox
from app.operations.store.outbox import DeliveryDeferred, DeliveryRejected, Message
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import public_id


def register() -> None:
    """The outbox delivers letters."""
    outbox.register_delivery(letters.KIND, deliver, receiver_type="mail_server")


def deliver(message: Message) -> None:
    """The mail server has the letter.

    Raises Refused when it will never take it or the letter came too late to be of use, DeliveryDeferred when it does not take
    this one now, OutgoingRequestFailed when it takes none. Audit: ``mail.refused``.
    """
    server = current().mail_server
    if server is None:
        raise OutgoingRequestFailed("No mail server is configured any more.")
    try:
        organization = get_organization_by_id(message.organization_id)
    except NotFound:
        raise DeliveryRejected("its organization is gone") from None
    letter = letters.read_letter(organization.id, message.payload)
    if letter.until is not None and datetime.fromisoformat(letter.until) <= clock.now():
        raise DeliveryRejected("its link has ended")
    mail = compose(
        organization,
        letter.template,
        letter.values,
        to=letter.to,
        sender=server.sender,
        language=letter.language or language_of_address(organization, letter.to),
        message_id=public_id("out", message.id),
        written_at=message.created_at,
    )
    our_name = urlsplit(organization.base_url).hostname or "localhost"
    try:
        send_mail(server, mail, letter.to, our_name=our_name)
    except MailLater as later:
        raise DeliveryDeferred(str(later)) from later
    except MailRefused as refusal:
        _note_refusal(organization.id, letter, refusal.code)
        raise DeliveryRejected(str(refusal)) from refusal


@transaction
def _note_refusal(organization_id: str, letter: Letter, code: int) -> None:
    after = {"email": letter.to, "template": letter.template, "code": code}
    audit.record(
        Actor.system(organization_id, "mail"), "mail.refused", target_type="mail_server", after=after
    )
