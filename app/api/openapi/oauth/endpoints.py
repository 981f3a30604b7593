"""OpenAPI: the OAuth 2.0 and OpenID Connect endpoints, each where the specification has it and under its issuer."""

from __future__ import annotations

from app.api.openapi.oauth.parts import (
    CLIENT,
    CLIENT_FIELDS,
    PAGE,
    UNSECURED,
    Place,
    endpoint,
    everywhere,
    form,
    plain,
    refusals,
    words,
)
from app.api.openapi.parts import REFUSALS, Schema, array, closed, flag, path_item, query_parameter, ref, text

_RESOURCE: Schema = array(text("A resource that the tokens shall be for (RFC 8707), once for each."))
AUTHORIZATION = {
    "response_type": text(enum=["code"]),
    "response_mode": text("How the answer comes back.", enum=["query", "form_post"]),
    "client_id": words("client_id"),
    "redirect_uri": words("redirect_uri", "One that is registered, code point for code point."),
    "scope": words("scope"),
    "state": words("state", "Comes back byte for byte."),
    "code_challenge": words("code_challenge", "PKCE, of every client (RFC 7636)."),
    "code_challenge_method": text(enum=["S256"]),
    "nonce": words("nonce"),
    "prompt": words("prompt"),
    "max_age": words("max_age"),
    "login_hint": words("login_hint"),
    "id_token_hint": text("An ID token of the person who is expected.", maxLength=8192),
    "acr_values": words("acr_values"),
    "ui_locales": words("ui_locales"),
    "claims": text("Claims asked for by name, as a JSON object.", maxLength=8192),
    "resource": _RESOURCE,
    "request": text("A request object (RFC 9101): the parameters, signed by the client.", maxLength=24576),
    "request_uri": words("request_uri", "What a pushed request was answered with (RFC 9126)."),
    "dpop_jkt": words(
        "dpop_jkt", "The thumbprint of the key that the code will be bound to (RFC 9449 section 10)."
    ),
}
_TOKEN = {
    "grant_type": words("grant_type", "One of the metadata's grant_types_supported."),
    "code": words("code"),
    "redirect_uri": words("redirect_uri"),
    "code_verifier": words("code_verifier"),
    "refresh_token": words("refresh_token"),
    "device_code": words("device_code", "With the device code grant (RFC 8628)."),
    "scope": words("scope"),
    "resource": _RESOURCE,
    "subject_token": text("With token exchange (RFC 8693).", maxLength=8192),
    "subject_token_type": words("subject_token_type", "With token exchange."),
    "actor_token": text("With token exchange: who acts, if not the client.", maxLength=8192),
    "actor_token_type": words("actor_token_type", "Beside an actor_token."),
    "requested_token_type": words("requested_token_type", "With token exchange."),
    **CLIENT_FIELDS,
}
_ONE_TOKEN = {"token": words("token"), "token_type_hint": words("token_type_hint"), **CLIENT_FIELDS}

SCHEMAS: Schema = {
    "OAuthError": closed(
        {"error": text("A code of RFC 6749 section 5.2."), "error_description": text()},
        optional=("error_description",),
    ),
    "TokenAnswer": closed(
        {
            "access_token": text(),
            "token_type": text("DPoP when the request carried a proof (RFC 9449).", enum=["Bearer", "DPoP"]),
            "expires_in": {"type": "integer"},
            "scope": text("Left out where the token has none."),
            "refresh_token": text(),
            "id_token": text(),
            "issued_token_type": text("After token exchange (RFC 8693 section 2.2.1)."),
        },
        optional=("scope", "refresh_token", "id_token", "issued_token_type"),
    ),
    "Introspection": {
        "type": "object",
        "description": 'RFC 7662; `{"active": false}` for whatever the caller may not know of.',
        "required": ["active"],
        "properties": {"active": flag()},
    },
    "Claims": {"type": "object", "required": ["sub"], "properties": {"sub": text()}},
    "Metadata": {
        "type": "object",
        "required": [
            "issuer",
            "authorization_endpoint",
            "token_endpoint",
            "jwks_uri",
            "response_types_supported",
        ],
        "properties": {"issuer": text()},
    },
    "Keys": closed({"keys": array({"type": "object", "required": ["kty", "kid"]})}),
}


SHOWN: Schema = {
    "303": {"description": "On to sign-in or consent, or back to the client with `code`, `state` and `iss`."},
    "400": {"description": "Client or redirect_uri is wrong: a page, never a redirect.", "content": PAGE},
    "405": {"description": REFUSALS["405"][1], "content": PAGE},
    "413": {"description": REFUSALS["413"][1], "content": PAGE},
    "500": {"description": REFUSALS["500"][1], "content": PAGE},
    "503": {"description": REFUSALS["503"][1], "content": PAGE},
}


