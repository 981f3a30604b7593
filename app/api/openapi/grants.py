"""OpenAPI: living grants."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    closed,
    moment,
    nullable,
    operation,
    page,
    path_item,
    query_parameter,
    ref,
    success,
    text,
)

_TAG = "Grants"
_WORDS: Schema = {"type": "array", "items": text()}

SCHEMAS: Schema = {
    "Grant": closed(
        {
            "id": public_id("grt"),
            "organization_id": SLUG,
            "client_id": CLIENT_ID,
            "client_name": text(),
            "user_id": public_id("usr"),
            "user_email": text(),
            "scopes": _WORDS,
            "resources": _WORDS,
            "created_at": moment(),
            "expires_at": moment("When it ends at the latest, unless it is refreshed before."),
            "refreshable": {"type": "boolean", "description": "It has a refresh token."},
            "refreshes": {"type": "integer", "minimum": 0},
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
            answers={"200": answer("A page.", page(ref("Grant")))},
            extra=("404",),
        ),
    ),
    "/grants/{grantId}": path_item(
        ("GrantId", "Acting"),
        get=operation(
            "getGrant",
            "Show a living grant",
            tag=_TAG,
            scope="tokens:read",
            answers={"200": answer("Who allowed whom what.", success(ref("Grant")))},
            extra=("404",),
        ),
        delete=operation(
            "revokeGrant",
            "Revoke a grant",
            tag=_TAG,
            scope="tokens:revoke",
            description="Every token under it is dead when the answer comes. The user's consent stays.",
            answers={"200": answer("As it ended.", success(ref("Grant")))},
            extra=("404",),
        ),
    ),
}
