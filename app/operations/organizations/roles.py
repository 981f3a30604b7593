"""Roles of an organization: built-in roles with its restrictions, and custom roles. They are stored in its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import select

from app.extensions import db
from app.models.organization import Organization
from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.settings import store_settings
from app.operations.store.rows import Updated
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN, BUILT_IN_ROLES, Role, effective_roles
from app.rules.errors import Conflict, DomainError, FieldError, Forbidden, InvalidInput, NotFound
from app.rules.fields import ValidationErrors, find_unknown
from app.rules.organizations.settings import ROLES_PATH
from app.rules.organizations.settings_table import ROLE_FIELDS
from app.rules.versions import ExpectedVersion, compute_version, require_version

FIELDS = ("id", *ROLE_FIELDS)


class RoleRecord(Struct, frozen=True):
    """A role; ``key`` is its identifier."""

    key: str
    role: Role
    organization_slug: str

    @property
    def is_built_in(self) -> bool:
        """Return whether every organization has the role. It can be restricted but not deleted."""
        return self.key in BUILT_IN_ROLES

    @property
    def version(self) -> int:
        """A number that changes with any of the fields."""
        return compute_version(self.key, self.role.name, self.role.description, *self.role.permissions)


@read
def list_roles(actor: Actor) -> tuple[RoleRecord, ...]:
    """List all roles of the organization, a few dozen at most."""
    actor.require("roles:read")
    return _roles(actor)


@read
def get_role(actor: Actor, key: str) -> RoleRecord:
    """Return one role. Raises NotFound."""
    for record in list_roles(actor):
        if record.key == key:
            return record
    raise NotFound("There is no such role.")


@transaction
def create_role(actor: Actor, fields: Mapping[str, Any]) -> RoleRecord:
    """Create a custom role with permissions that the actor holds (TN-11).

    Raises InvalidInput naming every invalid field, Forbidden, FreshSignInRequired, Conflict if the ``id`` exists, and
    RoleInUse while users still have a former role of that name. Audit: ``settings.updated``.
    """
    actor.require("roles:write")
    _hold_roles(actor)
    found = ValidationErrors()
    find_unknown(found, fields, FIELDS)
    key = fields.get("id")
    if not isinstance(key, str) or not key:
        found.add("id", "required", "Enter an ID for the role: lowercase letters, digits, _ and -.")
    if fields.get("permissions") is None:
        found.add("permissions", "required", "List the permissions of the role. The list may be empty.")
    found.raise_if_any()
    if any(record.key == key for record in _roles(actor)):
        raise Conflict("A role with this ID already exists.", field="id", code="role_exists")
    return _store(actor, str(key), {name: fields[name] for name in ROLE_FIELDS if name in fields})


@transaction
def update_role(
    actor: Actor, key: str, fields: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> Updated[RoleRecord]:
    """Change the given fields of the role for everyone who has it, and return the changed fields.

    ``null`` resets a field of a built-in role. Raises NotFound, InvalidInput, PreconditionFailed, WouldLockOut,
    Forbidden if the role would gain or lose a permission that the actor lacks, and FreshSignInRequired if it would gain
    one and the user signed in too long ago. Audit: ``settings.updated``.
    """
    actor.require("roles:write")
    _hold_roles(actor)
    before = _find(actor, key, expected_version)
    found = ValidationErrors()
    find_unknown(found, fields, ROLE_FIELDS)
    found.raise_if_any()
    after = _store(actor, key, dict(fields)) if fields else before
    return Updated(
        after,
        tuple(name for name in ROLE_FIELDS if getattr(before.role, name) != getattr(after.role, name)),
    )


@transaction
def delete_role(actor: Actor, key: str, *, expected_version: ExpectedVersion = None) -> RoleRecord:
    """Delete a custom role. Raises NotFound, RoleInUse with the number of users, Conflict for a built-in role.

    Audit: ``settings.updated``.
    """
    actor.require("roles:write")
    _hold_roles(actor)
    record = _find(actor, key, expected_version)
    if record.is_built_in:
        raise Conflict("Built-in roles can be restricted but not deleted.", code="built_in_role")
    _store(actor, key, None)
    return record


def _hold_roles(actor: Actor) -> None:
    """Let nobody else change the organization until the transaction ends."""
    row = select(Organization.id).where(Organization.id == actor.organization_id)
    db.session.execute(row.with_for_update())


def _find(actor: Actor, key: str, expected_version: ExpectedVersion) -> RoleRecord:
    record = next((record for record in _roles(actor) if record.key == key), None)
    if record is None:
        raise NotFound("There is no such role.")
    require_version(record.version, expected_version)
    if key == ADMIN:
        raise Conflict("The admin role has every permission and cannot be changed.", code="built_in_role")
    return record


def _roles(actor: Actor) -> tuple[RoleRecord, ...]:
    organization = get_organization_by_id(actor.organization_id)
    return tuple(
        RoleRecord(key, role, organization.slug)
        for key, role in effective_roles(organization.settings).items()
    )


def _store(actor: Actor, key: str, entry: dict[str, Any] | None) -> RoleRecord:
    organization = get_organization_by_id(actor.organization_id)
    try:
        stored = store_settings(actor, organization, {"user_permissions": {"roles": {key: entry}}})
    except InvalidInput as refusal:
        raise InvalidInput.of(_role_fields(refusal, key)) from refusal
    except Forbidden as refusal:
        refusal.errors = _role_fields(refusal, key)
        raise
    role = effective_roles(stored.settings.document).get(key)
    return RoleRecord(key, role or Role(key, "", ()), organization.slug)


def _role_fields(refusal: DomainError, key: str) -> tuple[FieldError, ...]:
    """Return the errors with fields of the role instead of paths of settings."""
    head = f"{ROLES_PATH}.{key}"[:200]
    return tuple(
        FieldError(
            "id" if error.field == head else error.field.removeprefix(f"{head}."), error.code, error.message
        )
        for error in refusal.errors
    )
