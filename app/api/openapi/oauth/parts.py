"""OpenAPI: what the endpoints of the OAuth wire share: forms, client authentication, refusals, pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Place:
    """Where an endpoint of the wire stands: at the root, or below the issuer of an organization."""

    prefix: str
    parameters: tuple[str, ...]
    # Begins the operation ids.
    name: str
    # What the organization in the path adds to the refusals: there may be none of that name.
    missing: tuple[str, ...]

    def called(self, word: str) -> str:
        """The operation id here of what is called ``word`` at the root."""
        return f"{self.name}{word[0].upper()}{word[1:]}" if self.name else word


_PLACES = (Place("", (), "", ()), Place("/organizations/{id}", ("OrganizationId",), "organization", ("404",)))


def everywhere(paths: Callable[[Place], Schema]) -> Schema:
    """The paths at both places."""
    return {path: item for place in _PLACES for path, item in paths(place).items()}


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
