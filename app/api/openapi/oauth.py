"""The OAuth 2.0 and OpenID Connect endpoints in the OpenAPI document, at the root and under each issuer."""

# Names of parameters are no passwords.
# ruff: noqa: S106

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.api.endpoints import JsonSchema, component, object_schema, reference
from app.api.openapi.components import ERRORS
from app.rules.authorization.authorization_request import (
    MAX_ID_TOKEN_HINT_LENGTH,
    MAX_NONCE_BYTES,
    MAX_STATE_BYTES,
)
from app.rules.sign_in.provider_tokens import MAX_TOKEN_LENGTH
from app.rules.tokens import status_lists

_MAX_LENGTH = 4096
_MAX_JWT_LENGTH = 8192
_PUBLIC: list[dict[str, list[str]]] = [{}]
_BEARER: list[dict[str, list[str]]] = [{"bearer": []}]
_CLIENT: list[dict[str, list[str]]] = [{"client": []}, {}]
_REGISTRATION: list[dict[str, list[str]]] = [{"registration": []}]
_PAGE: JsonSchema = {"text/html": {"schema": {"type": "string"}}}
_ORGANIZATION = [{"$ref": "#/components/parameters/OrganizationId"}]
_PROOF: JsonSchema = {
    "parameters": [
        {
            "name": "DPoP",
            "in": "header",
            "required": False,
            "description": "A proof of possession of the key that tokens are bound to (RFC 9449), used once.",
            "schema": {"type": "string", "maxLength": 4096},
        }
    ]
}


def _text(description: str = "", **keywords: Any) -> JsonSchema:
    return {"type": "string", **({"description": description} if description else {}), **keywords}


def _texts(*names: str, **described: str) -> JsonSchema:
    """Return parameters of at most 4096 characters; their description is their name unless it is given."""
    return {
        name: _text(text, maxLength=_MAX_LENGTH) for name, text in ({n: n for n in names} | described).items()
    }


_TEXT, _INTEGER = _text(), {"type": "integer"}
_URIS: JsonSchema = {"type": "array", "items": _TEXT}
_RESOURCE: JsonSchema = {
    "type": "array",
    "description": "The resources that the tokens are for (RFC 8707). Repeat the parameter for several.",
    "items": _TEXT,
}
_CLIENT_FIELDS = _texts(
    client_id="If the client does not authenticate with the header.",
    client_secret="For client_secret_post.",
    client_assertion_type="For private_key_jwt (RFC 7523).",
) | {"client_assertion": _text("For private_key_jwt: a signed JWT, used once.", maxLength=_MAX_JWT_LENGTH)}
_AUTHORIZATION: JsonSchema = {
    "response_type": _text("Always `code` (RFC 6749 section 4.1.1).", enum=["code"]),
    "response_mode": _text("How the response is returned.", enum=["query", "form_post"]),
    **_texts(
        "client_id",
        "prompt",
        "max_age",
        "login_hint",
        "acr_values",
        "ui_locales",
        scope="By default all scopes of the client.",
        identity_provider="The `slug` of the identity provider that the user should sign in with. Not a standard.",
        redirect_uri="A registered redirect URI, compared exactly.",
        code_challenge="The PKCE challenge (RFC 7636). `pkce_policy` in the metadata says who needs one.",
        request_uri="The reference to a pushed authorization request (RFC 9126).",
        dpop_jkt="The thumbprint of the key that the code is bound to (RFC 9449 section 10).",
    ),
    "state": _text(
        f"Returned unchanged. At most {MAX_STATE_BYTES} bytes in UTF-8.", maxLength=MAX_STATE_BYTES
    ),
    "nonce": _text(
        f"Returned in the ID token. At most {MAX_NONCE_BYTES} bytes in UTF-8.", maxLength=MAX_NONCE_BYTES
    ),
    "code_challenge_method": _text("Always `S256`.", enum=["S256"]),
    "id_token_hint": _text("An ID token of the expected user.", maxLength=MAX_ID_TOKEN_HINT_LENGTH),
    "claims": _text("Requested claims, as a JSON object.", maxLength=_MAX_JWT_LENGTH),
    "resource": _RESOURCE,
    "request": _text("A signed request object with the parameters (RFC 9101).", maxLength=24576),
}
_TOKEN: JsonSchema = {
    **_texts(
        "code",
        "redirect_uri",
        "code_verifier",
        "refresh_token",
        "scope",
        grant_type="One of `grant_types_supported` in the metadata.",
        device_code="For the device code grant (RFC 8628).",
        subject_token_type="For token exchange.",
        actor_token_type="With an actor_token.",
        requested_token_type="For token exchange.",
    ),
    "resource": _RESOURCE,
    "subject_token": _text("For token exchange (RFC 8693).", maxLength=_MAX_JWT_LENGTH),
    "actor_token": _text("For token exchange: who acts, if not the client.", maxLength=_MAX_JWT_LENGTH),
    **_CLIENT_FIELDS,
}
_TOKEN_QUERY = {
    "token": _text("An access token, also a JWT, or a refresh token.", maxLength=_MAX_JWT_LENGTH),
    **_texts(token_type_hint="Where to look first. All kinds of tokens are found without it."),
    **_CLIENT_FIELDS,
}
_LOGOUT: JsonSchema = {
    "id_token_hint": _text(
        "An ID token of the session, possibly expired. The session ends without a confirmation."
    ),
    "logout_hint": _text("Accepted but not used."),
    "client_id": _text("The client."),
    "post_logout_redirect_uri": _text("A registered URI, compared exactly. Requires an id_token_hint."),
    "state": _text("Returned at the post_logout_redirect_uri."),
    "ui_locales": _text("The languages of the user, the preferred one first."),
}
_DEVICE = {"scope": _texts("scope")["scope"], **_texts(resource="RFC 8707."), **_CLIENT_FIELDS}
_METADATA = object_schema(
    redirect_uris={**_URIS, "description": "The redirect URIs, compared exactly."},
    client_name=_text("The name that users see."),
    scope=_text("The scopes that the client can request, separated by spaces."),
    grant_types={**_URIS, "description": "The grant types. By default `authorization_code`."},
    token_endpoint_auth_method=_text("How the client authenticates. By default `client_secret_basic`."),
) | {
    "description": "Client metadata (RFC 7591 section 2 and OpenID Connect Registration). Unknown names are ignored. "
    "Scopes, grants and methods are restricted to those that the organization allows."
}

