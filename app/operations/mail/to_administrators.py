"""Letters to whoever administers an organization."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select, true

from app.extensions import db
from app.models.user import ACTIVE, RoleAssignment, User
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.mail import letters
from app.rules.directory.permissions import ADMIN

MOST = 20


def write_to_administrators(
    organization: OrganizationSnapshot, template: str, values: Mapping[str, str]
) -> None:
    """Each administrator gets the letter, twenty at most; part of the unit under way.

    Nothing happens where there is no mail server.
    """
    if not letters.is_possible():
        return
    for address in addresses_of_administrators(organization.id):
        letters.send(organization, address, template, values)


def addresses_of_administrators(organization_id: str, *, own_alone: bool = False) -> list[str]:
    """The e-mail of each active administrator, those of longest standing first, twenty at most.

    With those of root who hold the role there, unless ``own_alone``.
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
        .limit(MOST)
    )
    return list(dict.fromkeys(rows))
