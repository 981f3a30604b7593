"""Active grants: who granted which client access; list, show, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Endpoints, show_page
from app.api.representations import (
    ClientId,
    ClientName,
    Count,
    CreatedAt,
    Representation,
    Slug,
    Source,
    UserEmail,
    UserId,
)
from app.operations.grants import grant_lists
from app.rules.shapes import PublicId, described
from app.web.bearer import ApiContext

endpoints = Endpoints("Grants", "tokens")


class Grant(Representation):
    """A user's grant to a client."""

    id: Annotated[str, PublicId("grt", "grant"), Source("public_id")]
    organization_id: Slug
    client_id: ClientId
    client_name: ClientName
    user_id: UserId
    user_email: UserEmail
    scopes: Annotated[list[str], described("The scopes that the tokens of the grant can have.")]
    resources: Annotated[
        list[str], described("The resources that its tokens are for. Empty if there are none.")
    ]
    created_at: CreatedAt
    expires_at: Annotated[datetime, described("When it expires, unless it is refreshed before.")]
    has_refresh_token: Annotated[
        bool, Source("is_refreshable"), described("Whether the client can get new tokens without the user.")
    ]
    refresh_count: Annotated[
        Count, Source("refreshes"), described("How often the client has refreshed its tokens.")
    ]
    revoked_at: Annotated[datetime | None, described("Only set in the response that revokes it.")]


@endpoints.page("/grants", returns=Grant, filters=grant_lists.FILTERS)
def list_grants(context: ApiContext) -> object:
    """List active grants.

    The newest first, without tokens.
    """
    return show_page(context, "grants", grant_lists.list_grants, filters=grant_lists.FILTERS)


@endpoints.get("/grants/<grant_id>", returns=Grant)
def get_grant(context: ApiContext, grant_id: str) -> object:
    """Get an active grant."""
    return grant_lists.get_grant(context.actor, grant_id)


@endpoints.delete("/grants/<grant_id>", scope="tokens:revoke", returns=Grant)
def revoke_grant(context: ApiContext, grant_id: str) -> object:
    """Revoke a grant.

    All of its tokens are revoked immediately. The user's consent remains.
    """
    return grant_lists.revoke_grant(context.actor, grant_id)