SCHEMAS: JsonSchema = {
    "ClientRegistration": _METADATA,
    "ClientReplacement": _METADATA
    | {
        "description": "The client's metadata as a whole (RFC 7592 section 2.2): what is left out gets its default.",
        "required": ["client_id"],
        "properties": {"client_id": _text("The client's own ID."), **_METADATA["properties"]},
    },
    "OAuthErrorResponse": {"anyOf": [reference("OAuthError"), reference("ErrorResponse")]},
    "OAuthError": object_schema(
        ["error"],
        closed=True,
        error=_text("An error code of RFC 6749 section 5.2."),
        error_description=_text("What happened and what to do, for developers."),
    ),
    "TokenAnswer": object_schema(
        ["access_token", "token_type", "expires_in"],
        closed=True,
        access_token=_text("Send it to the API as `Authorization: Bearer`, or `DPoP` with a proof."),
        token_type=_text("DPoP if the request had a proof (RFC 9449).", enum=["Bearer", "DPoP"]),
        expires_in={**_INTEGER, "description": "The lifetime of the access token in seconds."},
        scope=_text("Absent if the token has no scopes."),
        refresh_token=_text("Gets new tokens at the token endpoint. Absent without that grant."),
        id_token=_text("A signed JWT about the user. Only with the scope `openid`."),
        issued_token_type=_text("For token exchange (RFC 8693 section 2.2.1)."),
    ),
    "Introspection": object_schema(
        ["active"], active={"type": "boolean", "description": "Whether the token is accepted."}
    )
    | {"description": 'RFC 7662. `{"active": false}` for every token that the caller may not inspect.'},
    "Claims": object_schema(["sub"], sub=_text("The user, as this client knows them.")),
    "Metadata": object_schema(
        ["issuer", "authorization_endpoint", "token_endpoint", "jwks_uri", "response_types_supported"],
        issuer=_text("The `iss` of tokens of this issuer."),
    ),
    "Keys": object_schema(
        ["keys"],
        closed=True,
        keys={
            "type": "array",
            "description": "JSON Web Keys.",
            "items": {"type": "object", "required": ["kty", "kid"]},
        },
    ),
    "StatusLists": object_schema(
        ["status_lists"],
        closed=True,
        status_lists={"type": "array", "description": "URLs of status lists.", "items": {"type": "string"}},
    ),
    "PushedRequest": object_schema(
        ["request_uri", "expires_in"],
        closed=True,
        request_uri=_text("Send it to the authorization endpoint with the client_id."),
        expires_in={**_INTEGER, "description": "In seconds."},
    ),
    "DeviceAuthorization": object_schema(
        [
            "device_code",
            "user_code",
            "verification_uri",
            "verification_uri_complete",
            "expires_in",
            "interval",
        ],
        closed=True,
        device_code=_text("The code that the device sends to the token endpoint."),
        user_code=_text("The code that the user enters."),
        verification_uri=_text("Where the user enters it."),
        verification_uri_complete=_text("The same, with the code, for a QR code."),
        expires_in={**_INTEGER, "description": "In seconds."},
        interval={**_INTEGER, "description": "The minimum number of seconds between two polls."},
    ),
    "ClientInformation": object_schema(
        ["client_id", "registration_access_token", "registration_client_uri"],
        client_id=_text("The permanent ID of the client."),
        client_secret=_text("Only if it was just created."),
        client_secret_expires_at={**_INTEGER, "description": "0 means that it does not expire."},
        registration_access_token=_text("Reads, updates and deletes the registration."),
        registration_client_uri=_text("The URL of the registration."),
    )
    | {"description": "RFC 7591 section 3.2.1 and RFC 7592 section 3."},
}


