"""Open invitations of an organization: list, show, withdraw."""

from __future__ import annotations

from flask import Response

from app.api.blueprint import api
from app.api.lists import listed
from app.api.organizations import invitation
from app.operations.users import invitations
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.json_api import envelope
from app.web.pagination import PARAMETERS


@api.get("/organizations/<slug>/invitations")
@management(*PARAMETERS, names_organization=False)
def list_invitations(call: Call, slug: str) -> Response:
    """Who is invited and has not come yet."""
    return listed(call, f"invitations {slug}", invitations.list_invitations, slug, show=invitation)


@api.get("/organizations/<slug>/invitations/<invitation_id>")
@management(names_organization=False)
def get_invitation(call: Call, slug: str, invitation_id: str) -> Response:
    """One open invitation."""
    view = invitations.get_invitation(call.actor, slug, invitation_id)
    return envelope(invitation(view), headers={"ETag": etag_of(view.version)})


@api.delete("/organizations/<slug>/invitations/<invitation_id>")
@management(names_organization=False)
def revoke_invitation(call: Call, slug: str, invitation_id: str) -> Response:
    """Its link works no longer."""
    view = invitations.revoke_invitation(call.actor, slug, invitation_id, expected_version=expected_version())
    return envelope(invitation(view))
