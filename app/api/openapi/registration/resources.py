"""OpenAPI: resources (APIs) and the registry of scopes."""

from __future__ import annotations

from app.api.openapi.common import SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    array,
    changed,
    closed,
    count,
    flag,
    json_content,
    listed,
    made,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    request_object,
    shown,
    text,
)
from app.rules.clients.resource_fields import (
    LEAST_SECONDS,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_TITLE,
    MOST_SCOPES,
    MOST_SECONDS,
    STATUS,
    TOKEN_FORMATS,
)
from app.rules.clients.resource_indicators import MAX_IDENTIFIER_LENGTH

_TITLE = nullable(
    text("Verb and object in the user's words; null wants words.", minLength=1, maxLength=LONGEST_TITLE)
)
_WORDS = nullable(text("What it means for the user.", minLength=1, maxLength=LONGEST_DESCRIPTION))
_SCOPE_NAME = text(minLength=1, maxLength=128)
_IDENTIFIER = text(
    "The resource indicator (RFC 8707) and audience of its tokens; it stays.",
    minLength=1,
    maxLength=MAX_IDENTIFIER_LENGTH,
)
_FIELDS: dict[str, Schema] = {
    "name": text("For people; consent shows it.", minLength=1, maxLength=LONGEST_NAME),
    "description": text(maxLength=LONGEST_DESCRIPTION),
    "access_token_format": nullable(
        text("As the client or organization chooses when null.", enum=list(TOKEN_FORMATS))
    ),
    "access_token_ttl_seconds": nullable(
        {
            "type": "integer",
            "minimum": LEAST_SECONDS,
            "maximum": MOST_SECONDS,
            "description": "The organization's when null; a JWT lives 3600 seconds at most.",
        }
    ),
    "status": text("Nobody gets tokens for a disabled one.", enum=list(STATUS)),
}
_NULLABLE = {name: schema if name == "name" else nullable(schema) for name, schema in _FIELDS.items()}
_SENT_SCOPES = nullable(
    {
        "type": "array",
        "maxItems": MOST_SCOPES,
        "description": "All its scopes; one that is left out is gone.",
        "items": request_object(
            {"name": _SCOPE_NAME, "title": _TITLE, "description": _WORDS}, required=("name",)
        ),
    }
)
_SCOPES: Schema = array(closed({"name": _SCOPE_NAME, "title": _TITLE, "description": _WORDS}))
_CONFIRMED = query_parameter(
    "confirmed",
    text(enum=["true", "false"], default="false"),
    "Take what goes from clients that hold it, too; without it 409 `in_use` tells how many do.",
)
_WARNINGS = {"warnings": array(text(), "Scopes that want words for the consent page; nothing was refused.")}

SCHEMAS: Schema = {
    "Resource": closed(
        {
            "id": public_id("res"),
            "organization_id": SLUG,
            "identifier": _IDENTIFIER,
            **_FIELDS,
            "scopes": _SCOPES,
            "created_at": moment(),
            "created_by": nullable(text()),
            "updated_at": moment(),
        }
    ),
    "NewResource": request_object(
        {"identifier": _IDENTIFIER, **_NULLABLE, "scopes": _SENT_SCOPES}, required=("identifier", "name")
    ),
    "ResourceChange": request_object(
        {"identifier": _IDENTIFIER | {"description": "May repeat the one it has."}, **_NULLABLE}
        | {"scopes": _SENT_SCOPES}
    ),
    "DeletedResource": closed(
        {
            "id": public_id("res"),
            "deleted": {"const": True},
            "removed": closed({"scopes": count(), "clients": count()}),
        }
    ),
    "ResourceMetadata": closed(
        {
            "document": {"type": "object", "description": "What the resource serves about itself."},
            "address": nullable(text("Where it serves that; null for an identifier that is no address.")),
            "www_authenticate": nullable(text("The header of its 401.")),
        }
    ),
    "Scope": closed(
        {
            "name": _SCOPE_NAME,
            "title": _TITLE,
            "description": _WORDS,
            "is_identity": flag("OpenID Connect's own."),
            "resource_id": nullable(text("`res_…`; null for a scope of no one resource.")),
        }
    ),
    "ScopeWords": request_object({"title": _TITLE, "description": _WORDS}),
}

