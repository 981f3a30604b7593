"""OpenAPI: revocation as the specification fixes it, who am I, this document, and health."""

from __future__ import annotations

from app.api.openapi.common import SLUG
from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    flag,
    json_content,
    operation,
    path_item,
    ref,
    request_object,
    shown,
    text,
)

SCHEMAS: Schema = {
    "Revoke": request_object(
        {
            "organization_id": text("The caller's organization.", minLength=1),
            "token_type": text(
                "Where to look first; both kinds are searched.", enum=["refresh_token", "access_token"]
            ),
            "token": text("The token to revoke.", minLength=1),
        },
        required=("organization_id", "token_type", "token"),
    ),
    "Revoked": closed({"success": {"const": True}, "data": {"const": "Token revoked"}}),
    "Me": closed(
        {
            "kind": text(enum=["user", "client"]),
            "id": text("`usr_…` or `cli_…`."),
            "name": text("The e-mail address, or the client's name."),
            "organization_id": SLUG,
            "is_root": flag(),
            "permissions": array(text(), "What this token may do now."),
        }
    ),
    "Health": closed({"success": {"const": True}, "data": text()}),
}


def _health(identifier: str, summary: str, **more: Schema) -> Schema:
    return {
        "operationId": identifier,
        "summary": summary,
        "tags": ["Service"],
        "security": [{}],
        "responses": {
            "200": {"description": "Yes.", "content": json_content(ref("Health"))},
            "405": {"$ref": "#/components/responses/MethodNotAllowed"},
            **more,
        },
    }


PATHS: Schema = {
    "/api/v1/revoke": path_item(
        (),
        post=operation(
            "revokeToken",
            "Revoke a token",
            tag="Tokens",
            scope="tokens:revoke",
            description="200 means that this organization never accepts the string again, unknown ones included. "
            "A refresh token takes its family with it. A client may authenticate itself in place of a token, to "
            "revoke tokens of its own: by HTTP Basic with its client_id and secret, also when it is registered "
            "for client_secret_post, since this body has three fields and no more; a public client sends an "
            "empty secret.",
            body=ref("Revoke"),
            answers={"200": answer("The token is dead.", ref("Revoked"))},
            security=[{"bearer": ["tokens:revoke"]}, {"client": []}],
            is_always_there=True,
        ),
    ),
    "/me": path_item(
        (),
        get=operation(
            "getMe",
            "Who am I",
            tag="Service",
            scope=None,
            description="Any token for the management API.",
            answers=shown("The token's subject, and what it may do.", "Me"),
            is_always_there=True,
        ),
    ),
    "/openapi.json": path_item(
        (),
        get={
            "operationId": "getOpenApi",
            "summary": "This document",
            "tags": ["Service"],
            "security": [{}],
            "responses": {
                "200": {"description": "OpenAPI 3.1.", "content": json_content({"type": "object"})},
                "405": {"$ref": "#/components/responses/MethodNotAllowed"},
                "500": {"$ref": "#/components/responses/InternalServerError"},
            },
        },
    ),
    "/healthz": path_item((), get=_health("getHealth", "Whether the process lives")),
    "/readyz": path_item(
        (),
        get=_health(
            "getReadiness",
            "Whether requests can be served",
            **{"503": {"$ref": "#/components/responses/ServiceUnavailable"}},
        ),
    ),
}
