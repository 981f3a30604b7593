"""Administrators of an organization: role assignments of its own users or of users of the root organization.

A role that a user has, or is invited to, cannot be removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import and_, delete, func, select

from app.extensions import db
from app.models.base import has_key
from app.models.organization import Organization
from app.models.user import Invitation, RoleAssignment, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import (
    UserSnapshot,
    find_user_by_email,
    get_user,
    mark_user_verified,
    unverified_email_error,
)
from app.operations.sign_in.actor_access import enter_organization, require_role_permissions
from app.operations.store import audit
from app.operations.store.rows import Page, PageRequest, count_rows, get_row, make_record, read_page
from app.operations.store.text_search import take_search_slot
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.users.invitations import NewInvitation, create_invitation, open_invitation_condition
from app.operations.users.role_assignments import (
    announce_role,
    assign_role,
    require_grantable,
    require_other_administrator,
)
from app.operations.users.users import where_user_matches
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN, MEMBER, effective_roles
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.fields import ValidationErrors
from app.rules.filters import Filters, read_filters, sort_filter, text_filter
from app.rules.identifiers import HasPublicId, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations.organizations import MAX_NAME_LENGTH, check_email_and_name
from app.rules.organizations.settings import ROLES_PATH
from app.rules.shapes import SchemaOnly, Shape, Text, check_shape, described
from app.rules.versions import ExpectedVersion, compute_version, require_version

FILTERS: Filters = {"role": text_filter("Users with this role."), "sort": sort_filter("created_at")}
MAX_HOLDERS_SHOWN = 20
# The user of a role assignment.
_IS_HOLDER = and_(
    User.organization_id == RoleAssignment.user_organization_id, User.id == RoleAssignment.user_id
)
_SYNONYMS = {"mail": "email", "user": "user_id", "id": "user_id", "roles": "role"}


class NewAdministrator(Shape):
    """A new administrator. Send either `user_id` or `email`."""

    user_id: Annotated[str, Text(64), described("An existing user.")] | None = None
    email: (
        Annotated[
            str,
            SchemaOnly(minLength=3, maxLength=254),
            described("The verified email address of an existing user, or an address to invite."),
        ]
        | None
    ) = None
    name: Annotated[str, Text(MAX_NAME_LENGTH), described("The name of the person to invite.")] | None = None
    role: Annotated[str, Text(64), described("The default is `admin`.")] | None = None


class AdministratorRecord(HasPublicId, Struct, frozen=True):
    """A role assignment of a user; ``user_organization`` is the slug of the user's organization."""

    id_prefix = "adm"
    id: UUID
    organization_slug: str
    user_id: UUID
    user_organization: str
    email: str
    name: str
    role: str
    status: str
    created_at: datetime
    created_by: str | None

    @property
    def version(self) -> int:
        """A number that changes with any of the fields."""
        return compute_version(self.id, self.email, self.name, self.role, self.status)


class AddedAdministrator(Struct, frozen=True):
    """The assignment of an existing user, or the invitation of an unknown email address."""

    admin: AdministratorRecord | None
    invitation: NewInvitation | None

    @property
    def link(self) -> str | None:
        """The invitation link, shown only once. None if it was sent by email."""
        return self.invitation.link if self.invitation else None


@read
def list_administrators(
    actor: Actor,
    slug: str,
    page_request: PageRequest = PageRequest(),
    *,
    query: str | None = None,
    filters: Mapping[str, str] = {},
) -> Page[AdministratorRecord]:
    """List the role assignments of the organization, in the order in which they were made.

    Members are users, not administrators: they are listed only if their role is asked for. ``query`` is a part of an
    email or name, or a whole ``usr_…``, ``filters`` are of FILTERS.
    """
    inside, organization = enter_organization(actor, slug, "admins:read")
    values = read_filters(inside, FILTERS, filters)
    role, (_, descending) = values.get("role"), values["sort"]
    statement = _assignments(organization)
    if role is None:
        statement = statement.where(RoleAssignment.role != MEMBER)
    else:
        if role not in effective_roles(organization.settings):
            raise InvalidInput("There is no such role.", field="role", code="unknown_role")
        statement = statement.where(RoleAssignment.role == role)
    if query:
        statement = where_user_matches(statement, query)
    with take_search_slot(inside.organization_id, query):
        page = read_page(statement, (RoleAssignment.id,), page_request, descending=descending)
    return page.map(lambda row: _record(organization, row))


