"""Open invitations of an organization: list, show, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from flask import Response

from app.api.endpoints import PAGE, Endpoints, list_response
from app.api.representations import Representation, Slug, Source
from app.operations.users import invitations
from app.rules.shapes import PublicId
from app.web.bearer import ApiContext
from app.web.etag import etag_of, expected_version
from app.web.json_api import envelope

endpoints = Endpoints("Administrators")


class Invitation(Representation):
    """An invitation to an organization."""

    id: Annotated[str, PublicId("inv", "invitation"), Source("public_id")]
    organization_id: Annotated[Slug, Source("organization_slug")]
    email: str
    name: str
    role: str
    created_at: datetime
    created_by: str | None
    expires_at: datetime


@endpoints.get(
    "/organizations/<slug>/invitations", scope="admins:read", returns=Invitation, is_page=True, query=PAGE
)
def list_invitations(context: ApiContext, slug: str) -> Response:
    """List the open invitations."""
    read = invitations.list_invitations
    return list_response(context, f"invitations {slug}", read, slug, show=Invitation.to_json)


@endpoints.get(
    "/organizations/<slug>/invitations/<invitation_id>", scope="admins:read", returns=Invitation, etag=True
)
def get_invitation(context: ApiContext, slug: str, invitation_id: str) -> Response:
    """Get an open invitation."""
    view = invitations.get_invitation(context.actor, slug, invitation_id)
    return envelope(Invitation.to_json(view), headers={"ETag": etag_of(view.version)})


@endpoints.delete(
    "/organizations/<slug>/invitations/<invitation_id>",
    scope="admins:write",
    returns=Invitation,
    if_match=True,
)
def revoke_invitation(context: ApiContext, slug: str, invitation_id: str) -> Response:
    """Revoke an invitation."""
    view = invitations.revoke_invitation(
        context.actor, slug, invitation_id, expected_version=expected_version()
    )
    return envelope(Invitation.to_json(view))
