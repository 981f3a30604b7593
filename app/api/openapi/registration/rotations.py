"""OpenAPI: rotation of a client's secret."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID
from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    flag,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    request_object,
    shown,
    success,
    text,
)
from app.api.openapi.registration.credentials import MADE
from app.rules.clients.credentials import MAX_OVERLAP_SECONDS

_TAG = "Credentials"
_ENDS: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_OVERLAP_SECONDS}
_TAKES = nullable(flag("What the old secrets minted ends with them, refresh tokens included."))

SCHEMAS: Schema = {
    "Rotation": closed(
        {
            "client_id": CLIENT_ID,
            "under_way": flag(),
            "started_at": nullable(moment()),
            "ends_at": nullable(moment("When the first of the old secrets ends.")),
            "safe_to_end": flag("The new secret is in use and the old ones are not."),
            "verdict": nullable(text("Why, in words.")),
            "new": {"anyOf": [ref("Credential"), {"type": "null"}]},
            "old": array(ref("Credential")),
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
            answers=shown("What it has come to.", "Rotation"),
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
            extra=("409",),
        ),
        put=operation(
            "steerRotation",
            "Extend, shorten or finish a rotation",
            tag=_TAG,
            scope="credentials:write",
            body=ref("RotationChange"),
            answers=shown("What it has come to.", "Rotation"),
            extra=("409",),
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
            answers={"200": answer("The live secrets.", success(array(ref("Credential"))))},
            extra=("409",),
        ),
    ),
}
