"""Emails to an organization's administrators after an administrator of root made a change there.

The change itself only adds a message to the outbox. The recipients are read on delivery, so that the change does not
wait for them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.operations.directory.lookups import get_organization_by_id
from app.operations.mail import letters
from app.operations.mail.root_announcements import KIND
from app.operations.mail.to_administrators import addresses_of_administrators
from app.operations.store import clock, outbox
from app.operations.store.outbox import DeliveryRejected, Message
from app.operations.store.transactions import transaction
from app.rules.errors import NotFound


def register() -> None:
    """Register the delivery with the outbox."""
    outbox.register_delivery(KIND, deliver, receiver_type="organization")


@transaction
def deliver(message: Message) -> None:
    """Send an email to each of the organization's own administrators. Raises Refused if the organization is deleted."""
    try:
        organization = get_organization_by_id(message.organization_id)
    except NotFound as gone:
        raise DeliveryRejected("the organization is deleted") from gone
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
    for email in addresses_of_administrators(organization.id, own_alone=True):
        letters.send(organization, email, "root_access", values, until=until)
