"""Roles of users and groups in a client."""

from __future__ import annotations

from typing import Annotated

from app.api.endpoints import Body, Endpoints, show_page
from app.api.representations import ClientId, CreatedAt, CreatedBy, Representation, Source, UserId
from app.api.users.groups import GroupId
from app.operations.users import app_roles
from app.operations.users.app_roles import NewRoleAssignment
from app.rules.shapes import PublicId, described
from app.web.bearer import ApiContext

endpoints = Endpoints("App roles", "users")


class RoleAssignment(Representation):
    """A role of a user or a group in a client."""

    id: Annotated[str, PublicId("ara", "role assignment"), Source("public_id")]
    client_id: ClientId
    role: Annotated[str, described("The key of a role in the client's `app_roles`.")]
    user_id: Annotated[
        UserId | None,
        Source("user_public_id"),
        described("The user who has the role. Null if a group has it."),
    ]
    email: Annotated[str | None, described("The user's email address.")]
    group_id: Annotated[
        GroupId | None,
        Source("group_public_id"),
        described("The group whose members have the role. Null if a user has it."),
    ]
    group_name: Annotated[str | None, described("The name of the group. Null if a user has the role.")]
    created_at: CreatedAt
    created_by: CreatedBy


@endpoints.page("/clients/<client_id>/role-assignments", returns=RoleAssignment)
def list_role_assignments(context: ApiContext, client_id: str) -> object:
    """List the roles of users and groups in a client, newest first."""
    return show_page(context, f"role assignments {client_id}", app_roles.list_app_role_assignments, client_id)


@endpoints.post(
    "/clients/<client_id>/role-assignments", body=NewRoleAssignment, returns=RoleAssignment, etag=False
)
def assign_role(context: ApiContext, body: Body, client_id: str) -> object:
    """Assign a role of a client to a user or a group.

    The client declares its roles in `app_roles`. Send one of `user_id`, `email` and `group_id`. The `email` of a user
    who registered with it and has not verified it: 409 `email_unverified`.
    """
    return app_roles.assign_app_role(context.actor, client_id, body)


@endpoints.delete("/clients/<client_id>/role-assignments/<assignment_id>", returns=RoleAssignment)
def remove_role_assignment(context: ApiContext, client_id: str, assignment_id: str) -> object:
    """Take a role of a client from a user or a group.

    Tokens that contain the role stay valid until they expire.
    """
    return app_roles.remove_app_role(context.actor, client_id, assignment_id)
