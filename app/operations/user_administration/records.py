"""A user as an administrator sees them: with the roles that they hold in their organization."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.user import RoleAssignment
from app.operations.directory import organization_by_id
from app.operations.people.rights import roles_of_user
from app.operations.people.users import UserView, find_user_by_email, get_user
from app.operations.second_factors.enrolled import methods_of
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import parse_public_id


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user with the names of their roles and the methods of their second factors.

    ``organization_slug`` is where they belong.
    """

    user: UserView
    organization_slug: str
    roles: tuple[str, ...]
    methods: tuple[str, ...] = ()


@read
def get_user_record(actor: Actor, user_id: str) -> UserRecord:
    """The user with the id ``usr_…``. Raises Forbidden, NotFound."""
    actor.require("users:read")
    return record_of(actor, user_id_of(user_id))


@read
def find_user_record(actor: Actor, user: str) -> UserRecord:
    """The user with the id ``usr_…`` or the address, in any spelling. Raises Forbidden, NotFound."""
    actor.require("users:read")
    found = find_user_by_email(actor.organization_id, user) if "@" in user else None
    return record_of(actor, found.id if found else user_id_of(user))


@read
def record_of(actor: Actor, user_id: UUID) -> UserRecord:
    """The user of the actor's organization, after the permission was asked. Raises NotFound."""
    here = actor.organization_id
    view = get_user(here, user_id)
    roles, methods = roles_of_user(here, here, user_id), methods_of(here, user_id)
    return UserRecord(view, organization_by_id(here).slug, roles, methods)


def user_id_of(text: str) -> UUID:
    """The id behind ``usr_…``. Raises NotFound for anything else."""
    found = parse_public_id("usr", text)
    if found is None:
        raise NotFound("There is no such user.")
    return found


@read
def roles_of_users(organization_id: str, user_ids: Collection[UUID]) -> Mapping[UUID, tuple[str, ...]]:
    """The roles of each of at most a page of users, by one question."""
    roles: dict[UUID, tuple[str, ...]] = {}
    if not user_ids:
        return roles
    rows = db.session.execute(
        select(RoleAssignment.user_id, RoleAssignment.role)
        .where(
            RoleAssignment.organization_id == organization_id,
            RoleAssignment.user_organization_id == organization_id,
            RoleAssignment.user_id.in_(user_ids),
        )
        .order_by(RoleAssignment.role)
    )
    for user_id, role in rows:
        roles[user_id] = (*roles.get(user_id, ()), role)
    return roles