# Tokens are bound to the key of the proof; an answer to one offers a nonce for the next.
_PROOF: Schema = {
    "parameters": [
        {
            "name": "DPoP",
            "in": "header",
            "required": False,
            "description": "A proof of the key that tokens are bound to (RFC 9449); once, for this request alone.",
            "schema": {"type": "string", "maxLength": 4096},
        }
    ]
}


_INTROSPECTED: Schema = {
    "description": "What it is; signed where the Accept header asks for it (RFC 9701).",
    "content": {
        "application/json": {"schema": ref("Introspection")},
        "application/token-introspection+jwt": {"schema": {"type": "string"}},
    },
}


def _at(place: Place) -> Schema:
    faults = ("400", "401", "405", "413", "500", "503", *place.missing)
    wanted = [
        query_parameter(key, schema, schema.get("description", key)) for key, schema in AUTHORIZATION.items()
    ]
    shown = SHOWN | ({"404": {"description": REFUSALS["404"][1], "content": PAGE}} if place.missing else {})
    return {
        f"{place.prefix}/oauth/authorize": path_item(
            place.parameters,
            get=endpoint(
                place.called("authorize"), "Ask a user to authorize", answers=shown, security=UNSECURED
            )
            | {"parameters": wanted},
            post=endpoint(
                place.called("authorizeByForm"),
                "Ask a user to authorize, by form",
                answers=shown,
                security=UNSECURED,
                requestBody=form(AUTHORIZATION),
            ),
        ),
        f"{place.prefix}/oauth/token": path_item(
            place.parameters,
            post=endpoint(
                place.called("issueToken"),
                "Obtain tokens",
                answers={"200": plain("The tokens.", ref("TokenAnswer")), **refusals(*faults)},
                security=CLIENT,
                requestBody=form(_TOKEN, "grant_type"),
            )
            | _PROOF,
            options=preflight(place.called("preflightToken")),
        ),
        f"{place.prefix}/oauth/introspect": path_item(
            place.parameters,
            post=endpoint(
                place.called("introspect"),
                "Introspect a token (RFC 7662)",
                answers={"200": _INTROSPECTED, **refusals(*faults)},
                security=CLIENT,
                requestBody=form(_ONE_TOKEN, "token"),
            ),
        ),
        f"{place.prefix}/oauth/revoke": path_item(
            place.parameters,
            post=endpoint(
                place.called("revokeByForm"),
                "Revoke a token (RFC 7009)",
                answers={
                    "200": plain("It is dead, or never was one.", {"type": "object"}),
                    **refusals(*faults),
                },
                security=CLIENT,
                requestBody=form(_ONE_TOKEN, "token"),
            ),
            options=preflight(place.called("preflightRevoke")),
        ),
        f"{place.prefix}/oauth/userinfo": path_item(
            place.parameters,
            get=_userinfo(place.called("userinfo"), faults),
            post=_userinfo(place.called("userinfoByPost"), faults),
            options=preflight(place.called("preflightUserinfo")),
        ),
        f"{place.prefix}/oauth/jwks": path_item(
            place.parameters,
            get=_public(place.called("keys"), "The public signing keys (RFC 7517)", ref("Keys")),
        ),
    }


def _userinfo(identifier: str, faults: tuple[str, ...]) -> Schema:
    asked = endpoint(
        identifier,
        "Claims about the user",
        answers={"200": plain("The claims.", ref("Claims")), **refusals("403", *faults)},
        security=[{"bearer": []}],
    )
    return asked | _PROOF


def preflight(identifier: str) -> Schema:
    """The OPTIONS of an endpoint that browser apps call."""
    return endpoint(
        identifier,
        "CORS preflight",
        answers={
            "204": {"description": "What browsers may send."},
            "404": {"description": "No such issuer."},
        },
        security=UNSECURED,
    )


def _public(identifier: str, summary: str, schema: Schema) -> Schema:
    return endpoint(
        identifier,
        summary,
        answers={"200": plain("A public document.", schema), **refusals("400", "404", "405", "500", "503")},
        security=UNSECURED,
    )


def _discovery() -> Schema:
    paths: Schema = {}
    for kind, word in (("openid-configuration", "openid"), ("oauth-authorization-server", "oauth")):
        for shape, (prefix, suffix, shared) in {
            "root": ("", "", ()),
            "inserted": ("", "/organizations/{id}", ("OrganizationId",)),
            "appended": ("/organizations/{id}", "", ("OrganizationId",)),
        }.items():
            summary = "The issuer's metadata (RFC 8414, OpenID Connect Discovery)"
            paths[f"{prefix}/.well-known/{kind}{suffix}"] = path_item(
                shared, get=_public(f"{word}Metadata{shape.capitalize()}", summary, ref("Metadata"))
            )
    return paths


PATHS: Schema = everywhere(_at) | _discovery()
