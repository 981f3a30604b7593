"""Roles of an organization: what each may do, narrowed or added by its administrators, and who has it."""

from __future__ import annotations

from typing import Any

from flask import request

from app.operations.organizations.roles import (
    RoleRecord,
    create_role,
    delete_role,
    get_role,
    list_role_holders,
    list_roles,
    update_role,
)
from app.portal.blueprint import portal
from app.portal.visit import Answer, Visit, visiting
from app.rules.directory.permissions import ADMIN, BUILT_IN_ROLES, ORGANIZATION_PERMISSIONS, PERMISSIONS
from app.rules.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from app.web.forms import field_errors, lines, text, ticked, version_read

_STALE = "Somebody changed the role meanwhile. Check it and save again."


@portal.get("/portal/<organization>/settings/permissions")
@visiting
def roles(visit: Visit) -> Answer:
    """The roles, and how much each may."""
    return visit.render("portal/settings/roles.html", roles=list_roles(visit.actor), admin=ADMIN)


@portal.route("/portal/<organization>/settings/permissions/new", methods=["GET", "POST"])
@visiting
def new_role(visit: Visit) -> Answer:
    """A role of the organization's own."""
    visit.actor.require("roles:write")
    values: dict[str, Any] = {"key": text("key"), **_sent()}
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            create_role(visit.actor, {"id": values["key"], **_fields()})
            return visit.done("/settings/permissions", "saved")
        except (InvalidInput, Conflict) as refusal:
            errors = _errors(refusal)
    return _form(visit, None, values, errors)


@portal.route("/portal/<organization>/settings/permissions/<role>", methods=["GET", "POST"])
@visiting
def role(visit: Visit, role: str) -> Answer:
    """One role's form; ``act`` removes an own role and returns a built-in one to what it was."""
    record = get_role(visit.actor, role)
    if role == ADMIN:
        raise NotFound("There is no such role.")
    stored = {
        "name": record.role.name,
        "description": record.role.description,
        "permissions": list(record.role.permissions),
    }
    if request.method == "GET":
        return _form(visit, record, {"key": role, **stored}, {})
    is_removal = text("act") == "remove"
    try:
        if not is_removal:
            update_role(visit.actor, role, _fields(), expected_version=version_read())
            done = "saved"
        elif record.is_built_in:
            update_role(visit.actor, role, dict.fromkeys(stored), expected_version=version_read())
            done = "reset"
        else:
            delete_role(visit.actor, role, expected_version=version_read())
            done = "role-removed"
    except PreconditionFailed:
        errors = {"": _STALE}
    except (InvalidInput, Conflict) as refusal:
        errors = _errors(refusal)
    else:
        return visit.done("/settings/permissions", done)
    return _form(visit, record, {"key": role, **(stored if is_removal else _sent())}, errors)


def _sent() -> dict[str, Any]:
    return {
        "name": text("name"),
        "description": text("description"),
        "permissions": list(dict.fromkeys([*ticked("permissions"), *lines("more_permissions")])),
    }


def _fields() -> dict[str, Any]:
    """What was typed, as the operation wants it: an empty description is none."""
    return {name: value or None if name == "description" else value for name, value in _sent().items()}


def _errors(refusal: InvalidInput | Conflict) -> dict[str, str]:
    found = field_errors(refusal, {"id": "key", "permissions": "permissions"})
    # The fields of the settings are none of this form's: what is said of them is said of the whole.
    return {
        name if name in {"key", "name", "description", "permissions"} else "": words
        for name, words in found.items()
    }


def _groups(key: str | None) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """(noun, [(permission, words, whether it is of own things alone)]): a built-in role can be narrowed alone."""
    offered = (
        frozenset(BUILT_IN_ROLES[key].permissions)
        if key is not None and key in BUILT_IN_ROLES
        else ORGANIZATION_PERMISSIONS
    )
    groups: dict[str, list[tuple[str, str, bool]]] = {}
    for name, words in PERMISSIONS.items():
        noun = name.split(":")[0].capitalize()
        for permission, is_own in ((name, False), (f"{name}:own", True)):
            if permission in offered:
                groups.setdefault(noun, []).append((permission, words, is_own))
    return list(groups.items())


def _form(visit: Visit, record: RoleRecord | None, values: dict[str, Any], errors: dict[str, str]) -> Answer:
    key = record.key if record else None
    groups = _groups(key)
    listed = {permission for _, rows in groups for permission, _, _ in rows}
    return visit.render(
        "portal/settings/role.html",
        code=400 if errors else 200,
        key=key,
        is_built_in=record is not None and record.is_built_in,
        values=values,
        more=[name for name in values["permissions"] if name not in listed],
        groups=groups,
        holders=list_role_holders(visit.actor, key)
        if key and visit.actor.has_permission("admins:read")
        else None,
        errors=errors,
        version=record.version if record else 1,
    )