@read
def get_administrator(actor: Actor, slug: str, admin_id: str) -> AdministratorRecord:
    """Return one role assignment. Raises NotFound."""
    _, organization = enter_organization(actor, slug, "admins:read")
    return _find(organization, admin_id)


@transaction
def add_administrator(actor: Actor, slug: str, /, **fields: Any) -> AddedAdministrator:
    """Assign a role to a user, or invite an unknown email address to it.

    ``fields`` are those of ``NewAdministrator``; the default role is ``admin``. A user who gets a role counts as
    confirmed by the administrator. Raises Forbidden, also if the actor lacks a permission of the role, InvalidInput
    naming every wrong field, AlreadyAssigned, Conflict for an email address that its user has not verified, and
    FreshSignInRequired if the user signed in too long ago. Audit: ``administrator.added`` or ``invitation.created``.
    """
    inside, organization = enter_organization(actor, slug, "admins:write")
    errors = ValidationErrors()
    check_shape(errors, NewAdministrator, fields, synonyms=_SYNONYMS)
    user_id, email, name, role = (
        None if errors.has_error(field) else fields.get(field) for field in NewAdministrator.model_fields
    )
    if not errors.errors:
        if user_id is None and email is None:
            errors.add("user_id", "required", "Send either user_id or email.")
        elif user_id is not None and email is not None:
            errors.add("email", "not_allowed", "Send either user_id or email, not both.")
        if user_id is not None and name is not None:
            errors.add("name", "not_allowed", "An existing user already has a name.")
    if email is not None:
        check_email_and_name(email, name, errors)
    role = ADMIN if role is None else role
    require_grantable(inside, organization, role, errors)
    if user_id is not None:
        user = _user(inside, organization, user_id)
    else:
        known = find_user_by_email(organization.id, str(email))
        if known is None:
            invitation = create_invitation(inside, slug, email=str(email), name=name or "", role=role)
            return AddedAdministrator(None, invitation)
        if not known.email_verified:
            # A user who signed up with someone else's address must not get the role meant for its owner.
            raise unverified_email_error(known.id)
        user = known
    row_id = assign_role(inside, organization.id, user.organization_id, user.id, role)
    mark_user_verified(user.organization_id, user.id)
    announce_role(inside, organization, user.id, user.email, role)
    return AddedAdministrator(_find(organization, public_id("adm", row_id)), None)


@transaction
def remove_administrator(
    actor: Actor, slug: str, admin_id: str, *, expected_version: ExpectedVersion = None
) -> AdministratorRecord:
    """Remove the role from the user with immediate effect. Sessions and other roles are kept.

    Raises NotFound, Forbidden if the actor lacks a permission of the role, LastAdministrator, PreconditionFailed.
    Audit: ``administrator.removed``.
    """
    inside, organization = enter_organization(actor, slug, "admins:write")
    record = _find(organization, admin_id)
    require_role_permissions(inside, organization, record.role)
    require_version(record.version, expected_version)
    assignment = db.session.get(RoleAssignment, (organization.id, record.id))
    if assignment is None:
        raise NotFound("There is no such administrator.")
    if record.role == ADMIN:
        require_other_administrator(organization.id, assignment.user_organization_id, record.user_id)
    removed = count_changed(delete(RoleAssignment).where(has_key(RoleAssignment, organization.id, record.id)))
    if removed != 1:
        raise NotFound("There is no such administrator.")
    audit.record(
        inside,
        "administrator.removed",
        "administrator",
        record.public_id,
        before={"user_id": public_id("usr", record.user_id), "role": record.role},
    )
    return record


