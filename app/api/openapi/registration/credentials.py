"""OpenAPI: the secrets of a client, as a ledger."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    count,
    flag,
    made,
    moment,
    nullable,
    operation,
    page,
    path_item,
    query_parameter,
    ref,
    request_object,
    shown,
    text,
)
from app.rules.clients.credentials import MAX_OVERLAP_SECONDS

_RECORD: dict[str, Schema] = {
    "id": public_id("sec"),
    "client_id": CLIENT_ID,
    "name": text(),
    "hint": text("The last four characters."),
    "status": text(enum=["active", "expiring", "expired", "revoked"]),
    "created_at": moment(),
    "created_by": nullable(text()),
    "expires_at": nullable(moment()),
    "revoked_at": nullable(moment()),
    "first_used_at": nullable(moment()),
    "last_used_at": nullable(moment("Sampled, about once a minute.")),
    "last_used_address": nullable(text()),
    "addresses": array(
        closed({"address": text(), "last_used_at": moment()}), "Where it was used from within 30 days."
    ),
    "live_tokens": count("Living tokens that it minted; 1000 means that or more."),
    "verdict": text("Whether it can go, in words."),
    "revealable": flag(),
    "revokes_tokens_at_end": flag("When its end comes, what it minted ends with it."),
}
_SECRET = {"client_secret": text("In clear. Keep it confidential.")}
_ANSWERED = closed(_RECORD | _SECRET, optional=_SECRET)
_RETIRED = array(ref("Credential"), "Those before it that now have an end.")

SCHEMAS: Schema = {
    "Credential": _ANSWERED,
    "CreatedCredential": closed(_RECORD | _SECRET | {"retired": _RETIRED}, optional=_SECRET),
    "NewCredential": request_object(
        {
            "name": nullable(text(minLength=1, maxLength=100)),
            "expires_at": nullable(text("RFC 3339, with its zone.", minLength=1)),
            "retire_others_in_seconds": nullable(
                {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MAX_OVERLAP_SECONDS,
                    "description": "When the secrets before it end.",
                }
            ),
        }
    ),
    "RevokedCredentials": closed(
        {
            "client_id": CLIENT_ID,
            "credential_id": nullable(public_id("sec")),
            "revoked": closed({"credentials": count(), "tokens": count("1000 means or more.")}),
        }
    ),
}
_REVOKE_TOKENS = query_parameter(
    "revoke_tokens", {"type": "boolean", "default": False}, "Also every token that was minted with them."
)
_ONE = query_parameter("credential_id", text(minLength=1), "One secret in place of all.")
_REVEAL = query_parameter(
    "reveal", {"type": "boolean", "default": False}, "With the secrets in clear; audited and limited."
)

MADE = made("The new secret.", "CreatedCredential")
_ENDED = shown("How many ended.", "RevokedCredentials")

PATHS: Schema = {
    "/clients/{clientId}/credentials": path_item(
        ("ClientId", "Acting"),
        get=operation(
            "listCredentials",
            "Retrieve the credentials of a client application",
            tag="Credentials",
            scope="credentials:read",
            description="The newest 50, ended ones included.",
            query=(_REVEAL,),
            answers={"200": answer("The ledger.", page(ref("Credential")), headers=("ETag",))},
            extra=("409",),
        ),
        post=operation(
            "createCredential",
            "Generate new credentials for a client application",
            tag="Credentials",
            scope="credentials:write",
            parameters=("IdempotencyKey",),
            body=ref("NewCredential"),
            is_body_optional=True,
            answers=MADE,
            extra=("409",),
        ),
        delete=operation(
            "revokeCredentials",
            "Revoke the credentials of a client application",
            tag="Credentials",
            scope="credentials:write",
            description="If-Match names the ledger's version, or with `credential_id` the secret's.",
            parameters=("IfMatch",),
            query=(_ONE, _REVOKE_TOKENS),
            answers=_ENDED,
            extra=("409",),
        ),
    ),
    "/clients/{clientId}/credentials/{credentialId}": path_item(
        ("ClientId", "CredentialId", "Acting"),
        get=operation(
            "getCredential",
            "Read one secret's entry",
            tag="Credentials",
            scope="credentials:read",
            query=(_REVEAL,),
            answers=shown("The entry.", "Credential", etag=True),
            extra=("409",),
        ),
        delete=operation(
            "revokeCredential",
            "Revoke one secret",
            tag="Credentials",
            scope="credentials:write",
            parameters=("IfMatch",),
            query=(_REVOKE_TOKENS,),
            answers=_ENDED,
            extra=("409",),
        ),
    ),
}