def paths() -> JsonSchema:
    """Return the paths."""
    at_issuers = _at_issuer(is_root=True) | _at_issuer(is_root=False)
    return at_issuers | _interaction_pages() | _provider_logout() | _discovery()


def _at_issuer(*, is_root: bool) -> JsonSchema:
    """Return the endpoints at the root, or under the issuer of an organization, which may not exist."""
    faults = [400, 401, 405, 413, 415, 429, 500, 503, *([] if is_root else [404])]
    public = [400, 404, 405, 500, 503]
    shown = _pages(
        "Continue to sign-in or consent, or return to the client with `code`, `state` and `iss`.", is_root
    )
    logout = _logout_pages(is_root)
    own = [400, 401, 403, 404, 405, 413, 415, 429, 500, 503]
    created, got = (
        _json("The registration.", "ClientInformation", 201),
        _json("The registration.", "ClientInformation"),
    )
    metadata, replacing = (
        {"required": True, "content": {"application/json": {"schema": reference(name)}}}
        for name in ("ClientRegistration", "ClientReplacement")
    )
    signed = {"application/token-introspection+jwt": {"schema": _TEXT}}
    introspection = _json("The token. Signed if the Accept header asks for it (RFC 9701).", "Introspection")
    introspection["200"]["content"] |= signed
    revoked = {"200": {"description": "The token is revoked, or was unknown.",
                       "content": {"application/json": {"schema": {"type": "object"}}}}}  # fmt: skip
    claims = _json("The claims.", "Claims") | _errors(403, *faults)
    names_and_paths: dict[str, JsonSchema] = {
        "authorize": {
            "get": _operation("authorize", "Request authorization from a user", shown, query=_AUTHORIZATION),
            "post": _operation("authorizeByForm", "Request authorization with a form", shown, form=_AUTHORIZATION),
        },
        "token": {
            "post": _operation(
                "issueToken", "Obtain tokens", _json("The tokens.", "TokenAnswer") | _errors(*faults),
                form=_TOKEN, required=["grant_type"], security=_CLIENT,
            ) | _PROOF,
        },
        "introspect": {
            "post": _operation(
                "introspect", "Introspect a token (RFC 7662)", introspection | _errors(*faults),
                form=_TOKEN_QUERY, required=["token"], security=_CLIENT,
            ),
        },
        "revoke": {
            "post": _operation(
                "revokeByForm", "Revoke a token (RFC 7009)", revoked | _errors(*faults),
                form=_TOKEN_QUERY, required=["token"], security=_CLIENT,
            ),
        },
        "userinfo": {
            "get": _operation("userinfo", "Get claims about the user", claims, security=_BEARER) | _PROOF,
            "post": _operation("userinfoByPost", "Get claims about the user", claims, security=_BEARER) | _PROOF,
        },
        "jwks": {
            "get": _operation(
                "keys", "Get the public signing keys (RFC 7517)",
                _json("A public document.", "Keys") | _errors(*public),
            ),
        },
        "status-lists": {
            "get": _operation(
                "statusLists", "List the status lists of JWT access tokens (draft-ietf-oauth-status-list-17)",
                _json("The URLs of all lists.", "StatusLists") | _errors(*public),
            ),
        },
        "status-lists/{statusListId}": {
            "get": _operation(
                "statusList", "Get a status list (draft-ietf-oauth-status-list-17)",
                # Without its media type, which generators of clients do not know.
                {"200": {"description": f"The list as a signed JWT ({status_lists.MEDIA_TYPE})."}} | _errors(*public),
            ),
        },
        "par": {
            "post": _operation(
                "pushRequest", "Push an authorization request (RFC 9126)",
                _json("The request was stored.", "PushedRequest", 201) | _errors(*faults),
                form={**_AUTHORIZATION, **_CLIENT_FIELDS}, without=["request_uri"], security=_CLIENT,
            ),
        },
        "device_authorization": {
            "post": _operation(
                "authorizeDevice", "Start a sign-in on a device (RFC 8628)",
                _json("The codes.", "DeviceAuthorization") | _errors(*faults),
                form=_DEVICE, security=_CLIENT,
            ),
        },
        "logout": {
            "get": _operation("endSession", "Sign the user out", logout, query=_LOGOUT),
            "post": _operation("endSessionByForm", "Sign the user out with a form", logout, form=_LOGOUT),
        },
        "register": {
            "post": _operation("registerItself", "Register a client (RFC 7591)", created | _errors(409, *own),
                               requestBody=metadata, security=[*_PUBLIC, *_REGISTRATION]),
        },
        "register/{registeredClientId}": {
            "get": _operation("readRegistration", "Get the client's own registration (RFC 7592)", got | _errors(*own),
                              security=_REGISTRATION),
            "put": _operation("replaceRegistration", "Replace the client's own registration (RFC 7592)",
                              got | _errors(409, *own), requestBody=replacing, security=_REGISTRATION),
            "delete": _operation("removeRegistration", "Delete the client's own registration (RFC 7592)",
                                 {"204": {"description": "The registration was deleted."}, **_errors(*own)},
                                 security=_REGISTRATION),
        },
    }  # fmt: skip
    prefix = "" if is_root else "/organizations/{id}"
    return {
        f"{prefix}/oauth/{name}": _located(item, name, is_root=is_root)
        for name, item in names_and_paths.items()
    }


