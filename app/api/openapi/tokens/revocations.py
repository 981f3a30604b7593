"""OpenAPI: wider revocations and their receipts."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    created,
    flag,
    listed,
    moment,
    nullable,
    operation,
    path_item,
    ref,
    request_object,
    shown,
    text,
)
from app.operations.tokens.revocation_subjects import CEILING, COUNTED
from app.rules.tokens.revocation import LONGEST_REASON

_TAG = "Revocations"
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": CEILING}
_EVERYTHING: Schema = {"type": "boolean", "const": True, "description": "Everything of the organization."}
_SELECTORS: Schema = {
    "grant_id": public_id("grt"),
    "client_id": CLIENT_ID,
    "credential_id": public_id("sec") | {"description": "What a client secret minted; the secret stays."},
    "user_id": public_id("usr"),
    "session_id": public_id("ses"),
    "all": _EVERYTHING,
}
_WARNINGS: Schema = array(text(), "Such as that the caller's own token is dead.")

SCHEMAS: Schema = {
    "Revocation": closed(
        {
            "id": nullable(public_id("rev") | {"description": "null for a dry run."}),
            "organization_id": SLUG,
            "selection": closed(_SELECTORS, optional=tuple(_SELECTORS), minProperties=1, maxProperties=1),
            "issued_before": moment("What was issued before is dead, and whatever hangs from it."),
            "sessions": flag("Sign-ins ended, too."),
            "reason": nullable(text()),
            "counts": closed(
                dict.fromkeys(COUNTED, _COUNT),
                description=f"What was alive; each stops at {CEILING:,}, which then means `or more`.",
            ),
            "created_at": moment(),
            "created_by": nullable(text()),
            "created_by_id": nullable(text("`usr_…` or `cli_…`.")),
        }
    ),
    "NewRevocation": request_object(
        {
            **{name: nullable(schema) for name, schema in _SELECTORS.items()},
            "issued_before": nullable(moment("Not in the future. Now, when left out.")),
            "sessions": nullable(
                flag(
                    "End sign-ins, too; needs `users:write`. True for a user or sign-in when left out, "
                    "false for the organization."
                )
            ),
            "reason": nullable(text("Kept on the receipt.", minLength=1, maxLength=LONGEST_REASON)),
            "dry_run": nullable(flag("Count and change nothing.")),
        },
        description="Exactly one of `grant_id`, `client_id`, `credential_id`, `user_id`, `session_id` and `all`.",
    ),
}
PATHS: Schema = {
    "/organizations/{id}/revocations": path_item(
        ("OrganizationId",),
        get=operation(
            "listRevocations",
            "List wider revocations",
            tag=_TAG,
            scope="tokens:read",
            description="Their receipts, the newest first.",
            parameters=("Limit", "Cursor"),
            answers=listed("A page.", "Revocation"),
        ),
        post=operation(
            "revokeTokens",
            "Revoke widely",
            tag=_TAG,
            scope="tokens:revoke",
            description="Every token, code and refresh token that is selected and was issued before the moment is "
            "refused everywhere within a second; what users allowed stays, so apps may ask again. A person needs a "
            "recent sign-in for `all`. The cost does not grow with the number of tokens.",
            parameters=("IdempotencyKey",),
            body=ref("NewRevocation"),
            answers={
                "200": answer("What a dry run counted.", created(ref("Revocation"), warnings=_WARNINGS)),
                "201": answer(
                    "The receipt.", created(ref("Revocation"), warnings=_WARNINGS), headers=("Location",)
                ),
            },
        ),
    ),
    "/organizations/{id}/revocations/{revocationId}": path_item(
        ("OrganizationId", "RevocationId"),
        get=operation(
            "getRevocation",
            "Show a wider revocation",
            tag=_TAG,
            scope="tokens:read",
            answers=shown("The receipt.", "Revocation"),
        ),
    ),
}
