"""OpenAPI: client applications."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG
from app.api.openapi.parts import (
    Schema,
    array,
    changed,
    closed,
    count,
    flag,
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
from app.rules.clients.client_fields import (
    SECURITY_PROFILES,
    SIGNING_ALGORITHMS,
    SOURCES,
    STATUS,
    SUBJECT_TYPES,
    TOKEN_FORMATS,
    TRUST,
)
from app.rules.clients.client_types import APPROVALS, AUTH_METHODS, CLIENT_TYPES, GRANT_TYPES, POLICIES

_URI = text(minLength=1, maxLength=2000)


def _list(item: Schema, most: int = 100, description: str = "") -> Schema:
    schema = {"type": "array", "items": item, "maxItems": most, "uniqueItems": True}
    return schema | ({"description": description} if description else {})


_METADATA: dict[str, Schema] = {
    "name": text("For people; shown at consent.", minLength=1, maxLength=100),
    "type": text("Derived when left out; fixes the defaults.", enum=list(CLIENT_TYPES)),
    "redirect_uris": _list(_URI, description="Matched code point for code point."),
    "post_logout_redirect_uris": _list(_URI),
    "scopes": _list(text(minLength=1, maxLength=128), description="All that the client may ask for."),
    "optional_scopes": _list(
        text(minLength=1, maxLength=128), description="Those a user may leave out at consent."
    ),
    "grant_types": _list(text(enum=list(GRANT_TYPES)), len(GRANT_TYPES)),
    "response_types": _list(text(enum=["code"]), 1),
    "token_endpoint_auth_method": text(enum=list(AUTH_METHODS)),
    "jwks": nullable({"type": "object", "description": "Public keys, for private_key_jwt."}),
    "jwks_uri": nullable(_URI),
    "client_uri": nullable(_URI),
    "logo_uri": nullable(
        text(
            minLength=1,
            maxLength=2000,
            description="PNG, JPEG, GIF or WebP of at most 256 KiB and four million pixels. Fetched once after each "
            "change of it and shown as a copy that the server made; until then initials stand there.",
        )
    ),
    "policy_uri": nullable(_URI),
    "tos_uri": nullable(_URI),
    "contacts": _list(text(minLength=3, maxLength=254), 10, "E-mail addresses."),
    "backchannel_logout_uri": nullable(_URI),
    "backchannel_logout_session_required": flag(),
    "initiate_login_uri": nullable(_URI),
    "subject_type": text("Pairwise: another `sub` for each sector (OIDC Core 8).", enum=list(SUBJECT_TYPES)),
    "sector_identifier_uri": nullable(_URI),
    "default_max_age": nullable(count("Seconds.")),
    "require_auth_time": flag(),
    "default_acr_values": _list(text(minLength=1, maxLength=128), 10),
    "id_token_signed_response_alg": nullable(
        text("The organization's choice when null.", enum=list(SIGNING_ALGORITHMS))
    ),
    "userinfo_signed_response_alg": nullable(text("Null: plain JSON.", enum=list(SIGNING_ALGORITHMS))),
    "introspection_signed_response_alg": nullable(
        text("For JWT introspection (RFC 9701).", enum=list(SIGNING_ALGORITHMS))
    ),
    "request_object_signing_alg": nullable(text("Null: any that is offered.", enum=list(SIGNING_ALGORITHMS))),
    "require_signed_request_object": flag(),
    "token_endpoint_auth_signing_alg": nullable(
        text("Of client assertions; null: any that is offered.", enum=list(SIGNING_ALGORITHMS))
    ),
    "access_token_format": nullable(text("The organization's choice when null.", enum=list(TOKEN_FORMATS))),
    "dpop_bound_access_tokens": flag(
        "Token requests without a DPoP proof are refused (RFC 9449 section 5.2)."
    ),
    "require_pushed_authorization_requests": flag(),
    "security_profile": nullable(
        text(
            "fapi2 turns on all that the FAPI 2.0 Security Profile asks of a client: private_key_jwt, pushed requests, "
            "DPoP proofs with a nonce, no RS256, redirects by https alone, refresh tokens that stay.",
            enum=list(SECURITY_PROFILES),
        )
    ),
    "software_id": nullable(text(maxLength=100)),
    "software_version": nullable(text(maxLength=100)),
    "token_exchange": nullable(
        text("What the token exchange grant may do; needs `clients:trust`.", enum=list(POLICIES))
    ),
    "resources": _list(text(minLength=1, maxLength=255), 10, "Audiences of its tokens (RFC 8707)."),
    "trust": text("Others than unverified need `clients:trust`.", enum=list(TRUST)),
    "approval": nullable(
        text(
            "What administrators decided: `review` (members ask them first), `allowed` (members may allow it), "
            "`pre_approved` (nobody is asked about `approved_scopes`; confidential clients that are not unverified "
            "alone), `blocked` (nothing of it is accepted; what it held is dead and stays so). null: the setting "
            "`oauth.consent.members_may_allow` counts. Needs `clients:trust`.",
            enum=list(APPROVALS),
        )
    ),
    "approved_scopes": _list(
        text(minLength=1, maxLength=128),
        description="What nobody is asked about where `approval` is `pre_approved`. Needs `clients:trust`.",
    ),
    "status": text(enum=list(STATUS)),
    "description": text(maxLength=1000),
    "metadata": {
        "type": "object",
        "maxProperties": 50,
        "propertyNames": {"pattern": "^[A-Za-z0-9_.-]{1,64}$"},
        "additionalProperties": text(maxLength=500),
    },
}
_RECORD: dict[str, Schema] = {
    "client_id": CLIENT_ID,
    "organization_id": SLUG,
    **_METADATA,
    "source": text(
        "Who registered it: somebody here, the client itself (RFC 7591), or its metadata document.",
        enum=list(SOURCES),
    ),
    "metadata_document_uri": nullable(
        text("Its client_id on the wire, where that is the address of its metadata.", maxLength=500)
    ),
    "created_at": moment(),
    "created_by": nullable(text()),
    "updated_at": moment(),
    "last_used_at": nullable(moment("Sampled, about once a minute.")),
}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 1000, "description": "1000 means that or more."}
_SECRET = {
    "client_secret": nullable(
        text("Shown in this answer; keep it confidential. Null for a client without one.")
    ),
    "client_secret_expires_at": nullable(moment()),
    "credential_id": nullable(text()),
}
_NULLABLE = {name: schema if name == "name" else nullable(schema) for name, schema in _METADATA.items()}
_WARNINGS = {"warnings": array(text(), "Worth a look; nothing was refused.")}

SCHEMAS: Schema = {
    "Client": closed(_RECORD),
    "RegisteredClient": closed(_RECORD | _SECRET, optional=_SECRET),
    "NewClient": request_object(
        {name: schema for name, schema in _NULLABLE.items() if name != "status"}
        | {"organization_id": SLUG | {"description": "May repeat the organization of the call."}},
        required=("name",),
    ),
    "ClientChange": request_object(_NULLABLE),
    "DeletedClient": closed(
        {
            "client_id": CLIENT_ID,
            "deleted": {"const": True},
            "revoked": closed(dict.fromkeys(("access_tokens", "grants", "consents", "credentials"), _COUNT)),
        }
    ),
}

_FILTERS = (
    query_parameter("q", text(minLength=1, maxLength=1000), "A part of the name, or a whole client_id."),
    query_parameter("type", text(enum=list(CLIENT_TYPES)), "Those of one type."),
    query_parameter("status", text(enum=list(STATUS)), "Those of one status."),
    query_parameter("trust", text(enum=list(TRUST)), "Those of one trust."),
    query_parameter("source", text(enum=list(SOURCES)), "Those that came in one way."),
    query_parameter(
        "sort", text(enum=["name", "-name", "created_at", "-created_at"], default="name"), "Order."
    ),
)

PATHS: Schema = {
    "/clients": path_item(
        (),
        get=operation(
            "listClients",
            "List registered client applications",
            tag="Clients",
            scope="clients:read",
            parameters=("Limit", "Cursor", "Acting"),
            query=_FILTERS,
            answers=listed("A page of clients, without secrets.", "Client"),
        ),
        post=operation(
            "registerClient",
            "Register a new client application",
            tag="Clients",
            scope="clients:write",
            parameters=("IdempotencyKey", "Acting"),
            body=ref("NewClient"),
            answers=made("The client with its first secret.", "RegisteredClient", **_WARNINGS),
        ),
    ),
    "/clients/{clientId}": path_item(
        ("ClientId", "Acting"),
        get=operation(
            "getClient",
            "Read a client application",
            tag="Clients",
            scope="clients:read",
            answers=shown("The client.", "Client", etag=True),
        ),
        put=operation(
            "updateClient",
            "Update an existing client application",
            tag="Clients",
            scope="clients:write",
            description="Of a trusted client only who holds `clients:trust` changes more than description, contacts "
            "and metadata: 403, with the code `trusted` at each field.",
            parameters=("IfMatch",),
            body=ref("ClientChange"),
            answers=changed("The client.", "Client", **_WARNINGS),
            extra=("409",),
        ),
        delete=operation(
            "deleteClient",
            "Delete a client application",
            tag="Clients",
            scope="clients:write",
            description="Its tokens, codes, consents and credentials are dead at once.",
            parameters=("IfMatch",),
            answers=shown("What went with it.", "DeletedClient"),
            extra=("409",),
        ),
    ),
}
