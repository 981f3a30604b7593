"""Emails to the administrators of an organization."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select, true

from app.extensions import db
from app.models.user import ACTIVE, RoleAssignment, User
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.mail import letters
from app.rules.directory.permissions import ADMIN

MAX_RECIPIENTS = 20


def write_to_administrators(
    organization: OrganizationSnapshot, template: str, values: Mapping[str, str]
) -> None:
    """Send an email to each administrator, twenty at most; do nothing without a mail server."""
    if not letters.is_possible():
        return
    for address in addresses_of_administrators(organization.id):
        letters.send(organization, address, template, values)


def addresses_of_administrators(organization_id: str, *, own_alone: bool = False) -> list[str]:
    """Return the emails of the active administrators, in the order in which they got the role, twenty at most.

    Includes users of root with the role in this organization, unless ``own_alone``.
    """
    home = RoleAssignment.user_organization_id == organization_id if own_alone else true()
    rows = db.session.scalars(
        select(User.email)
        .join(
            RoleAssignment,
            (RoleAssignment.user_organization_id == User.organization_id)
            & (RoleAssignment.user_id == User.id),
        )
        .where(
            RoleAssignment.organization_id == organization_id,
            home,
            RoleAssignment.role == ADMIN,
            User.status == ACTIVE,
        )
        .order_by(RoleAssignment.id)
        .limit(MAX_RECIPIENTS)
    )
    return list(dict.fromkeys(rows))
