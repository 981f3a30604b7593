"""What many operations share: the error, headers, parameters, and how callers prove who they are."""

from __future__ import annotations

from app.api.openapi.parts import Schema, closed, text
from app.rules.directory.permissions import PERMISSIONS, ROOT_ONLY
from app.rules.organizations.organizations import SLUG_PATTERN

SLUG = text(
    "The immutable id of an organization, as in addresses.", minLength=3, maxLength=40, pattern=SLUG_PATTERN
)


def public_id(prefix: str) -> Schema:
    """An id: its prefix and 26 characters that sort by time."""
    return text(pattern=f"^{prefix}_[0-9a-hjkmnp-tv-z]{{26}}$")


KID = text(
    "The key's RFC 7638 thumbprint, as in the headers of what it signed.", pattern="^[A-Za-z0-9_-]{43}$"
)
CLIENT_ID = text(pattern="^cli_[0-9a-hjkmnp-tv-z]{8}_[0-9a-hjkmnp-tv-z]{26}$")

SCHEMAS: Schema = {
    "Error": closed(
        {
            "success": {"const": False},
            "error_code": {
                "type": "integer",
                "minimum": 400,
                "maximum": 599,
                "description": "The HTTP status.",
            },
            "error_msg": text("What is wrong, for people."),
            "error": text("A stable code, for programs."),
            "errors": {
                "type": "array",
                "description": "Every wrong field.",
                "items": closed(
                    {
                        "field": text("Its path, such as `redirect_uris[1]`."),
                        "code": text(),
                        "message": text(),
                    }
                ),
            },
            "required_scope": text("What the token lacks."),
            "details": {"type": "object"},
            "request_id": text("Finds the request in the log."),
        },
        optional=("required_scope", "details"),
    )
}

HEADERS: Schema = {
    "X-Request-Id": {"description": "The request in the log.", "schema": {"type": "string"}},
    "ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}},
    "Location": {"description": "Where the new resource is.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
}


def _path(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _query(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _header(name: str, description: str, **schema: object) -> Schema:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", **schema},
    }


PARAMETERS: Schema = {
    "OrganizationId": _path("id", SLUG, "The organization."),
    "ClientId": _path("clientId", CLIENT_ID, "The client."),
    "WireClientId": _path(
        "wireClientId",
        text(),
        "The client, as it calls itself; whatever it is, a preflight is answered alike.",
    ),
    "CredentialId": _path("credentialId", public_id("sec"), "The client secret."),
    "AdminId": _path("adminId", public_id("adm"), "The role assignment."),
    "RoleId": _path("roleId", {"type": "string", "minLength": 1, "maxLength": 64}, "The role."),
    "UserId": _path("userId", public_id("usr"), "The user."),
    "ImportId": _path("importId", public_id("imp"), "The import of users."),
    "ResourceId": _path("resourceId", public_id("res"), "The resource."),
    "ScopeName": _path("scopeName", {"type": "string", "minLength": 1, "maxLength": 128}, "The scope."),
    "Kid": _path("kid", KID, "The signing key."),
    "RevocationId": _path("revocationId", public_id("rev"), "The wider revocation."),
    "SessionId": _path("sessionId", public_id("ses"), "The sign-in."),
    "ConsentId": _path("consentId", public_id("con"), "The consent."),
    "ClientRequestId": _path("clientRequestId", public_id("crq"), "The request of a member."),
    "GrantId": _path("grantId", public_id("grt"), "The grant."),
    "TokenId": _path("tokenId", public_id("tok"), "The access token."),
    "AuditEventId": _path("auditEventId", public_id("evt"), "The event."),
    "FailedRequestId": _path("failedRequestId", public_id("flr"), "The refused request."),
    "RegistrationId": _path("registrationId", public_id("reg"), "The account that waits."),
    "RegistrationTokenId": _path("registrationTokenId", public_id("ria"), "The initial access token."),
    "WebhookId": _path("webhookId", public_id("whk"), "The webhook."),
    "DeliveryId": _path("deliveryId", public_id("dlv"), "The delivery."),
    "InvitationId": _path("invitationId", public_id("inv"), "The invitation."),
    "Limit": _query(
        "limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 25}, "Items on a page."
    ),
    "Cursor": _query(
        "cursor",
        {"type": "string", "minLength": 1, "maxLength": 1000},
        "`meta.next_cursor` of the page before.",
    ),
    "Acting": _query(
        "organization_id", SLUG, "The organization to act in; another than the token's is for root alone."
    ),
    "IfMatch": _header(
        "If-Match", "The ETag that was read: 412 when it was changed since.", pattern='^(\\*|"[!-~]{1,64}")$'
    ),
    "IdempotencyKey": _header(
        "Idempotency-Key",
        "The same key and body within 24 hours give the same result; no secret is kept for it.",
        pattern="^[!-~]{1,200}$",
    ),
}

SECURITY: Schema = {
    "bearer": {
        "type": "oauth2",
        "description": "An access token of this service for the audience `{base_url}/management`; one that is bound to "
        "a key comes as `Authorization: DPoP` with a proof (RFC 9449).",
        "flows": {
            "clientCredentials": {"tokenUrl": "/oauth/token", "scopes": dict(PERMISSIONS) | dict(ROOT_ONLY)},
            "authorizationCode": {
                "authorizationUrl": "/oauth/authorize",
                "tokenUrl": "/oauth/token",
                "scopes": dict(PERMISSIONS) | dict(ROOT_ONLY),
            },
        },
    },
    "client": {
        "type": "http",
        "scheme": "basic",
        "description": "A client's own `client_id` and `client_secret`.",
    },
}
