"""Delivery of emails by the outbox, at least once; a second copy has the Message-ID of the first.

A notice that root acted in an organization becomes one email per administrator on delivery, so that the change itself
does not wait for reading them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from jinja2 import TemplateNotFound

from app.config import current
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.mail import emails
from app.operations.mail.emails import Email, compose, language_of_address
from app.operations.mail.notices import ROOT_NOTICE_KIND, administrator_emails
from app.operations.mail.smtp import MailLater, MailRefused, send_mail
from app.operations.store import audit, clock, outbox, rate_limits
from app.operations.store.outbox import DeliveryDeferred, DeliveryPaused, DeliveryRejected, Message
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.identifiers import public_id

_SENT = rate_limits.bucket_key("emails")
_HOUR = timedelta(hours=1)
# Then the hour, which slides, has room for a twelfth of its emails. A tenth is kept for those that wait already, so
# that new ones, which are tried at once, do not overtake them.
_PAUSE, _FOR_WAITING = timedelta(minutes=5), 0.1


def register() -> None:
    """Register the deliveries with the outbox."""
    for kind in (emails.KIND, emails.KIND_ABOUT_DELETION):
        outbox.register_delivery(kind, deliver, receiver_type="mail_server")
    outbox.register_delivery(ROOT_NOTICE_KIND, deliver_root_notice, receiver_type="organization")


def deliver(message: Message) -> None:
    """Send an email through the mail server.

    Raises DeliveryRejected if the server rejects it permanently, if it has expired, and if its organization was deleted
    and the email does not say so, DeliveryDeferred if the server does not accept this email now or only the next
    release has its template, OutgoingRequestFailed if the server accepts none, and DeliveryPaused while the
    organization has sent ``limits.emails_per_hour``, or half of it for an email that anybody can cause. Audit:
    ``mail.refused``, and ``mail.delayed`` once an hour.
    """
    server = current().mail_server
    if server is None:
        raise OutgoingRequestFailed("No mail server is configured.")
    is_about_deletion = message.kind == emails.KIND_ABOUT_DELETION
    organization = emails.get_organization_of_message(message, or_deleted=is_about_deletion)
    email = emails.read_email(message)
    if email.until is not None and datetime.fromisoformat(email.until) <= clock.now():
        raise DeliveryRejected("its link has expired")
    # So that nobody can delay a notice about security by emails that anybody can cause.
    share = 0.5 if email.template in emails.CAUSED_BY_ANYBODY else 1
    if not message.has_waited:
        share -= _FOR_WAITING
    if not _has_quota(organization, share):
        raise DeliveryPaused(f"{organization.slug} has sent as many emails as it may in an hour", _PAUSE)
    try:
        mail = compose(
            organization,
            email.template,
            email.values,
            to=email.to,
            sender=server.sender,
            language=email.language or language_of_address(organization, email.to),
            message_id=public_id("out", message.id),
            written_at=message.created_at,
        )
    except TemplateNotFound as missing:
        # During an upgrade, newer workers may write emails that this one does not know.
        raise DeliveryDeferred(f"there is no template {missing.name}") from missing
    local_name = urlsplit(organization.base_url).hostname or "localhost"
    try:
        send_mail(server, mail, email.to, local_name=local_name)
    except MailLater as later:
        raise DeliveryDeferred(str(later)) from later
    except MailRefused as refusal:
        _note_refusal(organization.id, email, refusal.code)
        raise DeliveryRejected(str(refusal)) from refusal
    _count(organization)


@transaction
def _has_quota(organization: OrganizationSnapshot, share: float) -> bool:
    limit = _limit(organization)
    if rate_limits.count_uses(organization.id, _SENT, _HOUR) < limit * share:
        return True
    if rate_limits.consume_quota(organization.id, rate_limits.bucket_key("emails delayed"), 1, _HOUR):
        after = {"emails_per_hour": limit}
        audit.record(Actor.system(organization.id, "mail"), "mail.delayed", "mail_server", after=after)
    return False


@transaction
def _count(organization: OrganizationSnapshot) -> None:
    # Counted once it was sent: attempts while the mail server is away must not use up the hour.
    rate_limits.consume_quota(organization.id, _SENT, _limit(organization), _HOUR)


def _limit(organization: OrganizationSnapshot) -> int:
    limit: int = organization.settings["limits"]["emails_per_hour"]
    return limit


@transaction
def _note_refusal(organization_id: str, email: Email, code: int) -> None:
    after = {"email": email.to, "template": email.template, "code": code}
    audit.record(Actor.system(organization_id, "mail"), "mail.refused", "mail_server", after=after)


@transaction
def deliver_root_notice(message: Message) -> None:
    """Send an email to each of the organization's own administrators.

    Raises DeliveryRejected for a deleted organization.
    """
    organization = emails.get_organization_of_message(message)
    payload: dict[str, Any] = dict(message.payload)
    values = {
        "by": str(payload["by"]),
        "action": str(payload["action"]),
        "at": message.created_at.isoformat(),
        "address": str(payload["address"]),
        "link": f"{organization.base_url}/portal/{organization.slug}/audit",
    }
    until = clock.now() + timedelta(days=1)
    # Administrators of root do not need an email about their own changes.
    for email in administrator_emails(organization.id, only_home_users=True):
        emails.send(organization, email, "root_access", values, until=until)
