"""OpenAPI: roles of an organization."""

from __future__ import annotations

from app.api.openapi.common import SLUG
from app.api.openapi.parts import (
    Schema,
    array,
    changed,
    closed,
    flag,
    listed,
    made,
    nullable,
    operation,
    path_item,
    ref,
    request_object,
    shown,
    text,
)
from app.rules.organizations.settings_table import ROLE_FIELDS

_TAG = "Roles"
_ID = text("How programs name it; it stays.", pattern="^[a-z][a-z0-9_-]{0,39}$")
_FIELDS = {name: kind.schema() for name, kind in ROLE_FIELDS.items()}

SCHEMAS: Schema = {
    "Role": closed(
        {
            "id": text("How programs name it."),
            "organization_id": SLUG,
            "name": text(),
            "description": text(),
            "permissions": array(
                text(),
                "Permissions here, `:own` ones, and rights inside the organization's own apps, which "
                "open nothing here.",
            ),
            "is_built_in": flag("It can be narrowed, and not removed."),
        }
    ),
    "NewRole": request_object(
        {
            "id": _ID,
            # null is the default, as everywhere; the list of permissions has none.
            **{
                name: schema if name == "permissions" else nullable(schema)
                for name, schema in _FIELDS.items()
            },
        },
        required=("id", "permissions"),
    ),
    "RoleChange": request_object({name: nullable(schema) for name, schema in _FIELDS.items()}),
}
_ONE = shown("The role.", "Role", etag=True)

PATHS: Schema = {
    "/roles": path_item(
        ("Acting",),
        get=operation(
            "listRoles",
            "List roles",
            tag=_TAG,
            scope="roles:read",
            description="All of them: there are 50 at most beside the built-in ones.",
            answers=listed("The roles.", "Role"),
        ),
        post=operation(
            "createRole",
            "Create a role",
            tag=_TAG,
            scope="roles:write",
            description="Nobody grants what they do not hold: 403 names the permission.",
            parameters=("IdempotencyKey",),
            body=ref("NewRole"),
            answers=made("The new role.", "Role"),
        ),
    ),
    "/roles/{roleId}": path_item(
        ("RoleId", "Acting"),
        get=operation(
            "getRole",
            "Show a role",
            tag=_TAG,
            scope="roles:read",
            answers=_ONE,
        ),
        put=operation(
            "updateRole",
            "Update a role",
            tag=_TAG,
            scope="roles:write",
            description="For everybody who has it, from the next call on. A role neither gains nor loses what the "
            "caller lacks: 403. `null` returns a field of a built-in role to what it was; `admin` cannot be changed.",
            parameters=("IfMatch",),
            body=ref("RoleChange"),
            answers=changed("The role.", "Role"),
            extra=("409",),
        ),
        delete=operation(
            "deleteRole",
            "Delete a role",
            tag=_TAG,
            scope="roles:write",
            description="409 `role_in_use` says how many have it, 409 `built_in_role` that it comes with every "
            "organization.",
            parameters=("IfMatch",),
            answers=_ONE,
            extra=("409",),
        ),
    ),
}
