"""OpenAPI: living access tokens."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    array,
    closed,
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

_TAG = "Tokens"

SCHEMAS: Schema = {
    "Token": closed(
        {
            "id": public_id("tok"),
            "organization_id": SLUG,
            "kind": {
                "enum": ["user", "client"],
                "description": "For whom it speaks: a user, or the client itself.",
            },
            "client_id": CLIENT_ID,
            "client_name": text(),
            "user_id": nullable(public_id("usr")),
            "user_email": nullable(text()),
            "grant_id": nullable(public_id("grt")),
            "credential_id": nullable(public_id("sec")),
            "scopes": array(text()),
            "audience": array(text()),
            "dpop_bound": flag("It needs a proof of its key (RFC 9449)."),
            "exchanged_for": nullable(public_id("tok")),
            "issued_at": moment(),
            "expires_at": moment(),
            "revoked_at": nullable(moment("In the answer that ends it.")),
        }
    ),
}
PATHS: Schema = {
    "/tokens": path_item(
        (),
        get=operation(
            "listTokens",
            "List living access tokens",
            tag=_TAG,
            scope="tokens:read",
            description="Whose they are and what for, the newest first; never a token. Refresh tokens are grants.",
            parameters=("Limit", "Cursor", "Acting"),
            query=(
                query_parameter("client_id", CLIENT_ID, "Of this client."),
                query_parameter("user_id", public_id("usr"), "Of this user."),
                query_parameter("credential_id", public_id("sec"), "Minted with this secret."),
            ),
            answers=listed("A page.", "Token"),
        ),
    ),
    "/tokens/{tokenId}": path_item(
        ("TokenId", "Acting"),
        get=operation(
            "getToken",
            "Show a living access token",
            tag=_TAG,
            scope="tokens:read",
            answers=shown("Whose it is and what for.", "Token"),
        ),
        delete=operation(
            "endToken",
            "End an access token",
            tag=_TAG,
            scope="tokens:revoke",
            description="It is dead when the answer comes, with what was exchanged for it. Its grant goes on.",
            answers=shown("As it ended.", "Token"),
        ),
    ),
}
