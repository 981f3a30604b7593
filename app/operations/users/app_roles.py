"""Roles of users and groups in an app (a client), which it receives in the ``roles`` claim.

They mean something in the app only. Roles in the organization are in ``role_assignments``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Select, delete, select

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.client import Client
from app.models.user import AppRoleAssignment, Group, User
from app.operations.clients.client_records import hold_client, load_client_row
from app.operations.directory.users import find_sent_user
from app.operations.store import audit, clock
from app.operations.store.rows import Page, PageRequest, get_row, read_page
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    read,
    savepoint,
    transaction,
)
from app.operations.users.groups import NewMember, lock_group
from app.rules.actor import Actor
from app.rules.clients.app_claims import MAX_ROLE_KEY_LENGTH, role_keys
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.fields import ValidationErrors
from app.rules.identifiers import HasPublicId, format_client_id, new_id, parse_public_id, public_id
from app.rules.shapes import Text, check_shape, described


class NewRoleAssignment(NewMember):
    """A role to assign. Send one of `user_id`, `email` and `group_id`."""

    role: Annotated[str, Text(MAX_ROLE_KEY_LENGTH), described("The key of a role that the client declares.")]
    group_id: Annotated[
        Annotated[str, Text(64)] | None, described("The group. Send this, `user_id` or `email`.")
    ] = None


class RoleAssignmentRecord(HasPublicId, Struct, frozen=True):
    """A role of a user or a group in an app. Of a group, ``user_…`` and ``email`` are None, and vice versa."""

    id_prefix = "ara"
    id: UUID
    client_id: str
    role: str
    user_id: UUID | None
    email: str | None
    group_id: UUID | None
    group_name: str | None
    created_at: datetime
    created_by: str | None

    @property
    def user_public_id(self) -> str | None:
        """``usr_…`` of the user, if it is a user's."""
        return None if self.user_id is None else public_id("usr", self.user_id)

    @property
    def group_public_id(self) -> str | None:
        """``grp_…`` of the group, if it is a group's."""
        return None if self.group_id is None else public_id("grp", self.group_id)


@read
def list_app_role_assignments(
    actor: Actor, client_id: str, page_request: PageRequest = PageRequest()
) -> Page[RoleAssignmentRecord]:
    """List the roles of users and groups in an app, newest first. Raises Forbidden, NotFound."""
    actor.require("users:read")
    client = load_client_row(actor, client_id)
    return read_page(_select(client), (AppRoleAssignment.id,), page_request).map(_to_record)


@transaction
def assign_app_role(actor: Actor, client_id: str, fields: Mapping[str, Any]) -> RoleAssignmentRecord:
    """Give a user or a group a role of the client.

    Raises InvalidInput naming every wrong field, Forbidden, NotFound for the client, Conflict if they have it already.
    Audit: ``app_role.assigned``.
    """
    actor.require("users:write")
    client = load_client_row(actor, client_id)
    errors = ValidationErrors()
    check_shape(errors, NewRoleAssignment, fields)
    role = fields.get("role")
    if not errors.has_error("role"):
        _validate_role(errors, client, role)
    is_group = fields.get("group_id") is not None
    if is_group and (fields.get("user_id") is not None or fields.get("email") is not None):
        errors.add("group_id", "contradiction", "Send one of user_id, email and group_id.")
    errors.raise_if_any()
    group_id = user_id = None
    if is_group:
        try:
            group_id = lock_group(actor, fields["group_id"], shared=True).id
        except NotFound:
            raise InvalidInput("There is no such group.", field="group_id", code="unknown_group") from None
    else:
        user_id = find_sent_user(actor.organization_id, fields).id
    # After group and user, in the order of locks. Its roles may have changed until now.
    client = hold_client(actor, client_id, shared=True)
    _validate_role(errors, client, role)
    errors.raise_if_any()
    row_id = current_unit_of_work().stable_value(f"app role {role} {user_id or group_id}", new_id)
    duplicate = Conflict("They have this role in the app already.", code="already_assigned")
    with savepoint(on_duplicate=duplicate):
        db.session.add(
            AppRoleAssignment(
                organization_id=actor.organization_id,
                id=row_id,
                client_id=client.id,
                role=role,
                holder_id=user_id or group_id,
                user_id=user_id,
                group_id=group_id,
                created_at=clock.now(),
                created_by=actor.author,
            )
        )
    record = _to_record(db.session.execute(_select(client).where(AppRoleAssignment.id == row_id)).one())
    audit.record(actor, "app_role.assigned", "client", client_id, after=_holder(record))
    return record


@transaction
def remove_app_role(actor: Actor, client_id: str, assignment_id: str) -> RoleAssignmentRecord:
    """Take a role from a user or a group. Tokens that contain it stay valid until they expire.

    Raises Forbidden, NotFound. Audit: ``app_role.removed``.
    """
    actor.require("users:write")
    client = load_client_row(actor, client_id)
    statement = _select(client).where(AppRoleAssignment.id == parse_public_id("ara", assignment_id))
    record = _to_record(get_row(statement, "There is no such role assignment."))
    key = has_key(AppRoleAssignment, actor.organization_id, record.id)
    if count_changed(delete(AppRoleAssignment).where(key)) != 1:
        raise NotFound("There is no such role assignment.")
    audit.record(actor, "app_role.removed", "client", client_id, before=_holder(record))
    return record


def _validate_role(errors: ValidationErrors, client: Client, role: Any) -> None:
    declared = role_keys(client.document)
    if role not in declared:
        message = f"The client declares no such role. Its roles: {', '.join(declared) or 'none'}."
        errors.add("role", "unknown_role", message)


def _select(client: Client) -> Select[Any]:
    assignment = AppRoleAssignment
    return (
        select(assignment)
        .add_columns(assignment.id, User.email, Group.name)
        .outerjoin(User, is_same(User.id, assignment.user_id))
        .outerjoin(Group, is_same(Group.id, assignment.group_id))
        .where(assignment.organization_id == client.organization_id, assignment.client_id == client.id)
    )


def _to_record(row: Any) -> RoleAssignmentRecord:
    assignment, _, email, group_name = row
    return RoleAssignmentRecord(
        assignment.id,
        format_client_id(assignment.organization_id, assignment.client_id),
        assignment.role,
        assignment.user_id,
        email,
        assignment.group_id,
        group_name,
        assignment.created_at,
        assignment.created_by,
    )


def _holder(record: RoleAssignmentRecord) -> dict[str, Any]:
    holder = {"user": record.user_public_id, "group": record.group_public_id}
    return {
        "assignment": record.public_id,
        "role": record.role,
        **{name: value for name, value in holder.items() if value is not None},
    }
