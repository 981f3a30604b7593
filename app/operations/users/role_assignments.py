"""Role assignments.

Actors can only assign roles whose permissions they have, and one administrator must remain.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import and_, func, or_, select

from app.extensions import db
from app.models import organization as organization_model
from app.models.organization import Organization
from app.models.user import ACTIVE, RoleAssignment, User
from app.operations.directory.lookups import touch_organization
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import get_user, hold_user
from app.operations.mail.notices import notify_administrators
from app.operations.sign_in.actor_access import require_role_permissions
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock
from app.operations.store.rows import count_where
from app.operations.store.transactions import current_unit_of_work, savepoint, transaction
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN, MEMBER, effective_roles
from app.rules.errors import Conflict
from app.rules.fields import ValidationErrors, suggestion, text_problem
from app.rules.identifiers import new_id, public_id
from app.rules.languages.translation import lazy_gettext

MAX_ROLES_PER_USER = 20
"""Within one organization."""


class LastAdministrator(Conflict):
    """The organization would have no active administrator left."""

    code = "last_administrator"


class AlreadyAssigned(Conflict):
    """The user already has the role."""

    code = "already_administrator"


def require_grantable(
    actor: Actor, organization: OrganizationSnapshot, role: str, found: ValidationErrors
) -> None:
    """Require that the role exists in the organization and the actor has all its permissions (TN-11).

    Giving any role but ``member`` requires a fresh sign-in of a user. Raises InvalidInput with everything in ``found``
    so far, Forbidden with the first missing permission, FreshSignInRequired.
    """
    problem = text_problem(role, max_length=64)
    roles = effective_roles(organization.settings)
    if not found.add_problem("role", problem) and role not in roles:
        known = ", ".join(roles)
        found.add(
            "role",
            "unknown_role",
            f"There is no such role.{suggestion(role, roles)} Available roles: {known}.",
        )
    found.raise_if_any()
    require_role_permissions(actor, organization, role, field="role")
    if role != MEMBER:
        require_fresh_user_sign_in(actor)


@transaction
def assign_role(
    actor: Actor, organization_id: str, user_organization_id: str, user_id: UUID, role: str
) -> UUID:
    """Assign a role to a user. Used for new administrators, invitations and registrations.

    Raises AlreadyAssigned, Conflict when the user has too many roles, and NotFound for a user who was deleted
    meanwhile. Audit: ``administrator.added``.
    """
    # No role may outlive the user.
    hold_user(user_organization_id, user_id)
    get_user(user_organization_id, user_id)
    role_count = count_where(
        RoleAssignment.organization_id == organization_id,
        RoleAssignment.user_organization_id == user_organization_id,
        RoleAssignment.user_id == user_id,
    )
    if role_count >= MAX_ROLES_PER_USER:
        raise Conflict(
            lazy_gettext("A user can have at most %(max)s roles.", max=MAX_ROLES_PER_USER),
            code="too_many_roles",
        )
    row_id: UUID = current_unit_of_work().stable_value(f"assignment {user_id} {role}", new_id)
    duplicate = AlreadyAssigned(lazy_gettext("This user already has the role %(role)s.", role=role))
    with savepoint(on_duplicate=duplicate):
        db.session.add(
            RoleAssignment(
                organization_id=organization_id,
                id=row_id,
                user_organization_id=user_organization_id,
                user_id=user_id,
                role=role,
                created_at=clock.now(),
                created_by=actor.author,
            )
        )
    audit.record(
        actor,
        "administrator.added",
        "administrator",
        public_id("adm", row_id),
        after={"user_id": public_id("usr", user_id), "role": role},
    )
    return row_id


def announce_role(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, email: str, role: str, **values: str
) -> None:
    """Tell the administrators by email that a user got a role, within the same transaction; members have none.

    ``values`` replace values of the email, such as ``by``.
    """
    if role != MEMBER:
        values = {"who": email, "role": effective_roles(organization.settings)[role].name, **values}
        subject = f"{public_id('usr', user_id)} {role}"
        # By role, so that many lesser ones don't hide an administrator.
        notify_administrators(actor, "administrator_added", subject, values, topic=role)


@transaction
def require_other_administrator(organization_id: str, user_organization_id: str, user_id: UUID) -> None:
    """Require another active administrator before the user is removed, demoted or disabled.

    The organization's row is written first, so that two administrators who remove each other at the same time
    are serialized, also on a cluster, and the second one fails. Raises LastAdministrator.
    """
    touch_organization(organization_id)
    others = db.session.scalar(
        select(func.count())
        .select_from(RoleAssignment)
        .join(
            User,
            and_(
                User.organization_id == RoleAssignment.user_organization_id, User.id == RoleAssignment.user_id
            ),
        )
        .where(
            RoleAssignment.organization_id == organization_id,
            RoleAssignment.role == ADMIN,
            User.status == ACTIVE,
            or_(
                RoleAssignment.user_organization_id != user_organization_id, RoleAssignment.user_id != user_id
            ),
        )
    )
    if not others:
        slug = db.session.scalar(select(Organization.slug).where(Organization.id == organization_id))
        raise LastAdministrator(
            lazy_gettext(
                "This is the last administrator of %(organization)s. Add another administrator first.",
                organization=slug,
            )
        )


@transaction
def require_other_administrators_everywhere(user_organization_id: str, user_id: UUID) -> None:
    """Require another administrator in every organization that the user administers.

    Call it before the user is disabled or deleted. Deleted organizations and those that another cell serves need none:
    nobody could add one there. Organizations are locked in the order of their keys, so that concurrent calls cannot
    deadlock. Raises LastAdministrator naming the organization.
    """
    administered = db.session.scalars(
        select(RoleAssignment.organization_id)
        .join(Organization, Organization.id == RoleAssignment.organization_id)
        .where(
            RoleAssignment.user_organization_id == user_organization_id,
            RoleAssignment.user_id == user_id,
            RoleAssignment.role == ADMIN,
            Organization.status.in_((organization_model.ACTIVE, organization_model.SUSPENDED)),
            Organization.moved_to.is_(None),
        )
        .order_by(RoleAssignment.organization_id)
    ).all()
    for organization_id in administered:
        require_other_administrator(organization_id, user_organization_id, user_id)
