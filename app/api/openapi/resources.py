"""OpenAPI: resources (APIs) and the registry of scopes."""

from __future__ import annotations

from app.api.openapi.common import SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    closed,
    created,
    json_content,
    moment,
    nullable,
    operation,
    page,
    path_item,
    query_parameter,
    ref,
    request_object,
    success,
    text,
)
from app.rules.authorization.resource_indicators import LONGEST
from app.rules.registration.resource_fields import (
    LEAST_SECONDS,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_TITLE,
    MOST_SCOPES,
    MOST_SECONDS,
    STATUS,
    TOKEN_FORMATS,
)

_TITLE = nullable(
    text("Verb and object in the user's words; null wants words.", minLength=1, maxLength=LONGEST_TITLE)
)
_WORDS = nullable(text("What it means for the user.", minLength=1, maxLength=LONGEST_DESCRIPTION))
_SCOPE_NAME = text(minLength=1, maxLength=128)
_IDENTIFIER = text(
    "The resource indicator (RFC 8707) and audience of its tokens; it stays.", minLength=1, maxLength=LONGEST
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
_SCOPES: Schema = {
    "type": "array",
    "items": closed({"name": _SCOPE_NAME, "title": _TITLE, "description": _WORDS}),
}
_COUNT = {"type": "integer", "minimum": 0}
_CONFIRMED = query_parameter(
    "confirmed",
    text(enum=["true", "false"], default="false"),
    "Take what goes from clients that hold it, too; without it 409 `in_use` tells how many do.",
)
_ONE = answer("The resource.", success(ref("Resource")), headers=("ETag",))
_WARNINGS = {
    "warnings": {
        "type": "array",
        "items": text(),
        "description": "Scopes that want words for the consent page; nothing was refused.",
    }
}
_CHANGED = closed({"changed": {"type": "array", "items": text(), "description": "The fields that changed."}})
_CHANGED_RESOURCE = closed(_CHANGED["properties"] | _WARNINGS, optional=_WARNINGS)

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
            "removed": closed({"scopes": _COUNT, "clients": _COUNT}),
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
            "is_identity": {"type": "boolean", "description": "OpenID Connect's own."},
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
            answers={"200": answer("A page of resources.", page(ref("Resource")))},
            extra=("404",),
        ),
        post=operation(
            "defineResource",
            "Define a resource (API) with its scopes",
            tag="Resources",
            scope="resources:write",
            parameters=("IdempotencyKey", "Acting"),
            body=ref("NewResource"),
            answers={
                "201": answer(
                    "The resource.", created(ref("Resource"), **_WARNINGS), headers=("Location", "ETag")
                )
            },
            extra=("404",),
        ),
    ),
    "/resources/{resourceId}": path_item(
        ("ResourceId", "Acting"),
        get=operation(
            "getResource",
            "Read a resource",
            tag="Resources",
            scope="resources:read",
            answers={"200": _ONE},
            extra=("404",),
        ),
        put=operation(
            "updateResource",
            "Change a resource",
            tag="Resources",
            scope="resources:write",
            parameters=("IfMatch",),
            query=(_CONFIRMED,),
            body=ref("ResourceChange"),
            answers={
                "200": answer("The resource.", success(ref("Resource"), _CHANGED_RESOURCE), headers=("ETag",))
            },
            extra=("404", "409"),
        ),
        delete=operation(
            "deleteResource",
            "Delete a resource and its scopes",
            tag="Resources",
            scope="resources:write",
            description="No client gets a token for it from then on; those it has end by themselves.",
            parameters=("IfMatch",),
            query=(_CONFIRMED,),
            answers={"200": answer("What went with it.", success(ref("DeletedResource")))},
            extra=("404", "409"),
        ),
    ),
    "/resources/{resourceId}/metadata": path_item(
        ("ResourceId", "Acting"),
        get=operation(
            "getResourceMetadata",
            "What a resource should serve about itself (RFC 9728)",
            tag="Resources",
            scope="resources:read",
            answers={"200": answer("Document, address and header.", success(ref("ResourceMetadata")))},
            extra=("404",),
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
            answers={"200": answer("A page of scopes.", page(ref("Scope")))},
            extra=("404",),
        ),
    ),
    "/scopes/{scopeName}": path_item(
        ("ScopeName", "Acting"),
        get=operation(
            "getScope",
            "Read a scope",
            tag="Resources",
            scope="resources:read",
            answers={"200": answer("The scope.", success(ref("Scope")), headers=("ETag",))},
            extra=("404",),
        ),
        put=operation(
            "rewordScope",
            "Change the words that consent shows for a scope",
            tag="Resources",
            scope="resources:write",
            description="Those of a resource's scope stand in the resource.",
            parameters=("IfMatch",),
            body=ref("ScopeWords"),
            answers={"200": answer("The scope.", success(ref("Scope"), _CHANGED), headers=("ETag",))},
            extra=("404", "409"),
        ),
    ),
}
