"""Root in an organization: what its administrators are told when somebody of root acts there.

The change itself puts a message into the outbox and nothing else, where the organization wants to hear of it: who is
told is read when it is delivered, so that no change of root's waits for it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models.user import ACTIVE, RoleAssignment, User
from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.mail import letters
from app.operations.mail.root_announcements import KIND
from app.operations.transaction import transaction
from app.operations.upkeep import outbox
from app.operations.upkeep.outbox import Message, Refused
from app.rules.errors import NotFound
from app.rules.people.permissions import ADMIN

MOST_TOLD = 20
"""Administrators of one organization who are written to, those of longest standing."""


def register() -> None:
    """The outbox tells administrators of root."""
    outbox.register_delivery(KIND, deliver, receiver_type="organization")


@transaction
def deliver(message: Message) -> None:
    """A letter to each administrator of the organization's own people is on its way.

    Raises Refused where the organization is gone.
    """
    try:
        organization = organization_by_id(message.organization_id)
    except NotFound as gone:
        raise Refused("the organization is gone") from gone
    told: dict[str, Any] = dict(message.payload)
    values = {
        "by": str(told["by"]),
        "action": str(told["action"]),
        "at": message.created_at.isoformat(),
        "address": str(told["address"]),
        "link": f"{organization.base_url}/portal/{organization.slug}/audit",
    }
    until = clock.now() + timedelta(days=1)
    for email in _own_administrators(organization.id):
        letters.send(organization, email, "root_access", values, until=until)


def _own_administrators(organization_id: str) -> list[str]:
    return list(
        db.session.scalars(
            select(User.email)
            .join(
                RoleAssignment,
                (RoleAssignment.user_organization_id == User.organization_id)
                & (RoleAssignment.user_id == User.id),
            )
            .where(
                RoleAssignment.organization_id == organization_id,
                # Those of root need no letter about root.
                RoleAssignment.user_organization_id == organization_id,
                RoleAssignment.role == ADMIN,
                User.status == ACTIVE,
            )
            .order_by(RoleAssignment.id)
            .limit(MOST_TOLD)
        )
    )
