"""Who am I: the subject of the token, and what it may do."""

from __future__ import annotations

from flask import Response

from app.api.blueprint import api
from app.operations.store.audit import actor_public_id
from app.web.bearer import Call, management
from app.web.json_api import envelope


@api.get("/me")
@management(names_organization=False)
def get_me(call: Call) -> Response:
    """The token's subject and its permissions now."""
    actor = call.actor
    return envelope(
        {
            "kind": actor.kind,
            "id": actor_public_id(actor),
            "name": actor.label,
            "organization_id": call.organization.slug,
            "is_root": actor.is_root,
            "permissions": sorted(actor.permissions),
        }
    )
