"""The list of users: searched, narrowed, ordered, one bounded page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, exists, func, literal, or_, select

from app.extensions import db
from app.models.user import DELETED, RoleAssignment, User
from app.operations.directory import organization_by_id
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.people.users import view_of
from app.operations.second_factors.enrolled import methods_of_users
from app.operations.transaction import read
from app.operations.user_administration.records import UserRecord, roles_of_users
from app.rules.actor import Actor
from app.rules.errors import FieldError, InvalidInput
from app.rules.identifiers import encode_uuid, parse_public_id
from app.rules.people.permissions import roles_of
from app.rules.people.user_fields import STATUSES

# The id is time-ordered, as in the list of clients.
SORTS = ("email", "-email", "created_at", "-created_at")
FILTERS = ("status", "role")


@read
def list_users(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    query: str | None = None,
    filters: Mapping[str, str] | None = None,
    sort: str = "email",
) -> Page[UserRecord]:
    """A page of the organization's users, without the deleted ones.

    ``query`` is a part of an address or a name, or a whole ``usr_…``; ``filters`` are ``status`` and ``role``;
    ``sort`` is one of SORTS. Raises InvalidInput for an unknown filter, value or order, Forbidden.
    """
    actor.require("users:read")
    organization = organization_by_id(actor.organization_id)
    _check(filters or {}, sort, tuple(roles_of(organization.settings)))
    statement = select(User).where(User.organization_id == organization.id, User.status != DELETED)
    statement = _narrowed(statement, organization.id, filters or {})
    if query:
        statement = _search(statement, query)
    limit = min(limit, MOST)
    ordered = in_order(statement, _columns(sort), after, descending=sort.startswith("-"))
    rows = db.session.scalars(ordered.limit(limit + 1)).all()
    roles = roles_of_users(organization.id, [row.id for row in rows[:limit]])
    methods = methods_of_users(organization.id, [row.id for row in rows[:limit]])
    items = tuple(
        UserRecord(view_of(row), organization.slug, roles.get(row.id, ()), methods.get(row.id, ()))
        for row in rows[:limit]
    )
    return Page(items, _key(rows[limit - 1], sort) if len(rows) > limit else None)


def _check(filters: Mapping[str, str], sort: str, roles: tuple[str, ...]) -> None:
    errors = []
    allowed = {"status": STATUSES, "role": roles}
    for name, value in filters.items():
        if name not in allowed:
            errors.append(FieldError(name, "unknown_parameter", "There is no such filter."))
        elif value not in allowed[name]:
            message = f"This must be one of: {', '.join(allowed[name])}."
            errors.append(FieldError(name, "not_allowed", message))
    if sort not in SORTS:
        errors.append(FieldError("sort", "not_allowed", f"This must be one of: {', '.join(SORTS)}."))
    if errors:
        raise InvalidInput.of(errors)


def _narrowed(statement: Select[Any], organization_id: str, filters: Mapping[str, str]) -> Select[Any]:
    if "status" in filters:
        statement = statement.where(User.status == filters["status"])
    if "role" in filters:
        held = exists().where(
            RoleAssignment.organization_id == organization_id,
            RoleAssignment.user_organization_id == User.organization_id,
            RoleAssignment.user_id == User.id,
            RoleAssignment.role == filters["role"],
        )
        statement = statement.where(held)
    return statement


def _search(statement: Select[Any], query: str) -> Select[Any]:
    user_id = parse_public_id("usr", query)
    if user_id is not None:
        return statement.where(User.id == user_id)
    part = query.strip().lower()
    # INSTR compares bytes on both engines and knows no wildcards to escape.
    return statement.where(
        or_(
            func.instr(User.email_canonical, literal(part, User.email_canonical.type)) > 0,
            func.instr(func.lower(User.name), part) > 0,
        )
    )


def _columns(sort: str) -> tuple[Any, ...]:
    return (User.email_canonical, User.id) if sort.endswith("email") else (User.id,)


def _key(row: User, sort: str) -> CursorKey:
    return (row.email_canonical, encode_uuid(row.id)) if sort.endswith("email") else (encode_uuid(row.id),)
