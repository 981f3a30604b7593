"""Roles of an organization: what each may do, narrowed or added by its administrators."""

from __future__ import annotations

from typing import Any

from flask import request

from app.operations.tenancy.settings import get_settings, update_settings
from app.portal.blueprint import portal
from app.portal.visit import Answer, Visit, visiting
from app.rules.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from app.rules.people.permissions import ADMIN, BUILT_IN_ROLES, OWN_PERMISSIONS, PERMISSIONS, roles_of
from app.rules.tenancy.settings import ROLES_PATH
from app.web.forms import field_errors, lines, text, ticked, version_read


@portal.get("/portal/<organization>/settings/permissions")
@visiting
def roles(visit: Visit) -> Answer:
    """The roles, and how much each may."""
    view = get_settings(visit.actor, visit.organization.slug)
    return visit.render(
        "portal/settings/roles.html", roles=roles_of(view.document), built_in=BUILT_IN_ROLES, admin=ADMIN
    )


@portal.route("/portal/<organization>/settings/permissions/new", methods=["GET", "POST"])
@visiting
def new_role(visit: Visit) -> Answer:
    """A role of the organization's own."""
    view = get_settings(visit.actor, visit.organization.slug)
    values: dict[str, Any] = {"key": text("key"), **_sent()}
    errors: dict[str, str] = {}
    if request.method == "POST":
        if values["key"] in roles_of(view.document):
            errors = {"key": "There is a role with this key already."}
        else:
            errors = _save(visit, values["key"], _sent())
        if not errors:
            return visit.done("/settings/permissions", "saved")
    return _form(visit, None, values, errors, _choices(None), view.version)


@portal.route("/portal/<organization>/settings/permissions/<role>", methods=["GET", "POST"])
@visiting
def role(visit: Visit, role: str) -> Answer:
    """One role's form; ``act`` removes an own role and returns a built-in one to what it was."""
    view = get_settings(visit.actor, visit.organization.slug)
    found = roles_of(view.document).get(role)
    if found is None or role == ADMIN:
        raise NotFound("There is no such role.")
    stored = {"name": found.name, "description": found.description, "permissions": list(found.permissions)}
    if request.method == "GET":
        return _form(visit, role, {"key": role, **stored}, {}, _choices(role), view.version)
    if text("act") == "remove":
        errors = _save(visit, role, None)
        done = "reset" if role in BUILT_IN_ROLES else "role-removed"
    else:
        errors = _save(visit, role, _sent())
        done = "saved"
    if errors:
        return _form(visit, role, {"key": role, **_sent()}, errors, _choices(role), view.version)
    return visit.done("/settings/permissions", done)


def _sent() -> dict[str, Any]:
    return {
        "name": text("name"),
        "description": text("description"),
        "permissions": list(dict.fromkeys([*ticked("permissions"), *lines("more_permissions")])),
    }


def _save(visit: Visit, key: str, fields: dict[str, Any] | None) -> dict[str, str]:
    """Errors by field of the form; none when it is stored."""
    if fields is not None:
        fields = {name: value or None if name == "description" else value for name, value in fields.items()}
    try:
        update_settings(
            visit.actor,
            visit.organization.slug,
            {"user_permissions": {"roles": {key: fields}}},
            expected_version=version_read(),
        )
    except PreconditionFailed:
        return {"": "Somebody changed the settings meanwhile. Check the role and save again."}
    except (InvalidInput, Conflict) as refusal:
        head = f"{ROLES_PATH}.{key}"
        places = {f"{head}.{name}": name for name in ("name", "description", "permissions")}
        return field_errors(refusal, {**places, head: "key"})
    return {}


def _choices(key: str | None) -> list[tuple[str, str, str | None]]:
    """(name, words, hint) of what the role may hold: a built-in one can be narrowed alone."""
    everything = (*PERMISSIONS, *sorted(OWN_PERMISSIONS))
    offered = BUILT_IN_ROLES[key].permissions if key is not None and key in BUILT_IN_ROLES else everything
    return [(name, _words(name), name) for name in everything if name in offered]


def _words(name: str) -> str:
    whole = name.removesuffix(":own")
    return PERMISSIONS[whole] if whole == name else f"{PERMISSIONS[whole]}: own ones only"


def _form(
    visit: Visit,
    key: str | None,
    values: dict[str, Any],
    errors: dict[str, str],
    choices: list[tuple[str, str, str | None]],
    version: int,
) -> Answer:
    listed = {name for name, _, _ in choices}
    return visit.render(
        "portal/settings/role.html",
        code=400 if errors else 200,
        key=key,
        is_built_in=key in BUILT_IN_ROLES,
        values=values,
        more=[name for name in values["permissions"] if name not in listed],
        choices=choices,
        errors=errors,
        version=version,
    )