def _located(item: JsonSchema, name: str, *, is_root: bool) -> JsonSchema:
    """Return the path item with its path parameters, and with operationIds that differ between the two places."""
    own = name.partition("{")[2].removesuffix("}")
    parameters = [
        *([] if is_root else _ORGANIZATION),
        *([{"$ref": f"#/components/parameters/{_capitalized(own)}"}] if own else []),
    ]
    if not is_root:
        for operation in item.values():
            operation["operationId"] = f"organization{_capitalized(operation['operationId'])}"
    return ({"parameters": parameters} if parameters else {}) | item


def _interaction_pages() -> JsonSchema:
    redirected = _pages(
        "Continue to sign-in or consent, or return to the client with `code`, `state` and `iss`.", False
    )
    asked = {"200": _page("The page that asks the user."), **redirected}
    posted = asked | {"403": _page("Sent from another site.")}
    stored: JsonSchema = {"request": _text("The ID of the stored request.", maxLength=200)}
    token = {"csrf_token": _text("The token of the page's form.")}
    choice = {**stored, "account": _text("The session of the chosen account.", maxLength=64), **token}
    decision = {
        **stored,
        "decision": _text("The user's decision.", enum=["allow", "deny"]),
        "scope": _text("A scope that the user left selected."),
        **token,
    }
    confirmed = {status: page for status, page in _logout_pages(False).items() if status != "200"}
    confirmed["403"] = _page("Sent from another site.")
    items: dict[str, JsonSchema] = {
        "authorize/resume": {
            "get": _operation("resumeAuthorization", "Return from sign-in", asked, query=stored)
        },
        "authorize/account": {
            "get": _operation("showAccounts", "Choose an account", asked, query=stored),
            "post": _operation("chooseAccount", "Continue with the chosen account", posted, form=choice),
        },
        "authorize/decision": {
            "post": _operation("decideAuthorization", "Submit the user's decision", posted, form=decision)
        },
        "logout/confirm": {
            "post": _operation("confirmLogout", "Confirm the sign-out", confirmed, form={**_LOGOUT, **token})
        },
    }
    return {
        f"/organizations/{{id}}/oauth/{path}": {"parameters": _ORGANIZATION} | item
        for path, item in items.items()
    }


