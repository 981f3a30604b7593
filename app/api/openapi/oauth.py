"""OpenAPI: the OAuth 2.0 and OpenID Connect endpoints, each where the specification has it and under its issuer."""

from __future__ import annotations

from app.api.openapi.parts import (
    REFUSALS,
    Schema,
    closed,
    path_item,
    query_parameter,
    ref,
    text,
)

_TAG = "OAuth 2.0"
_UNSECURED: list[dict[str, list[str]]] = [{}]
_CLIENT: list[dict[str, list[str]]] = [{"client": []}, {}]
_LONG = 4096


def _words(name: str, description: str = "", **more: object) -> Schema:
    return text(description or name, maxLength=_LONG, **more)


_CLIENT_FIELDS = {
    "client_id": _words("client_id", "When the client does not authenticate by the header."),
    "client_secret": _words("client_secret", "With client_secret_post."),
}
_AUTHORIZATION = {
    "response_type": text(enum=["code"]),
    "client_id": _words("client_id"),
    "redirect_uri": _words("redirect_uri", "One that is registered, code point for code point."),
    "scope": _words("scope"),
    "state": _words("state", "Comes back byte for byte."),
    "code_challenge": _words("code_challenge", "PKCE, of every client (RFC 7636)."),
    "code_challenge_method": text(enum=["S256"]),
    "nonce": _words("nonce"),
    "prompt": _words("prompt"),
    "max_age": _words("max_age"),
    "login_hint": _words("login_hint"),
}
_TOKEN = {
    "grant_type": _words("grant_type", "authorization_code, refresh_token or client_credentials."),
    "code": _words("code"),
    "redirect_uri": _words("redirect_uri"),
    "code_verifier": _words("code_verifier"),
    "refresh_token": _words("refresh_token"),
    "scope": _words("scope"),
    **_CLIENT_FIELDS,
}
_ONE_TOKEN = {"token": _words("token"), "token_type_hint": _words("token_type_hint"), **_CLIENT_FIELDS}

