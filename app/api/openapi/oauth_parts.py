"""OpenAPI: what the endpoints of the OAuth wire share: forms, client authentication, refusals, pages."""

from __future__ import annotations

from app.api.openapi.parts import REFUSALS, Schema, ref, text

TAG = "OAuth 2.0"
UNSECURED: list[dict[str, list[str]]] = [{}]
CLIENT: list[dict[str, list[str]]] = [{"client": []}, {}]
_LONG = 4096


def words(name: str, description: str = "", **more: object) -> Schema:
    """A parameter of a form or query."""
    return text(description or name, maxLength=_LONG, **more)


CLIENT_FIELDS = {
    "client_id": words("client_id", "When the client does not authenticate by the header."),
    "client_secret": words("client_secret", "With client_secret_post."),
    "client_assertion_type": words("client_assertion_type", "With private_key_jwt (RFC 7523)."),
    "client_assertion": text("With private_key_jwt: a JWT that the client signed, once.", maxLength=8192),
}
PAGE: Schema = {"text/html": {"schema": {"type": "string"}}}


def form(properties: Schema, *required: str) -> Schema:
    """A form-encoded body."""
    schema = {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
    }
    return {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": schema}}}


def refusals(*statuses: str) -> Schema:
    """The answers of these statuses, in the form of RFC 6749 section 5.2."""
    error = {"application/json": {"schema": {"anyOf": [ref("OAuthError"), ref("Error")]}}}
    return {status: {"description": REFUSALS[status][1], "content": error} for status in statuses}


def endpoint(
    identifier: str, summary: str, *, answers: Schema, security: list[dict[str, list[str]]], **more: Schema
) -> Schema:
    """One operation."""
    return {
        "operationId": identifier,
        "summary": summary,
        "tags": [TAG],
        "responses": answers,
        "security": security,
        **more,
    }


def plain(description: str, schema: Schema) -> Schema:
    """A JSON answer without an envelope."""
    return {"description": description, "content": {"application/json": {"schema": schema}}}
