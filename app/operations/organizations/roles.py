"""Roles of an organization: the built-in ones, as it narrowed them, and its own. They stand in its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.role_holders import RoleHolders, find_role_holders
from app.operations.organizations.settings import store_settings
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN, BUILT_IN_ROLES, Role, effective_roles
from app.rules.errors import Conflict, DomainError, FieldError, InvalidInput, NotFound, PreconditionFailed
from app.rules.fields import Findings, find_unknown
from app.rules.organizations.settings import ROLES_PATH
from app.rules.organizations.settings_table import ROLE_FIELDS
from app.rules.versions import compute_version

FIELDS = ("id", *ROLE_FIELDS)


@dataclass(frozen=True, slots=True)
class RoleRecord:
    """A role; ``key`` is how programs name it."""

    key: str
    role: Role
    organization_slug: str

    @property
    def is_built_in(self) -> bool:
        """It comes with every organization, and can be narrowed, not removed."""
        return self.key in BUILT_IN_ROLES

    @property
    def version(self) -> int:
        """Another number once anything of it is another."""
        return compute_version(self.key, self.role.name, self.role.description, *self.role.permissions)


@read
def list_roles(actor: Actor) -> tuple[RoleRecord, ...]:
    """Every role of the organization acted in: a few dozen at most."""
    actor.require("roles:read")
    organization = get_organization_by_id(actor.organization_id)
    return tuple(
        RoleRecord(key, role, organization.slug)
        for key, role in effective_roles(organization.settings).items()
    )


@read
def get_role(actor: Actor, key: str) -> RoleRecord:
    """One role. Raises NotFound."""
    for record in list_roles(actor):
        if record.key == key:
            return record
    raise NotFound("There is no such role.")


@read
def list_role_holders(actor: Actor, key: str) -> RoleHolders:
    """Who has the role. Raises NotFound, Forbidden."""
    actor.require("admins:read")
    return find_role_holders(actor.organization_id, get_role(actor, key).key)


@transaction
def create_role(actor: Actor, fields: Mapping[str, Any]) -> RoleRecord:
    """A role of the organization's own, which holds nothing that the actor lacks (TN-11).

    Raises InvalidInput naming every wrong field, Forbidden, Conflict when there is one with the ``id``, RoleInUse
    while somebody has what an earlier one of that name was. Audit: ``settings.updated``.
    """
    actor.require("roles:write")
    found = Findings()
    find_unknown(found, fields, FIELDS)
    key = fields.get("id")
    if not isinstance(key, str) or not key:
        found.add("id", "required", "Name the role as programs will: lower-case letters, digits, _ and -.")
    if fields.get("permissions") is None:
        found.add("permissions", "required", "A role lists its permissions; an empty list is allowed.")
    found.raise_if_any()
    if any(record.key == key for record in _roles(actor)):
        raise Conflict("There is a role with this id already.", field="id", code="role_exists")
    return _store(actor, str(key), {name: fields[name] for name in ROLE_FIELDS if name in fields})


@transaction
def update_role(
    actor: Actor, key: str, fields: Mapping[str, Any], *, expected_version: int | None = None
) -> tuple[RoleRecord, tuple[str, ...]]:
    """The fields sent are the role's, for everybody who has it, from the next call on; returns those that differ.

    ``null`` returns a field of a built-in role to what it was. Raises NotFound, InvalidInput, PreconditionFailed,
    WouldLockOut, Forbidden when the role would gain or lose what the actor lacks. Audit: ``settings.updated``.
    """
    actor.require("roles:write")
    before = _find(actor, key, expected_version)
    found = Findings()
    find_unknown(found, fields, tuple(ROLE_FIELDS))
    found.raise_if_any()
    after = _store(actor, key, dict(fields)) if fields else before
    return after, tuple(
        name for name in ROLE_FIELDS if getattr(before.role, name) != getattr(after.role, name)
    )


@transaction
def delete_role(actor: Actor, key: str, *, expected_version: int | None = None) -> RoleRecord:
    """The role is no more. Raises NotFound, RoleInUse saying how many have it, Conflict for a built-in one.

    Audit: ``settings.updated``.
    """
    actor.require("roles:write")
    record = _find(actor, key, expected_version)
    if record.is_built_in:
        raise Conflict("A built-in role can be narrowed, and not removed.", code="built_in_role")
    _store(actor, key, None)
    return record


def _find(actor: Actor, key: str, expected_version: int | None) -> RoleRecord:
    record = next((record for record in _roles(actor) if record.key == key), None)
    if record is None:
        raise NotFound("There is no such role.")
    if expected_version is not None and record.version != expected_version:
        raise PreconditionFailed("The role was changed since you read it. Read it again.")
    if key == ADMIN:
        raise Conflict("The admin role may everything and cannot be changed.", code="built_in_role")
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
    except DomainError as refusal:
        raise _named_by_the_role(refusal, key) from refusal
    role = effective_roles(stored.settings.document).get(key)
    return RoleRecord(key, role or Role(key, "", ()), organization.slug)


def _named_by_the_role(refusal: DomainError, key: str) -> DomainError:
    """The refusal with the fields of a role in place of the paths of the settings."""
    if not isinstance(refusal, InvalidInput):
        return refusal
    head = f"{ROLES_PATH}.{key}"[:200]
    return InvalidInput.of(
        [
            FieldError(
                "id" if error.field == head else error.field.removeprefix(f"{head}."),
                error.code,
                error.message,
            )
            for error in refusal.errors
        ]
    )