PATHS: Schema = {
    "/.well-known/oauth-protected-resource/management": path_item(
        (),
        get={
            "operationId": "managementApiMetadata",
            "summary": "The management API as a protected resource (RFC 9728)",
            "tags": ["Metadata"],
            "security": [{}],
            "responses": {
                "200": {
                    "description": "Its scopes, and where tokens for it are had.",
                    "content": json_content({"type": "object"}),
                },
                "404": {"$ref": "#/components/responses/NotFound"},
                "405": {"$ref": "#/components/responses/MethodNotAllowed"},
                "500": {"$ref": "#/components/responses/InternalServerError"},
            },
        },
    ),
    "/resources": path_item(
        (),
        get=operation(
            "listResources",
            "List resources (APIs)",
            tag="Resources",
            scope="resources:read",
            parameters=("Limit", "Cursor", "Acting"),
            query=(
                query_parameter(
                    "q", text(minLength=1, maxLength=1000), "A part of the name or the identifier."
                ),
                query_parameter("status", text(enum=list(STATUS)), "Those of one status."),
                query_parameter("sort", text(enum=["name", "-name"], default="name"), "Order."),
            ),
            answers=listed("A page of resources.", "Resource"),
        ),
        post=operation(
            "defineResource",
            "Define a resource (API) with its scopes",
            tag="Resources",
            scope="resources:write",
            parameters=("IdempotencyKey", "Acting"),
            body=ref("NewResource"),
            answers=made("The resource.", "Resource", **_WARNINGS),
        ),
    ),
    "/resources/{resourceId}": path_item(
        ("ResourceId", "Acting"),
        get=operation(
            "getResource",
            "Read a resource",
            tag="Resources",
            scope="resources:read",
            answers=shown("The resource.", "Resource", etag=True),
        ),
        put=operation(
            "updateResource",
            "Change a resource",
            tag="Resources",
            scope="resources:write",
            parameters=("IfMatch",),
            query=(_CONFIRMED,),
            body=ref("ResourceChange"),
            answers=changed("The resource.", "Resource", **_WARNINGS),
            extra=("409",),
        ),
        delete=operation(
            "deleteResource",
            "Delete a resource and its scopes",
            tag="Resources",
            scope="resources:write",
            description="No client gets a token for it from then on; those it has end by themselves.",
            parameters=("IfMatch",),
            query=(_CONFIRMED,),
            answers=shown("What went with it.", "DeletedResource"),
            extra=("409",),
        ),
    ),
    "/resources/{resourceId}/metadata": path_item(
        ("ResourceId", "Acting"),
        get=operation(
            "getResourceMetadata",
            "What a resource should serve about itself (RFC 9728)",
            tag="Resources",
            scope="resources:read",
            answers=shown("Document, address and header.", "ResourceMetadata"),
        ),
    ),
    "/scopes": path_item(
        (),
        get=operation(
            "listScopes",
            "List the scopes that the organization knows",
            tag="Resources",
            scope="resources:read",
            parameters=("Limit", "Cursor", "Acting"),
            query=(query_parameter("q", text(minLength=1, maxLength=1000), "A part of the name."),),
            answers=listed("A page of scopes.", "Scope"),
        ),
    ),
    "/scopes/{scopeName}": path_item(
        ("ScopeName", "Acting"),
        get=operation(
            "getScope",
            "Read a scope",
            tag="Resources",
            scope="resources:read",
            answers=shown("The scope.", "Scope", etag=True),
        ),
        put=operation(
            "rewordScope",
            "Change the words that consent shows for a scope",
            tag="Resources",
            scope="resources:write",
            description="Those of a resource's scope stand in the resource.",
            parameters=("IfMatch",),
            body=ref("ScopeWords"),
            answers=changed("The scope.", "Scope"),
            extra=("409",),
        ),
    ),
}
