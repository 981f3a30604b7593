"""OpenAPI: living grants."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    array,
    closed,
    count,
    flag,
    listed,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    shown,
    text,
)

_TAG = "Grants"

SCHEMAS: Schema = {
    "Grant": closed(
        {
            "id": public_id("grt"),
            "organization_id": SLUG,
            "client_id": CLIENT_ID,
            "client_name": text(),
            "user_id": public_id("usr"),
            "user_email": text(),
            "scopes": array(text()),
            "resources": array(text()),
            "created_at": moment(),
            "expires_at": moment("When it ends at the latest, unless it is refreshed before."),
            "refreshable": flag("It has a refresh token."),
            "refreshes": count(),
            "revoked_at": nullable(moment("In the answer that revokes it.")),
        }
    ),
}
PATHS: Schema = {
    "/grants": path_item(
        (),
        get=operation(
            "listGrants",
            "List living grants",
            tag=_TAG,
            scope="tokens:read",
            description="What users allowed clients and what tokens hang from, the newest first; never a token.",
            parameters=("Limit", "Cursor", "Acting"),
            query=(
                query_parameter("client_id", CLIENT_ID, "Of this client."),
                query_parameter("user_id", public_id("usr"), "Of this user."),
            ),
            answers=listed("A page.", "Grant"),
        ),
    ),
    "/grants/{grantId}": path_item(
        ("GrantId", "Acting"),
        get=operation(
            "getGrant",
            "Show a living grant",
            tag=_TAG,
            scope="tokens:read",
            answers=shown("Who allowed whom what.", "Grant"),
        ),
        delete=operation(
            "revokeGrant",
            "Revoke a grant",
            tag=_TAG,
            scope="tokens:revoke",
            description="Every token under it is dead when the answer comes. The user's consent stays.",
            answers=shown("As it ended.", "Grant"),
        ),
    ),
}