def _user(actor: Actor, organization: OrganizationSnapshot, user_id: str) -> UserSnapshot:
    """Return the user of the organization, or of root if root asks. Other users do not exist for the caller."""
    row_id = parse_public_id("usr", user_id)
    homes = [organization.id]
    if actor.is_root and actor.home_organization_id != organization.id:
        homes.append(actor.home_organization_id)
    for home in homes:
        if row_id is None:
            break
        try:
            return get_user(home, row_id)
        except NotFound:
            continue
    raise InvalidInput("There is no such user in this organization.", field="user_id", code="unknown_user")


def _assignments(organization: OrganizationSnapshot) -> Any:
    return (
        select(
            RoleAssignment.id,
            RoleAssignment.user_id,
            RoleAssignment.role,
            RoleAssignment.created_at,
            RoleAssignment.created_by,
            User.email,
            User.name,
            User.status,
            Organization.slug,
        )
        .join(User, _IS_HOLDER)
        .join(Organization, Organization.id == RoleAssignment.user_organization_id)
        .where(RoleAssignment.organization_id == organization.id)
    )


def _find(organization: OrganizationSnapshot, admin_id: str) -> AdministratorRecord:
    statement = _assignments(organization).where(RoleAssignment.id == parse_public_id("adm", admin_id))
    return _record(organization, get_row(statement, "There is no such administrator."))


def _record(organization: OrganizationSnapshot, row: Any) -> AdministratorRecord:
    return make_record(
        AdministratorRecord, row, organization_slug=organization.slug, user_organization=row.slug
    )


class RoleHolders(Struct, frozen=True):
    """The number of users with the role, and the emails of those who have had it longest."""

    count: int
    first: tuple[str, ...]


@read
def list_role_holders(actor: Actor, role: str) -> RoleHolders:
    """Return the users with a role in the actor's organization, including users of root. Raises Forbidden."""
    actor.require("admins:read")
    mine = (RoleAssignment.organization_id == actor.organization_id, RoleAssignment.role == role)
    first = db.session.scalars(
        select(User.email)
        .join(RoleAssignment, _IS_HOLDER)
        .where(*mine)
        .order_by(RoleAssignment.id)
        .limit(MAX_HOLDERS_SHOWN)
    )
    return RoleHolders(count_rows(select(RoleAssignment.id).where(*mine)), tuple(first))


@read
def count_role_holders(actor: Actor) -> dict[str, int]:
    """Return the number of users with each role that anyone has, including users of root. Raises Forbidden."""
    actor.require("admins:read")
    rows = db.session.execute(
        select(RoleAssignment.role, func.count().label("users"))
        .where(RoleAssignment.organization_id == actor.organization_id)
        .group_by(RoleAssignment.role)
    )
    return {row.role: row.users for row in rows}


class RoleInUse(Conflict):
    """A user has the role or is invited to it, so it cannot be removed."""

    code = "role_in_use"


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
        raise RoleInUse(
            lazy_gettext("1 user has the role %(role)s. Assign another role first.", role=role)
            if count == 1
            else lazy_gettext(
                "%(count)s users have the role %(role)s. Assign another role first.", count=count, role=role
            ),
            field=f"{ROLES_PATH}.{role}",
        )
    invited = db.session.scalar(
        select(Invitation.role)
        .where(open_invitation_condition(get_organization_by_id(organization_id)), Invitation.role.in_(roles))
        .limit(1)
    )
    if invited is not None:
        raise RoleInUse(
            lazy_gettext(
                "There is an open invitation to the role %(invited)s. Revoke the invitation first.",
                invited=invited,
            ),
            field=f"{ROLES_PATH}.{invited}",
        )
