"""Rights: what a user may do in an organization now. Read at each call, so that removing a role works at once."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import bindparam, select

from app.models.user import RoleAssignment
from app.operations.directory.lookups import OrganizationView, organization_by_id
from app.operations.statements import Statement
from app.operations.store.transactions import read
from app.rules.directory.permissions import ADMIN, permissions_of_roles

_ROLES = Statement(
    select(RoleAssignment.role)
    .where(
        RoleAssignment.organization_id == bindparam("organization_id"),
        RoleAssignment.user_organization_id == bindparam("home"),
        RoleAssignment.user_id == bindparam("user_id"),
    )
    .order_by(RoleAssignment.role)
)


_EVERYWHERE = Statement(
    select(RoleAssignment.organization_id, RoleAssignment.role)
    .where(
        RoleAssignment.user_organization_id == bindparam("home"),
        RoleAssignment.user_id == bindparam("user_id"),
    )
    .order_by(RoleAssignment.organization_id, RoleAssignment.role)
)


def roles_of_user(organization_id: str, home_organization_id: str, user_id: UUID) -> tuple[str, ...]:
    """The names of the roles that a user of one organization holds in an organization, in order."""
    rows = _ROLES.rows(organization_id=organization_id, home=home_organization_id, user_id=user_id)
    return tuple(role for (role,) in rows)


def roles_everywhere(home_organization_id: str, user_id: UUID) -> tuple[tuple[str, str], ...]:
    """(the organization's key, the role's name) of all that a user holds: root's people hold roles elsewhere."""
    rows = _EVERYWHERE.rows(home=home_organization_id, user_id=user_id)
    return tuple((organization_id, role) for organization_id, role in rows)


@read
def rights_of_user(
    organization: OrganizationView, home_organization_id: str, user_id: UUID
) -> frozenset[str]:
    """The permissions that a user holds in an organization.

    Somebody of another organization holds what is assigned there by name; an administrator of root is an
    administrator everywhere. Anybody else from elsewhere holds nothing.
    """
    roles = roles_of_user(organization.id, home_organization_id, user_id)
    if home_organization_id == organization.id:
        return permissions_of_roles(roles, organization.settings, is_root=organization.is_root)
    if not organization_by_id(home_organization_id, fresh=False).is_root:
        return frozenset()
    if ADMIN in roles_of_user(home_organization_id, home_organization_id, user_id):
        roles = (*roles, ADMIN)
    return permissions_of_roles(roles, organization.settings) if roles else frozenset()
