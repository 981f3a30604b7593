"""OpenAPI: rotation of a client's secret."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID
from app.api.openapi.credentials import MADE
from app.api.openapi.parts import (
    Schema,
    answer,
    closed,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    request_object,
    success,
    text,
)
from app.rules.registration.credential_terms import LONGEST_OVERLAP_SECONDS

_TAG = "Credentials"
_ENDS: Schema = {"type": "integer", "minimum": 0, "maximum": LONGEST_OVERLAP_SECONDS}
_TAKES = nullable(
    {"type": "boolean", "description": "What the old secrets minted ends with them, refresh tokens included."}
)

SCHEMAS: Schema = {
    "Rotation": closed(
        {
            "client_id": CLIENT_ID,
            "under_way": {"type": "boolean"},
            "started_at": nullable(moment()),
            "ends_at": nullable(moment("When the first of the old secrets ends.")),
            "safe_to_end": {
                "type": "boolean",
                "description": "The new secret is in use and the old ones are not.",
            },
            "verdict": nullable(text("Why, in words.")),
            "new": {"anyOf": [ref("Credential"), {"type": "null"}]},
            "old": {"type": "array", "items": ref("Credential")},
        }
    ),
    "NewRotation": request_object(
        {
            "ends_in_seconds": nullable(_ENDS | {"description": "The organization's overlap when left out."}),
            "revoke_tokens": _TAKES,
        }
    ),
    "RotationChange": request_object(
        {
            "ends_in_seconds": nullable(_ENDS | {"description": "From now; 0 ends the old secrets at once."}),
            "revoke_tokens": _TAKES,
        }
    ),
}
PATHS: Schema = {
    "/clients/{clientId}/credentials/rotation": path_item(
        ("ClientId", "Acting"),
        get=operation(
            "getRotation",
            "Follow a rotation",
            tag=_TAG,
            scope="credentials:read",
            description="From real use: whether the new secret is deployed everywhere.",
            answers={"200": answer("What it has come to.", success(ref("Rotation")))},
            extra=("404",),
        ),
        post=operation(
            "rotateCredential",
            "Rotate the secret of a client application",
            tag=_TAG,
            scope="credentials:write",
            description="A new secret, and an end for those before it once the overlap has passed.",
            parameters=("IdempotencyKey",),
            body=ref("NewRotation"),
            is_body_optional=True,
            answers=MADE,
            extra=("404", "409"),
        ),
        put=operation(
            "steerRotation",
            "Extend, shorten or finish a rotation",
            tag=_TAG,
            scope="credentials:write",
            body=ref("RotationChange"),
            answers={"200": answer("What it has come to.", success(ref("Rotation")))},
            extra=("404", "409"),
        ),
        delete=operation(
            "cancelRotation",
            "Cancel a rotation",
            tag=_TAG,
            scope="credentials:write",
            description="The secrets that were about to end keep working.",
            query=(
                query_parameter(
                    "revoke_new", {"type": "boolean", "default": False}, "The new secret works no more."
                ),
            ),
            answers={
                "200": answer("The live secrets.", success({"type": "array", "items": ref("Credential")}))
            },
            extra=("404", "409"),
        ),
    ),
}
