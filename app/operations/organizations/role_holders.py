"""Users who have a role or are invited to it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import and_, func, select

from app.extensions import db
from app.models.user import Invitation, RoleAssignment, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store.transactions import read
from app.operations.users.invitations import open_invitation_condition
from app.rules.errors import Conflict
from app.rules.organizations.settings import ROLES_PATH

MAX_HOLDERS_SHOWN = 20


class RoleInUse(Conflict):
    """A user has the role or is invited to it, so it cannot be removed."""

    code = "role_in_use"


@dataclass(frozen=True, slots=True)
class RoleHolders:
    """How many users have the role, and the email addresses of those who have had it longest."""

    count: int
    first: tuple[str, ...]


@read
def find_role_holders(organization_id: str, role: str) -> RoleHolders:
    """Find the users with the role in the organization, including users of root."""
    mine = (RoleAssignment.organization_id == organization_id, RoleAssignment.role == role)
    count = db.session.scalar(select(func.count()).select_from(RoleAssignment).where(*mine))
    first = db.session.scalars(
        select(User.email)
        .join(
            RoleAssignment,
            and_(
                RoleAssignment.user_organization_id == User.organization_id, RoleAssignment.user_id == User.id
            ),
        )
        .where(*mine)
        .order_by(RoleAssignment.id)
        .limit(MAX_HOLDERS_SHOWN)
    )
    return RoleHolders(count or 0, tuple(first))


@read
def require_roles_unused(organization_id: str, roles: Collection[str]) -> None:
    """Raise RoleInUse, with the number of users, if a user has one of the roles or is invited to one.

    Called for roles that are removed and for roles that are added, because a user may have been given a role of the
    same name while it was being removed.
    """
    if not roles:
        return
    held = db.session.execute(
        select(RoleAssignment.role, func.count())
        .where(RoleAssignment.organization_id == organization_id, RoleAssignment.role.in_(roles))
        .group_by(RoleAssignment.role)
        .limit(1)
    ).first()
    if held is not None:
        role, count = held
        holders = "1 user has" if count == 1 else f"{count} users have"
        raise RoleInUse(
            f"{holders} the role {role}. Assign another role first.", field=f"{ROLES_PATH}.{role}"
        )
    invited = db.session.scalar(
        select(Invitation.role)
        .where(open_invitation_condition(get_organization_by_id(organization_id)), Invitation.role.in_(roles))
        .limit(1)
    )
    if invited is not None:
        raise RoleInUse(
            f"There is an open invitation to the role {invited}. Revoke the invitation first.",
            field=f"{ROLES_PATH}.{invited}",
        )
