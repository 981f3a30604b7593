"""Holders of a role: who has it, and who is invited to it."""

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
    """Somebody holds the role that would be removed, or is invited to it."""

    code = "role_in_use"


@dataclass(frozen=True, slots=True)
class RoleHolders:
    """How many hold the role, and the addresses of those who have had it for longest."""

    count: int
    first: tuple[str, ...]


@read
def find_role_holders(organization_id: str, role: str) -> RoleHolders:
    """Who holds the role in the organization, root's people included."""
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
    """Nobody holds any of the roles or is invited to one. Raises RoleInUse saying how many.

    Asked of a role that goes, and of one that comes: somebody may have been given it while one of that name went.
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
        people = "Somebody has" if count == 1 else f"{count} people have"
        raise RoleInUse(
            f"{people} the role {role}. Give them another one first.", field=f"{ROLES_PATH}.{role}"
        )
    invited = db.session.scalar(
        select(Invitation.role)
        .where(open_invitation_condition(get_organization_by_id(organization_id)), Invitation.role.in_(roles))
        .limit(1)
    )
    if invited is not None:
        raise RoleInUse(
            f"Somebody is invited to the role {invited}. Withdraw the invitation first.",
            field=f"{ROLES_PATH}.{invited}",
        )
