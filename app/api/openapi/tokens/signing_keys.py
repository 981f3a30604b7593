"""OpenAPI: signing keys of an organization."""

from __future__ import annotations

from app.api.openapi.common import KID
from app.api.openapi.parts import (
    Schema,
    closed,
    flag,
    listed,
    made,
    moment,
    nullable,
    operation,
    path_item,
    ref,
    request_object,
    shown,
    text,
)
from app.operations.grants.signing_keys import ALGORITHMS

_TAG = "Signing keys"
_STATES = ("next", "active", "retired")

SCHEMAS: Schema = {
    "SigningKey": closed(
        {
            "kid": KID,
            "algorithm": text(enum=list(ALGORITHMS)),
            "state": text(
                "`next` is published and will sign, `active` signs, `retired` only verifies.",
                enum=list(_STATES),
            ),
            "created_at": moment("Since when it is published."),
            "activated_at": nullable(moment("Since when it signs, or signed.")),
            "retired_at": nullable(moment("Since when it signs no more.")),
            "changes_at": moment(
                "The earliest moment of what comes next: it signs, its successor takes over, it is removed."
            ),
            "public_jwk": {
                "type": "object",
                "description": "The public half (RFC 7517), as the key set has it.",
            },
        }
    ),
    "KeyRotation": request_object(
        {
            "algorithm": nullable(text("The organization's own when left out.", enum=list(ALGORITHMS))),
            "emergency": nullable(
                flag(
                    "For a key that others may hold: a fresh one signs at once and every other of the "
                    "algorithm is gone. ID tokens and JWT access tokens that those signed verify no more."
                )
            ),
        }
    ),
}

PATHS: Schema = {
    "/organizations/{id}/signing-keys": path_item(
        ("OrganizationId",),
        get=operation(
            "listSigningKeys",
            "List the signing keys",
            tag=_TAG,
            scope="settings:read",
            description="Those that verifiers are given, newest first. They rotate by themselves.",
            answers=listed("The keys.", "SigningKey"),
        ),
    ),
    "/organizations/{id}/signing-keys/{kid}": path_item(
        ("OrganizationId", "Kid"),
        get=operation(
            "getSigningKey",
            "Read a signing key",
            tag=_TAG,
            scope="settings:read",
            answers=shown("The key.", "SigningKey", etag=True),
        ),
    ),
    "/organizations/{id}/signing-keys/rotations": path_item(
        ("OrganizationId",),
        post=operation(
            "rotateSigningKey",
            "Rotate a signing key before its time",
            tag=_TAG,
            scope="settings:write",
            description="The next key is published and signs by itself after a day; asked again then, at once. "
            "A person needs a recent sign-in for an emergency.",
            parameters=("IdempotencyKey",),
            body=ref("KeyRotation"),
            is_body_optional=True,
            answers=made("The successor.", "SigningKey"),
            extra=("409",),
        ),
    ),
}
