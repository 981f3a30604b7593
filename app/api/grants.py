"""Living grants: who allowed which client what; list, show, revoke."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.api.lists import filters_of, listed
from app.api.representations import time
from app.operations.grants import grant_lists
from app.operations.grants.grant_lists import FILTERS, GrantRecord
from app.web.bearer import Call, management
from app.web.json_api import envelope
from app.web.pagination import PARAMETERS


@api.get("/grants")
@management(*PARAMETERS, *FILTERS)
def list_grants(call: Call) -> Response:
    """The living grants that the caller may see, the newest first."""
    return listed(
        call,
        "grants",
        grant_lists.list_grants,
        show=lambda record: grant(record, call),
        filters=filters_of(call, FILTERS),
    )


@api.get("/grants/<grant_id>")
@management()
def get_grant(call: Call, grant_id: str) -> Response:
    """One living grant."""
    return envelope(grant(grant_lists.get_grant(call.actor, grant_id), call))


@api.delete("/grants/<grant_id>")
@management()
def revoke_grant(call: Call, grant_id: str) -> Response:
    """The grant and every token under it are over."""
    return envelope(grant(grant_lists.revoke_grant(call.actor, grant_id), call))


def grant(record: GrantRecord, call: Call) -> dict[str, Any]:
    """A grant as the API shows it."""
    return {
        "id": record.public_id,
        "organization_id": call.organization.slug,
        "client_id": record.client_id,
        "client_name": record.client_name,
        "user_id": record.user_id,
        "user_email": record.user_email,
        "scopes": list(record.scopes),
        "resources": list(record.resources),
        "created_at": time(record.created_at),
        "expires_at": time(record.expires_at),
        "refreshable": record.is_refreshable,
        "refreshes": record.refreshes,
        "revoked_at": time(record.revoked_at),
    }