def _provider_logout() -> JsonSchema:
    provider = {"name": "provider", "in": "path", "required": True, "schema": _text(maxLength=40),
                "description": "The name in URLs of the identity provider that signs a user out."}  # fmt: skip
    ended = {"200": {"description": "The sessions have ended, or there were none.",
                     "content": {"application/json": {"schema": {"type": "object"}}}}}  # fmt: skip
    operation = _operation(
        "endProviderSessions",
        "End the sessions that an identity provider ends (OpenID Connect Back-Channel Logout)",
        ended | _errors(400, 404, 405, 413, 415, 500, 503),
        form={
            "logout_token": _text("The provider's logout token, a signed JWT.", maxLength=MAX_TOKEN_LENGTH)
        },
        required=["logout_token"],
    )
    path = "/organizations/{id}/oauth/backchannel-logout/{provider}"
    return {path: {"parameters": [*_ORGANIZATION, provider], "post": operation}}


def _discovery() -> JsonSchema:
    found: JsonSchema = {}
    summary = "Get the issuer's metadata (RFC 8414, OpenID Connect Discovery)"
    responses = _json("A public document.", "Metadata") | _errors(400, 404, 405, 500, 503)
    for document, word in (("openid-configuration", "openid"), ("oauth-authorization-server", "oauth")):
        for place, path in {
            "Root": f"/.well-known/{document}",
            "Inserted": f"/.well-known/{document}/organizations/{{id}}",
            "Appended": f"/organizations/{{id}}/.well-known/{document}",
        }.items():
            item = {"get": _operation(f"{word}Metadata{place}", summary, responses)}
            found[path] = ({} if place == "Root" else {"parameters": _ORGANIZATION}) | item
    return found


def _operation(
    identifier: str,
    summary: str,
    responses: JsonSchema,
    *,
    form: Mapping[str, JsonSchema] | None = None,
    query: Mapping[str, JsonSchema] | None = None,
    required: Iterable[str] = (),
    without: Iterable[str] = (),
    security: list[dict[str, list[str]]] = _PUBLIC,
    **more: JsonSchema,
) -> JsonSchema:
    operation: JsonSchema = {"operationId": identifier, "summary": summary, "tags": ["OAuth 2.0"],
                             "responses": responses, "security": security, **more}  # fmt: skip
    if form is not None:
        fields = {name: schema for name, schema in form.items() if name not in set(without)}
        about = {"properties": fields, "description": f"The form of `{identifier}`."}
        schema = component(
            f"{_capitalized(identifier.removesuffix('ByForm'))}Form", object_schema(required) | about
        )
        content = {"application/x-www-form-urlencoded": {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": content}
    if query is not None:
        operation["parameters"] = [
            {"name": name, "in": "query", "required": False, "schema": schema,
             "description": schema.get("description", name)}
            for name, schema in query.items()
        ]  # fmt: skip
    return operation


def _capitalized(name: str) -> str:
    return f"{name[0].upper()}{name[1:]}"


def _json(description: str, schema: str, status: int = 200) -> JsonSchema:
    return {
        str(status): {
            "description": description,
            "content": {"application/json": {"schema": reference(schema)}},
        }
    }


def _errors(*statuses: int) -> JsonSchema:
    content = {"application/json": {"schema": reference("OAuthErrorResponse")}}
    return {str(status): _error(status, content) for status in sorted(statuses)}


def _error(status: int, content: JsonSchema) -> JsonSchema:
    waits = {"headers": {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}}
    return {"description": _describe(status), "content": content} | (waits if status in {429, 503} else {})


def _describe(status: int) -> str:
    # A body of another type than a form is invalid_request, with 400.
    return "The body has a Content-Encoding." if status == 415 else ERRORS[status][1]


def _page(description: str) -> JsonSchema:
    return {"description": description, "content": _PAGE}


def _pages(redirect: str, is_root: bool) -> JsonSchema:
    invalid = _page("The client or redirect_uri is invalid. An error page, never a redirect.")
    return {"303": {"description": redirect}, "400": invalid} | _error_pages(is_root)


def _error_pages(is_root: bool) -> JsonSchema:
    statuses = (405, 413, 415, 429, 500, 503) if is_root else (404, 405, 413, 415, 429, 500, 503)
    return {str(status): _error(status, _PAGE) for status in statuses}


def _logout_pages(is_root: bool) -> JsonSchema:
    return {
        "200": _page("The question whether to sign out."),
        "303": {"description": "Signed out: return to the client, or continue to the page that says so."},
        "400": _page("An error page."),
    } | _error_pages(is_root)
