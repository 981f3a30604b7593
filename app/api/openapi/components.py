"""Shared components of the OpenAPI document: errors, headers, parameters, security."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from app.api.endpoints import CURSOR, LIMIT, JsonSchema, Query, reference
from app.api.representations import SLUG_KEYWORDS, Representation, optional
from app.rules.directory.permissions import PERMISSIONS, ROOT_ONLY
from app.rules.shapes import Check, ClientId, PublicId, SchemaOnly, described

ERRORS: dict[int, tuple[str, str]] = {
    400: ("BadRequest", "The request is invalid. `errors` lists all invalid fields."),
    401: ("Unauthorized", "No token, a token that is not valid for this API, or a sign-in that is too old (RFC 9470)."),
    403: ("Forbidden", "The permission in `required_scope` is missing, or the web page's origin is not allowed."),
    404: ("NotFound", "The object does not exist, was deleted, or belongs to another organization."),
    405: ("MethodNotAllowed", "The path supports only the methods in `Allow`."),
    408: ("RequestTimeout", "The body was sent too slowly."),
    409: ("Conflict", "A conflict with the current state, or the Idempotency-Key was used for another body."),
    412: ("PreconditionFailed", "The object has changed since the version in If-Match."),
    413: ("ContentTooLarge", "The body is larger than 64 KiB."),
    415: ("UnsupportedMediaType", "The body is not application/json."),
    429: ("TooManyRequests", "A rate limit was exceeded. Retry-After says when to try again."),
    500: ("InternalServerError", "Something went wrong on our side. `request_id` identifies the request in the log."),
    503: ("ServiceUnavailable", "The service is temporarily unavailable. Try again after Retry-After seconds."),
}  # fmt: skip
HEADERS: JsonSchema = {
    "X-Request-Id": {"description": "Identifies the request in the log.", "schema": {"type": "string"}},
    "ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}},
    "Location": {"description": "The URL of the new object.", "schema": {"type": "string"}},
    "Retry-After": {"description": "The number of seconds to wait.", "schema": {"type": "integer"}},
}
SUCCESS: JsonSchema = {"const": True, "description": "Always true. Error responses have false."}
_SLUG: JsonSchema = {"type": "string", **SLUG_KEYWORDS}
_SCOPES = dict(PERMISSIONS) | dict(ROOT_ONLY)


class InvalidField(Representation):
    """An invalid field of a request."""

    field: Annotated[str, described("Its path, such as `redirect_uris[1]`.")]
    code: Annotated[str, described("A stable code, such as `required` or `unknown_field`.")]
    message: Annotated[str, described("What is wrong, and what to do.")]


class ErrorResponse(Representation):
    """An error response."""

    success: Annotated[
        Any, SchemaOnly(const=False), described("Always false. Successful responses have true.")
    ]
    error_code: Annotated[int, SchemaOnly(minimum=400, maximum=599), described("The HTTP status.")]
    error_msg: Annotated[str, described("The description of the error.")]
    error: Annotated[str, described("A stable code.")]
    errors: Annotated[list[InvalidField], described("All invalid fields.")]
    required_scope: Annotated[str, described("The scope that the token does not have.")] = optional()
    details: Annotated[
        dict[str, Any], described("More about this error. The properties depend on `error`.")
    ] = optional()
    request_id: Annotated[str, described("Identifies the request in the log.")]


def parameter(query: Query, place: str = "query") -> JsonSchema:
    """Return an optional parameter of a request."""
    return {"name": query.name, "in": place, "required": False, "description": query.description,
            "schema": query.schema}  # fmt: skip


PARAMETERS: JsonSchema = {
    "Limit": parameter(LIMIT),
    "Cursor": parameter(CURSOR),
    "Acting": parameter(
        Query(
            "organization_id",
            _SLUG,
            "The organization to act in. Only root can name another than the token's.",
        )
    ),
    "IfMatch": parameter(
        Query(
            "If-Match",
            {"type": "string", "pattern": '^(\\*|"[!#-~]{1,64}"( *, *"[!#-~]{1,64}")*)$'},
            "The ETag that was read, or several. If the object has another version now, the response is 412.",
        ),
        "header",
    ),
    "IfNoneMatch": parameter(
        Query(
            "If-None-Match",
            {"type": "string"},
            "The ETag that was read. If nothing has changed since, the response is 304.",
        ),
        "header",
    ),
    "IdempotencyKey": parameter(
        Query(
            "Idempotency-Key",
            {"type": "string", "pattern": "^[!-~]{1,200}$"},
            "The same key and body within 24 hours return the same result, without secrets.",
        ),
        "header",
    ),
    "StatusListId": {
        "name": "statusListId",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "maxLength": 100},
        "description": "The ID at the end of the `uri` in a token's `status`.",
    },
    "RegisteredClientId": {
        "name": "registeredClientId",
        "in": "path",
        "required": True,
        "description": "The client_id.",
        "schema": {"type": "string"},
    },
}


def _id(check: Check, description: str) -> JsonSchema:
    return {"description": description, "schema": {"type": "string"} | check.json_schema()}


def _word(max_length: int, description: str) -> JsonSchema:
    return {"description": description, "schema": {"type": "string", "minLength": 1, "maxLength": max_length}}


# By the argument of the view.
PATH_ARGUMENTS: dict[str, JsonSchema] = {
    "slug": {"description": "The organization.", "schema": _SLUG},
    "client_id": _id(ClientId(), "The client."),
    "credential_id": _id(PublicId("sec", ""), "The client secret."),
    "admin_id": _id(PublicId("adm", ""), "The role assignment."),
    "role_id": _word(64, "The role."),
    "user_id": _id(PublicId("usr", ""), "The user."),
    "group_id": _id(PublicId("grp", ""), "The group."),
    "assignment_id": _id(PublicId("ara", ""), "The assignment of a role of a client."),
    "import_id": _id(PublicId("imp", ""), "The import of users."),
    "resource_id": _id(PublicId("res", ""), "The resource."),
    "scope_name": _word(128, "The scope."),
    "kid": _id(SchemaOnly(pattern="^[A-Za-z0-9_-]{43}$"), "The signing key."),
    "revocation_id": _id(PublicId("rev", ""), "The bulk revocation."),
    "session_id": _id(PublicId("ses", ""), "The session."),
    "consent_id": _id(PublicId("con", ""), "The consent."),
    "client_request_id": _id(PublicId("crq", ""), "The request of a member."),
    "client_access_id": _id(PublicId("acc", ""), "The access of a client, or a request for it."),
    "grant_id": _id(PublicId("grt", ""), "The grant."),
    "token_id": _id(PublicId("tok", ""), "The access token."),
    "audit_event_id": _id(PublicId("evt", ""), "The event."),
    "failed_request_id": _id(PublicId("flr", ""), "The failed request."),
    "registration_id": _id(PublicId("reg", ""), "The self-registration."),
    "registration_token_id": _id(PublicId("ria", ""), "The initial access token."),
    "webhook_id": _id(PublicId("whk", ""), "The webhook."),
    "delivery_id": _id(PublicId("dlv", ""), "The delivery."),
    "invitation_id": _id(PublicId("inv", ""), "The invitation."),
    "provider_id": _id(PublicId("idp", ""), "The identity provider."),
    "identity_id": _id(PublicId("idn", ""), "The linked account."),
    "provisioning_token_id": _id(PublicId("pvt", ""), "The provisioning token."),
}
# Of schemas that are not generated from a class with a docstring.
DESCRIPTIONS: dict[str, str] = {
    "Claims": "Claims about the user that the token's scopes release (OpenID Connect Core section 5.3).",
    "ClientChange": "The fields of a client to change. Omitted fields keep their values.",
    "DeviceAuthorization": "Codes for a sign-in on a device (RFC 8628 section 3.2).",
    "Health": "The state of this process.",
    "GroupChange": "The fields of a group to change. Omitted fields keep their values.",
    "IdentityProviderChange": "The fields of an identity provider to change. Omitted fields keep their values.",
    "Keys": "The public signing keys of the issuer (RFC 7517).",
    "Metadata": "The metadata of the issuer (RFC 8414, OpenID Connect Discovery).",
    "NewClientInOrganization": "A client to register.",
    "NewGroup": "A group to create.",
    "NewResource": "An API to create.",
    "NewRole": "A role to create.",
    "OAuthError": "An error of an OAuth endpoint (RFC 6749 section 5.2).",
    "OAuthErrorResponse": "An error of an OAuth endpoint. Requests to unknown paths and of other kinds get the API's.",
    "PostalAddress": "A postal address (OpenID Connect Core section 5.1.1).",
    "StatusLists": "The status lists of the issuer (draft-ietf-oauth-status-list-17 section 9).",
    "PushedRequest": "A stored authorization request (RFC 9126 section 2.2).",
    "ResourceChange": "The fields of an API to change. Omitted fields keep their values.",
    "RoleChange": "The fields of a role to change. Omitted fields keep their values.",
    "SettingsRole": "A role of administrators.",
    "TokenAnswer": "Tokens (RFC 6749 section 5.1).",
    "UserAttribute": "A custom attribute of users.",
    "UserProfile": "Profile fields of a user (OpenID Connect Core section 5.1).",
    "WebhookChange": "The fields of a webhook to change. Omitted fields keep their values.",
    "WebhookEvent": "The body of a request to a webhook (Standard Webhooks).",
    "WebhookTestEvent": "The body of a test request to a webhook.",
}
SECURITY: JsonSchema = {
    "bearer": {
        "type": "oauth2",
        "description": "An access token of this service for the audience `{base_url}/management`. A token that is "
        "bound to a key is sent as `Authorization: DPoP` with a proof (RFC 9449).",
        "flows": {
            "clientCredentials": {"tokenUrl": "/oauth/token", "scopes": _SCOPES},
            "authorizationCode": {
                "authorizationUrl": "/oauth/authorize",
                "tokenUrl": "/oauth/token",
                "scopes": _SCOPES,
            },
        },
    },
    "client": {
        "type": "http",
        "scheme": "basic",
        "description": "The client's `client_id` and `client_secret`.",
    },
    "registration": {
        "type": "http",
        "scheme": "bearer",
        "description": "The `registration_access_token` of the client's own registration. To register, an initial "
        "access token if the organization requires one.",
    },
}


def response(description: str, schema: JsonSchema, headers: Iterable[str] = ("X-Request-Id",)) -> JsonSchema:
    """Return a response with a JSON body."""
    return {
        "description": description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {"application/json": {"schema": schema}},
    }


def errors(*statuses: int) -> JsonSchema:
    """Return references to the error responses with these statuses."""
    return {
        str(status): {"$ref": f"#/components/responses/{ERRORS[status][0]}"} for status in sorted(statuses)
    }


def error_responses() -> JsonSchema:
    """Return the components that ``errors`` refers to."""
    schema = reference("ErrorResponse")
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", "ETag")}
    not_modified = {
        "description": "Nothing has changed since the version in If-None-Match.",
        "headers": headers,
    }
    return {"NotModified": not_modified} | {
        name: response(text, schema, ("X-Request-Id", *(["Retry-After"] if status in (429, 503) else [])))
        for status, (name, text) in ERRORS.items()
    }
