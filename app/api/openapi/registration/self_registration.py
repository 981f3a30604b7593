"""OpenAPI: clients that register themselves (RFC 7591, RFC 7592), and the tokens that let them."""

from __future__ import annotations

from app.api.openapi.common import public_id
from app.api.openapi.oauth.parts import UNSECURED, Place, endpoint, everywhere, plain, refusals
from app.api.openapi.parts import (
    Schema,
    array,
    closed,
    count,
    json_content,
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
from app.rules.clients.credentials import MAX_INITIAL_ACCESS_LIFETIME as LONGEST_LIFE
from app.rules.clients.credentials import MAX_USES

_TAG = "Registration tokens"
_USES: Schema = nullable({"type": "integer", "minimum": 1, "maximum": MAX_USES})
_TOKEN = {
    "id": public_id("ria"),
    "name": text("Who it is for.", minLength=1, maxLength=100),
    "hint": text("Its last four characters."),
    "status": text(enum=["live", "expired", "revoked", "used_up"]),
    "max_uses": _USES | {"description": "How many clients it may register; null: no bound of its own."},
    "uses": count(),
    "created_at": moment(),
    "created_by": nullable(text()),
    "expires_at": moment(),
    "last_used_at": nullable(moment()),
    "revoked_at": nullable(moment()),
}
_METADATA: Schema = {
    "type": "object",
    "description": "Client metadata as RFC 7591 section 2 and OpenID Connect Registration have it. Unknown names are "
    "ignored; scopes, grants and methods are cut down to what the organization offers.",
    "properties": {
        "redirect_uris": array(text()),
        "client_name": text(),
        "scope": text(),
        "grant_types": array(text()),
        "token_endpoint_auth_method": text(),
    },
}

SCHEMAS: Schema = {
    "RegistrationToken": closed(_TOKEN),
    "MadeRegistrationToken": closed(
        _TOKEN | {"initial_access_token": text("In this answer alone.")}, optional=("initial_access_token",)
    ),
    "NewRegistrationToken": request_object(
        {
            "name": text("Who it is for.", minLength=1, maxLength=100),
            "expires_at": nullable(
                text(f"RFC 3339, with its zone; at most {LONGEST_LIFE.days} days away.", minLength=1)
            ),
            "expires_in_days": nullable(
                {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": LONGEST_LIFE.days,
                    "description": "In place of expires_at; 30 when both are left out.",
                }
            ),
            "max_uses": _USES,
        },
        required=("name",),
    ),
    "ClientInformation": {
        "type": "object",
        "description": "RFC 7591 section 3.2.1, RFC 7592 section 3.",
        "required": ["client_id", "registration_access_token", "registration_client_uri"],
        "properties": {
            "client_id": text(),
            "client_secret": text("When it was made just now."),
            "client_secret_expires_at": {"type": "integer", "description": "0: never."},
            "registration_access_token": text("Reads, changes and removes the registration."),
            "registration_client_uri": text("Where."),
        },
    },
}


def _at(place: Place) -> Schema:
    body: Schema = {"required": True, "content": json_content(_METADATA)}
    known: Schema = plain("What the client is.", ref("ClientInformation"))
    faults = ("400", "401", "403", "404", "405", "413", "429", "500", "503")

    def preflight(word: str) -> Schema:
        return endpoint(
            place.called(word),
            "CORS preflight",
            answers={"204": {"description": "Alike for every origin."}, **refusals("404", "500", "503")},
            security=UNSECURED,
        )

    one = path_item(
        (*place.parameters, "WireClientId"),
        get=endpoint(
            place.called("readRegistration"),
            "Read one's own registration (RFC 7592)",
            answers={"200": known, **refusals(*faults)},
            security=UNSECURED,
        ),
        put=endpoint(
            place.called("replaceRegistration"),
            "Replace one's own registration (RFC 7592)",
            answers={"200": known, **refusals(*faults, "409")},
            security=UNSECURED,
            requestBody=body,
        ),
        delete=endpoint(
            place.called("removeRegistration"),
            "Remove one's own registration (RFC 7592)",
            answers={"204": {"description": "It is gone."}, **refusals(*faults)},
            security=UNSECURED,
        ),
        options=preflight("preflightRegistration"),
    )
    return {
        f"{place.prefix}/oauth/register": path_item(
            place.parameters,
            post=endpoint(
                place.called("registerItself"),
                "A client registers itself (RFC 7591)",
                answers={"201": known, **refusals(*faults, "409")},
                security=UNSECURED,
                requestBody=body,
            ),
            options=preflight("preflightRegister"),
        ),
        f"{place.prefix}/oauth/register/{{wireClientId}}": one,
    }


PATHS: Schema = {
    "/registration-tokens": path_item(
        (),
        get=operation(
            "listRegistrationTokens",
            "List initial access tokens",
            tag=_TAG,
            scope="clients:read",
            description="The newest first, without those that were revoked.",
            parameters=("Limit", "Cursor", "Acting"),
            answers=listed("A page of tokens, without their values.", "RegistrationToken"),
        ),
        post=operation(
            "createRegistrationToken",
            "Make an initial access token",
            tag=_TAG,
            scope="clients:write",
            description="Whoever holds it may register clients (RFC 7591 section 3).",
            parameters=("IdempotencyKey", "Acting"),
            body=ref("NewRegistrationToken"),
            answers=made("The token, in clear this once.", "MadeRegistrationToken"),
            extra=("409",),
        ),
    ),
    "/registration-tokens/{registrationTokenId}": path_item(
        ("RegistrationTokenId", "Acting"),
        get=operation(
            "getRegistrationToken",
            "Read an initial access token",
            tag=_TAG,
            scope="clients:read",
            answers=shown("Without its value.", "RegistrationToken", etag=True),
        ),
        delete=operation(
            "revokeRegistrationToken",
            "Revoke an initial access token",
            tag=_TAG,
            scope="clients:write",
            description="What was registered by it stays.",
            parameters=("IfMatch",),
            answers=shown("As it ended.", "RegistrationToken"),
        ),
    ),
    **everywhere(_at),
}
