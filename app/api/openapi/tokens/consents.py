"""Consents in the OpenAPI document."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    array,
    closed,
    count,
    listed,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    shown,
    text,
)

_TAG = "Consents"

SCHEMAS: Schema = {
    "Consent": closed(
        {
            "id": public_id("con"),
            "organization_id": SLUG,
            "client_id": CLIENT_ID,
            "client_name": text(),
            "user_id": public_id("usr"),
            "user_email": text(),
            "scopes": array(text()),
            "created_at": moment(),
            "updated_at": moment("When it was given last."),
            "expires_at": nullable(
                moment("When it ends, with all that hangs from it; null: once it is removed.")
            ),
            "last_used_at": nullable(moment()),
        }
    ),
    "WithdrawnConsent": closed(
        {
            "id": public_id("con"),
            "withdrawn": {"const": True},
            "ended_grants": count(),
        }
    ),
}
PATHS: Schema = {
    "/consents": path_item(
        (),
        get=operation(
            "listConsents",
            "List consents",
            tag=_TAG,
            scope="consents:read",
            description="What users allowed clients and did not take back, the newest first. One that ended is there "
            "as long as its client has a living grant. Clients that nobody is asked about have none: see the grants.",
            parameters=("Limit", "Cursor", "Acting"),
            query=(
                query_parameter("client_id", CLIENT_ID, "For this client."),
                query_parameter("user_id", public_id("usr"), "Of this user."),
            ),
            answers=listed("A page.", "Consent"),
        ),
    ),
    "/consents/{consentId}": path_item(
        ("ConsentId", "Acting"),
        get=operation(
            "getConsent",
            "Show a consent",
            tag=_TAG,
            scope="consents:read",
            answers=shown("Who allowed whom what.", "Consent"),
        ),
        delete=operation(
            "withdrawConsent",
            "Withdraw a consent",
            tag=_TAG,
            scope="consents:write",
            description="The user's grants and tokens at the client are dead when the answer comes; it may ask again.",
            answers=shown("What ended.", "WithdrawnConsent"),
        ),
    ),
}
