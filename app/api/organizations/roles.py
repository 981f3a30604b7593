"""Roles: the built-in ones, as the organization narrowed them, and its custom ones."""

from __future__ import annotations

from typing import Annotated

from app.api.endpoints import Body, Endpoints, show_page_of
from app.api.representations import Representation, Slug, Source
from app.operations.organizations import roles
from app.rules.organizations.settings_table import ROLE_KEY_PATTERN, RoleChange, RoleFields
from app.rules.shapes import SchemaOnly, create_shape, described
from app.web.bearer import ApiContext
from app.web.json_api import expected_version

endpoints = Endpoints("Roles", "roles")
# As JSON Schema, whose patterns are not anchored.
ROLE_KEY = f"^{ROLE_KEY_PATTERN}$"


class Role(Representation):
    """A role."""

    id: Annotated[str, Source("key"), described("The permanent ID of the role.")]
    organization_id: Annotated[Slug, Source("organization_slug")]
    name: Annotated[str, Source("role.name"), described("The name that administrators see.")]
    description: Annotated[str, Source("role.description"), described("What the role is for.")]
    permissions: Annotated[
        list[str],
        Source("role.permissions"),
        described(
            "Permissions of this service, also with `:own`, and permissions of the organization's own apps."
        ),
    ]
    is_built_in: Annotated[bool, described("A built-in role can be narrowed but not deleted.")]


class _NewRoleFields(RoleFields):
    id: Annotated[str, SchemaOnly(pattern=ROLE_KEY), described("The permanent ID of the role.")]


NewRole = create_shape("NewRole", _NewRoleFields, required=("id", "permissions"))


@endpoints.page("/roles", returns=Role)
def list_roles(context: ApiContext) -> object:
    """List roles.

    The built-in ones first. An organization can have at most 50 custom roles.
    """
    return show_page_of(context, "roles", roles.list_roles(context.actor), "key")


@endpoints.post("/roles", body=NewRole, returns=Role)
def create_role(context: ApiContext, body: Body) -> object:
    """Create a role.

    Callers can grant only permissions that they have. Otherwise, the response is 403 and names the permission. A user
    needs a recent sign-in (RFC 9470) to grant any.
    """
    return roles.create_role(context.actor, body)


@endpoints.get("/roles/<role_id>", returns=Role)
def get_role(context: ApiContext, role_id: str) -> object:
    """Get a role."""
    return roles.get_role(context.actor, role_id)


@endpoints.put("/roles/<role_id>", body=RoleChange, returns=Role)
def update_role(context: ApiContext, body: Body, role_id: str) -> object:
    """Update a role.

    The change applies immediately to every user who has the role. Callers can add and remove only permissions that
    they have: 403. A user needs a recent sign-in (RFC 9470) to add any. `null` restores a field of a built-in role. The
    role `admin` can't be changed.
    """
    return roles.update_role(context.actor, role_id, body, expected_version=expected_version())


@endpoints.delete("/roles/<role_id>", returns=Role, etag=True, if_match=True)
def delete_role(context: ApiContext, role_id: str) -> object:
    """Delete a role.

    409 `role_in_use` says how many users have the role. Built-in roles can't be deleted: 409 `built_in_role`.
    """
    return roles.delete_role(context.actor, role_id, expected_version=expected_version())
