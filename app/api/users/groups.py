"""Groups of users: list, create, show, update, delete, and their members."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from app.api.endpoints import Body, Endpoints, show_page
from app.api.representations import (
    Count,
    CreatedAt,
    CreatedBy,
    Deleted,
    Representation,
    Slug,
    Source,
    UpdatedAt,
    UserId,
    fields_of,
)
from app.operations.users import groups
from app.operations.users.groups import GroupChange, GroupFields, NewGroup, NewMember
from app.rules.shapes import PublicId, described
from app.web.bearer import ApiContext
from app.web.json_api import created, expected_version

endpoints = Endpoints("Groups", "users")
GroupId = Annotated[str, PublicId("grp", "group")]
_GroupFields: Any = fields_of("GroupFields", GroupFields)


class GroupAtProvider(Representation):
    """A group at an identity provider whose users are members."""

    provider_id: Annotated[str, PublicId("idp", "identity provider")]
    value: Annotated[str, described("The group's value in the provider's `groups_claim`.")]


class Group(_GroupFields):
    """A group of users."""

    id: Annotated[GroupId, Source("public_id")]
    organization_id: Annotated[Slug, Source("organization_slug")]
    provider_groups: Annotated[
        list[GroupAtProvider],
        described(
            "Groups at identity providers. A user who signs in with one of these providers becomes a member if they"
            " are in one of its groups here, and is removed otherwise."
        ),
    ]
    members: Annotated[Count, described("How many members the group has.")]
    created_at: CreatedAt
    created_by: CreatedBy
    updated_at: UpdatedAt


class GroupMember(Representation):
    """A member of a group."""

    user_id: Annotated[UserId, Source("user.public_id")]
    email: Annotated[str, Source("user.email"), described("The email address of the user.")]
    name: Annotated[str, Source("user.name"), described("The display name of the user.")]
    created_at: Annotated[datetime, described("When the user was added.")]
    created_by: CreatedBy


class RemovedMember(Representation):
    """A user who is no longer a member."""

    user_id: UserId
    deleted: Deleted


@endpoints.page(
    "/organizations/<slug>/groups", returns=Group, search="Part of a name.", filters=groups.FILTERS
)
def list_groups(context: ApiContext, slug: str) -> object:
    """List groups."""
    return show_page(context, f"groups {slug}", groups.list_groups, slug, filters=groups.FILTERS)


@endpoints.post("/organizations/<slug>/groups", body=NewGroup, returns=Group)
def create_group(context: ApiContext, body: Body, slug: str) -> object:
    """Create a group.

    Apps receive its name in the `groups` claim of its members, if they are granted the scope `groups`.
    """
    return groups.create_group(context.actor, slug, body)


@endpoints.get("/organizations/<slug>/groups/<group_id>", returns=Group)
def get_group(context: ApiContext, slug: str, group_id: str) -> object:
    """Get a group."""
    return groups.get_group(context.actor, slug, group_id)


@endpoints.put("/organizations/<slug>/groups/<group_id>", body=GroupChange, returns=Group)
def update_group(context: ApiContext, body: Body, slug: str, group_id: str) -> object:
    """Update a group."""
    return groups.update_group(context.actor, slug, group_id, body, expected_version=expected_version())


@endpoints.delete(
    "/organizations/<slug>/groups/<group_id>", returns=Group, etag=True, if_match=True, errors=()
)
def delete_group(context: ApiContext, slug: str, group_id: str) -> object:
    """Delete a group.

    Its memberships and its roles in apps are deleted, too. The response is the group as it was.
    """
    return groups.delete_group(context.actor, slug, group_id, expected_version=expected_version())


@endpoints.page(
    "/organizations/<slug>/groups/<group_id>/members",
    returns=GroupMember,
    search="Part of an email address or a name, or a complete user ID.",
)
def list_group_members(context: ApiContext, slug: str, group_id: str) -> object:
    """List the members of a group, by email address."""
    return show_page(context, f"members {group_id}", groups.list_members, slug, group_id)


@endpoints.post(
    "/organizations/<slug>/groups/<group_id>/members", body=NewMember, returns=GroupMember, etag=False
)
def add_group_member(context: ApiContext, body: Body, slug: str, group_id: str) -> object:
    """Add a member to a group.

    Send either `user_id` or `email`. A user who is a member already: 409 `already_member`. The `email` of a user who
    registered with it and has not verified it: 409 `email_unverified`.
    """
    member = groups.add_member(context.actor, slug, group_id, body)
    return created(GroupMember.to_json(member), member.user.public_id)


@endpoints.delete("/organizations/<slug>/groups/<group_id>/members/<user_id>", returns=RemovedMember)
def remove_group_member(context: ApiContext, slug: str, group_id: str, user_id: str) -> object:
    """Remove a member from a group."""
    groups.remove_member(context.actor, slug, group_id, user_id)
    return {"user_id": user_id, "deleted": True}
