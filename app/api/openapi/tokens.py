"""OpenAPI: living access tokens."""

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

_TAG = "Tokens"
_WORDS: Schema = {"type": "array", "items": text()}

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
            "scopes": _WORDS,
            "audience": _WORDS,
            "dpop_bound": {"type": "boolean", "description": "It needs a proof of its key (RFC 9449)."},
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
            answers={"200": answer("A page.", page(ref("Token")))},
            extra=("404",),
        ),
    ),
    "/tokens/{tokenId}": path_item(
        ("TokenId", "Acting"),
        get=operation(
            "getToken",
            "Show a living access token",
            tag=_TAG,
            scope="tokens:read",
            answers={"200": answer("Whose it is and what for.", success(ref("Token")))},
            extra=("404",),
        ),
        delete=operation(
            "endToken",
            "End an access token",
            tag=_TAG,
            scope="tokens:revoke",
            description="It is dead when the answer comes, with what was exchanged for it. Its grant goes on.",
            answers={"200": answer("As it ended.", success(ref("Token")))},
            extra=("404",),
        ),
    ),
}
