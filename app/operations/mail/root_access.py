"""Root in an organization: what its administrators are told when somebody of root acts there.

The change itself puts a message into the outbox and nothing else, where the organization wants to hear of it: who is
told is read when it is delivered, so that no change of root's waits for it.
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
    """The outbox tells administrators of root."""
    outbox.register_delivery(KIND, deliver, receiver_type="organization")


@transaction
def deliver(message: Message) -> None:
    """A letter to each administrator of the organization's own people is on its way.

    Raises Refused where the organization is gone.
    """
    try:
        organization = get_organization_by_id(message.organization_id)
    except NotFound as gone:
        raise DeliveryRejected("the organization is gone") from gone
    told: dict[str, Any] = dict(message.payload)
    values = {
        "by": str(told["by"]),
        "action": str(told["action"]),
        "at": message.created_at.isoformat(),
        "address": str(told["address"]),
        "link": f"{organization.base_url}/portal/{organization.slug}/audit",
    }
    until = clock.now() + timedelta(days=1)
    # Those of root need no letter about root.
    for email in addresses_of_administrators(organization.id, own_alone=True):
        letters.send(organization, email, "root_access", values, until=until)
