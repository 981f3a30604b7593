"""Organizations: list, create, show, update, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from app.api.endpoints import Body, Endpoints, Shown, show_page
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
from app.operations.organizations.organizations import FILTERS, LISTED_STATUSES, OrganizationRecord
from app.rules.organizations.organizations import NewOrganization, OrganizationChange
from app.rules.shapes import OneOf, described
from app.web.bearer import ApiContext
from app.web.json_api import expected_version

endpoints = Endpoints("Organizations", "organization")


class Organization(Representation):
    """An organization."""

    id: Annotated[Slug, Source("slug")]
    name: Annotated[str, described("The display name.")]
    status: Annotated[
        str, OneOf(LISTED_STATUSES), described("Tokens of a suspended or deleted organization are rejected.")
    ]
    issuer: Annotated[Url, described("The issuer of its tokens (RFC 8414).")]
    is_root: Annotated[bool, described("Whether it is the root organization, which manages the others.")]
    created_at: CreatedAt
    created_by: CreatedBy
    updated_at: UpdatedAt
    purge_at: Annotated[
        datetime | None, described("When the data of a deleted organization is permanently deleted.")
    ]

    @classmethod
    def shown_in(cls, context: ApiContext, record: OrganizationRecord, **values: Any) -> dict[str, Any]:
        """Return the organization with its issuer."""
        issuer = record.issuer(context.organization.base_url)
        return super().shown_in(context, record, issuer=issuer, **values)


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


@endpoints.page(
    "/organizations",
    returns=Organization,
    names_organization=False,
    search="Part of an ID or a name.",
    filters=FILTERS,
)
def list_organizations(context: ApiContext) -> object:
    """List organizations.

    Root, with `organizations:read`, sees every organization. Others see only their own.
    """
    return show_page(context, "organizations", organizations.list_organizations, filters=FILTERS)


@endpoints.post(
    "/organizations",
    scope="organizations:write",
    body=NewOrganization,
    returns=CreatedOrganization,
    names_organization=False,
)
def create_organization(context: ApiContext, body: Body) -> object:
    """Create an organization.

    Only root can create organizations. `limits` in the settings need `instance:write` as well. A user needs a recent
    sign-in (RFC 9470) to send `admin`.
    """
    new = organizations.create_organization(context.actor, body)
    invitation = None
    if new.invitation is not None:
        link = {} if new.invitation.link is None else {"link": new.invitation.link}
        invitation = CreatedInvitation.to_json(new.invitation.invitation, **link)
    return Shown(new.organization, {"invitation": invitation})


@endpoints.get("/organizations/<slug>", returns=Organization)
def get_organization(context: ApiContext, slug: str) -> object:
    """Get an organization."""
    return organizations.get_organization(context.actor, slug)


@endpoints.put("/organizations/<slug>", body=OrganizationChange, returns=Organization)
def update_organization(context: ApiContext, body: Body, slug: str) -> object:
    """Update an organization.

    Only root can change `status`, with `organizations:write`.
    """
    return organizations.update_organization(context.actor, slug, body, expected_version=expected_version())


@endpoints.delete("/organizations/<slug>", scope="organization:delete", returns=Organization, if_match=True)
def delete_organization(context: ApiContext, slug: str) -> object:
    """Delete an organization.

    Everything stops working immediately. Its administrators are notified by email, but clients receive no logout
    notification. The data is permanently deleted at `purge_at`, and root can restore the organization until then. Its
    users and clients are restored with it, but must sign in and request tokens again.
    """
    return organizations.delete_organization(context.actor, slug, expected_version=expected_version())
