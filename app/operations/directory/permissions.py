"""Permissions and roles of users, read at each request so that removing a role takes effect at once."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import bindparam, select

from app.fast_path.compiled_query import CompiledQuery
from app.models.user import RoleAssignment
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.store.transactions import read
from app.rules.directory.permissions import ADMIN, permissions_of_roles

_SELECT_ROLES = CompiledQuery(
    select(RoleAssignment.role)
    .where(
        RoleAssignment.organization_id == bindparam("organization_id"),
        RoleAssignment.user_organization_id == bindparam("home"),
        RoleAssignment.user_id == bindparam("user_id"),
    )
    .order_by(RoleAssignment.role)
)


_SELECT_ROLES_EVERYWHERE = CompiledQuery(
    select(RoleAssignment.organization_id, RoleAssignment.role)
    .where(
        RoleAssignment.user_organization_id == bindparam("home"),
        RoleAssignment.user_id == bindparam("user_id"),
    )
    .order_by(RoleAssignment.organization_id, RoleAssignment.role)
)


def get_user_roles(organization_id: str, home_organization_id: str, user_id: UUID) -> tuple[str, ...]:
    """Return the names of the roles that a user of the home organization has in an organization, sorted."""
    rows = _SELECT_ROLES.rows(organization_id=organization_id, home=home_organization_id, user_id=user_id)
    return tuple(role for (role,) in rows)


def get_user_roles_everywhere(home_organization_id: str, user_id: UUID) -> tuple[tuple[str, str], ...]:
    """Return (organization id, role name) for every role of a user.

    Users of the root organization can have roles in other organizations.
    """
    rows = _SELECT_ROLES_EVERYWHERE.rows(home=home_organization_id, user_id=user_id)
    return tuple((organization_id, role) for organization_id, role in rows)


@read
def get_user_permissions(
    organization: OrganizationSnapshot, home_organization_id: str, user_id: UUID
) -> frozenset[str]:
    """Return the permissions that a user has in an organization.

    A user of the root organization has the roles assigned to them there by name, and root administrators are
    administrators of every organization. Users of other organizations have no permissions.
    """
    roles = get_user_roles(organization.id, home_organization_id, user_id)
    if home_organization_id == organization.id:
        return permissions_of_roles(roles, organization.settings, is_root=organization.is_root)
    if not get_organization_by_id(home_organization_id, fresh=False).is_root:
        return frozenset()
    if ADMIN in get_user_roles(home_organization_id, home_organization_id, user_id):
        roles = (*roles, ADMIN)
    return permissions_of_roles(roles, organization.settings) if roles else frozenset()