SCHEMAS: Schema = {
    "OAuthError": closed(
        {"error": text("A code of RFC 6749 section 5.2."), "error_description": text()},
        optional=("error_description",),
    ),
    "TokenAnswer": closed(
        {
            "access_token": text(),
            "token_type": {"const": "Bearer"},
            "expires_in": {"type": "integer"},
            "scope": text(),
            "refresh_token": text(),
            "id_token": text(),
        },
        optional=("refresh_token", "id_token"),
    ),
    "Introspection": {
        "type": "object",
        "description": 'RFC 7662; `{"active": false}` for whatever the caller may not know of.',
        "required": ["active"],
        "properties": {"active": {"type": "boolean"}},
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
    "Keys": closed({"keys": {"type": "array", "items": {"type": "object", "required": ["kty", "kid"]}}}),
}


def _form(properties: Schema, *required: str) -> Schema:
    schema = {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
    }
    return {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": schema}}}


def _refusals(*statuses: str) -> Schema:
    error = {"application/json": {"schema": {"anyOf": [ref("OAuthError"), ref("Error")]}}}
    return {status: {"description": REFUSALS[status][1], "content": error} for status in statuses}


_PAGE = {"text/html": {"schema": {"type": "string"}}}
_SHOWN: Schema = {
    "303": {"description": "On to sign-in or consent, or back to the client with `code`, `state` and `iss`."},
    "400": {"description": "Client or redirect_uri is wrong: a page, never a redirect.", "content": _PAGE},
    "405": {"description": REFUSALS["405"][1], "content": _PAGE},
    "413": {"description": REFUSALS["413"][1], "content": _PAGE},
    "500": {"description": REFUSALS["500"][1], "content": _PAGE},
    "503": {"description": REFUSALS["503"][1], "content": _PAGE},
}


def _endpoint(
    identifier: str, summary: str, *, answers: Schema, security: list[dict[str, list[str]]], **more: Schema
) -> Schema:
    return {
        "operationId": identifier,
        "summary": summary,
        "tags": [_TAG],
        "responses": answers,
        "security": security,
        **more,
    }


def _plain(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _of(prefix: str, name: str) -> Schema:
    """The endpoints at one prefix; ``name`` begins their operation ids."""
    under_issuer = ("404",) if name else ()
    faults = ("400", "401", "405", "413", "500", "503", *under_issuer)
    shared = ("OrganizationId",) if name else ()
    wanted = [
        query_parameter(key, schema, schema.get("description", key)) for key, schema in _AUTHORIZATION.items()
    ]
    shown = _SHOWN | ({"404": {"description": REFUSALS["404"][1], "content": _PAGE}} if name else {})

    def called(word: str) -> str:
        return f"{name}{word[0].upper()}{word[1:]}" if name else word

    return {
        f"{prefix}/oauth/authorize": path_item(
            shared,
            get=_endpoint(called("authorize"), "Ask a user to authorize", answers=shown, security=_UNSECURED)
            | {"parameters": wanted},
            post=_endpoint(
                called("authorizeByForm"),
                "Ask a user to authorize, by form",
                answers=shown,
                security=_UNSECURED,
                requestBody=_form(_AUTHORIZATION),
            ),
        ),
        f"{prefix}/oauth/token": path_item(
            shared,
            post=_endpoint(
                called("issueToken"),
                "Obtain tokens",
                answers={"200": _plain("The tokens.", ref("TokenAnswer")), **_refusals(*faults)},
                security=_CLIENT,
                requestBody=_form(_TOKEN, "grant_type"),
            ),
            options=_preflight(called("preflightToken")),
        ),
        f"{prefix}/oauth/introspect": path_item(
            shared,
            post=_endpoint(
                called("introspect"),
                "Introspect a token (RFC 7662)",
                answers={"200": _plain("What it is.", ref("Introspection")), **_refusals(*faults)},
                security=_CLIENT,
                requestBody=_form(_ONE_TOKEN, "token"),
            ),
        ),
        f"{prefix}/oauth/revoke": path_item(
            shared,
            post=_endpoint(
                called("revokeByForm"),
                "Revoke a token (RFC 7009)",
                answers={
                    "200": _plain("It is dead, or never was one.", {"type": "object"}),
                    **_refusals(*faults),
                },
                security=_CLIENT,
                requestBody=_form(_ONE_TOKEN, "token"),
            ),
            options=_preflight(called("preflightRevoke")),
        ),
        f"{prefix}/oauth/userinfo": path_item(
            shared,
            get=_userinfo(called("userinfo"), faults),
            post=_userinfo(called("userinfoByPost"), faults),
            options=_preflight(called("preflightUserinfo")),
        ),
        f"{prefix}/oauth/jwks": path_item(
            shared,
            get=_public(called("keys"), "The public signing keys (RFC 7517)", ref("Keys")),
        ),
    }


def _userinfo(identifier: str, faults: tuple[str, ...]) -> Schema:
    return _endpoint(
        identifier,
        "Claims about the user",
        answers={"200": _plain("The claims.", ref("Claims")), **_refusals("403", *faults)},
        security=[{"bearer": []}],
    )


def _preflight(identifier: str) -> Schema:
    return _endpoint(
        identifier,
        "CORS preflight",
        answers={
            "204": {"description": "What browsers may send."},
            "404": {"description": "No such issuer."},
        },
        security=_UNSECURED,
    )


def _public(identifier: str, summary: str, schema: Schema) -> Schema:
    return _endpoint(
        identifier,
        summary,
        answers={"200": _plain("A public document.", schema), **_refusals("400", "404", "405", "500", "503")},
        security=_UNSECURED,
    )


def _interaction() -> Schema:
    found = _SHOWN | {
        "200": {"description": "The consent page.", "content": _PAGE},
        "404": {"description": REFUSALS["404"][1], "content": _PAGE},
    }
    request = query_parameter("request", text(maxLength=200), "The id of the stored request.")
    decision = {
        "request": text(maxLength=200),
        "decision": text(enum=["allow", "deny"]),
        "scope": text(),
        "csrf_token": text(),
    }
    return {
        "/organizations/{id}/oauth/authorize/resume": path_item(
            ("OrganizationId",),
            get=_endpoint("resumeAuthorization", "Back from sign-in", answers=found, security=_UNSECURED)
            | {"parameters": [request]},
        ),
        "/organizations/{id}/oauth/authorize/decision": path_item(
            ("OrganizationId",),
            post=_endpoint(
                "decideAuthorization",
                "What the person decided",
                answers=found | {"403": {"description": "Sent from another site.", "content": _PAGE}},
                security=_UNSECURED,
                requestBody=_form(decision),
            ),
        ),
    }


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


PATHS: Schema = {
    **_of("", ""),
    **_of("/organizations/{id}", "organization"),
    **_interaction(),
    **_discovery(),
}
