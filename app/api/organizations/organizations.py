"""Organizations: list, create, show, update, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from flask import Response

from app.api.endpoints import PAGE, Body, Endpoints, choice_query, list_response, search, sort_query
from app.api.representations import (
    CreatedAt,
    CreatedBy,
    Representation,
    Slug,
    Source,
    UpdatedAt,
    Url,
    optional,
)
from app.api.users.invitations import Invitation
from app.operations.organizations import organizations
from app.operations.organizations.organizations import OrganizationRecord
from app.operations.store.idempotency import IdempotentResult
from app.rules.organizations.organizations import NewOrganization, OrganizationChange
from app.rules.shapes import OneOf, described
from app.web.bearer import ApiContext
from app.web.json_api import created, envelope, expected_version, is_descending, read_object

endpoints = Endpoints("Organizations")
_STATUSES = ("active", "suspended", "deleted")


class Organization(Representation):
    """An organization."""

    id: Annotated[Slug, Source("slug")]
    name: Annotated[str, described("The display name.")]
    status: Annotated[
        str, OneOf(_STATUSES), described("Tokens of a suspended or deleted organization are rejected.")
    ]
    issuer: Annotated[Url, described("The issuer of its tokens (RFC 8414).")]
    is_root: Annotated[bool, described("Whether it is the root organization, which manages the others.")]
    created_at: CreatedAt
    created_by: CreatedBy
    updated_at: UpdatedAt
    purge_at: Annotated[
        datetime | None, described("When the data of a deleted organization is permanently deleted.")
    ]


class CreatedInvitation(Invitation):
    """A new invitation."""

    link: Annotated[
        Url,
        described("Only in this response, and only if no mail server is configured. Send it to the person."),
    ] = optional()


class CreatedOrganization(Organization):
    """A new organization."""

    invitation: Annotated[
        CreatedInvitation | None,
        described("The invitation of the first administrator. Null if none was invited."),
    ]


@endpoints.get(
    "/organizations",
    scope="organization:read",
    returns=Organization,
    is_page=True,
    names_organization=False,
    query=(
        *PAGE,
        search("The beginning of an ID, or part of a name."),
        choice_query("status", _STATUSES, "Organizations with this status."),
        sort_query("id"),
    ),
)
def list_organizations(context: ApiContext) -> Response:
    """List organizations.

    Root, with `organizations:read`, sees every organization. Others see only their own.
    """
    return list_response(
        context,
        "organizations",
        organizations.list_organizations,
        show=lambda record: _to_json(context, record),
        query=context.parameters.get("q"),
        status=context.parameters.get("status"),
        descending=is_descending(context.parameters, "id"),
    )


@endpoints.post(
    "/organizations",
    scope="organizations:write",
    body=NewOrganization,
    returns=CreatedOrganization,
    names_organization=False,
)
def create_organization(context: ApiContext, body: Body) -> IdempotentResult:
    """Create an organization.

    Only root can create organizations.
    """
    new = organizations.create_organization(context.actor, body)
    data = _to_json(context, new.organization) | {"invitation": None}
    if new.invitation is not None:
        link = {} if new.invitation.link is None else {"link": new.invitation.link}
        data["invitation"] = CreatedInvitation.to_json(new.invitation.invitation, **link)
    return created(data, new.organization.slug, version=new.organization.version)


@endpoints.get("/organizations/<slug>", scope="organization:read", returns=Organization)
def get_organization(context: ApiContext, slug: str) -> Response:
    """Get an organization."""
    record = organizations.get_organization(context.actor, slug)
    return envelope(_to_json(context, record), version=record.version)


@endpoints.put(
    "/organizations/<slug>",
    scope="organization:write",
    body=OrganizationChange,
    returns=Organization,
    errors=(409,),
)
def update_organization(context: ApiContext, slug: str) -> Response:
    """Update an organization.

    Only root can change `status`, with `organizations:write`.
    """
    updated = organizations.update_organization(
        context.actor, slug, read_object(), expected_version=expected_version()
    )
    return envelope(
        _to_json(context, updated.organization),
        meta={"changed": list(updated.changed)},
        version=updated.organization.version,
    )


@endpoints.delete(
    "/organizations/<slug>", scope="organization:delete", returns=Organization, if_match=True, errors=(409,)
)
def delete_organization(context: ApiContext, slug: str) -> Response:
    """Delete an organization.

    Everything stops working immediately. The data is permanently deleted at `purge_at`, and root can restore the
    organization until then. Its users and clients are restored with it, but must sign in and request tokens again.
    """
    record = organizations.delete_organization(context.actor, slug, expected_version=expected_version())
    return envelope(_to_json(context, record))


def _to_json(context: ApiContext, record: OrganizationRecord) -> dict[str, Any]:
    return Organization.to_json(record, issuer=record.issuer(context.organization.base_url))
