"""Responses of the OAuth endpoints with all of their headers: JSON, JWT, errors, DPoP nonces and CORS."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from flask import Response
from msgspec import Struct

from app import config
from app.oauth.client_log import record_refusal
from app.oauth.protocol_request import ProtocolRequest
from app.operations.clients import dpop_proofs
from app.operations.directory.snapshots import AuthenticatedClient
from app.rules.clients.redirect_uris import get_web_origin
from app.rules.errors import DomainError, InvalidClient, OAuthError
from app.web.headers import program_headers, redirect_headers, response_headers

REALM = "gatehouse"
STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
_JSON = (("Content-Type", "application/json"), ("Pragma", "no-cache"))


class ProtocolResponse(Struct):
    """A response with its complete headers."""

    status: int
    body: bytes
    headers: list[tuple[str, str]]

    def to_flask(self) -> Response:
        """Return the response as Flask's."""
        return Response(self.body, self.status, self.headers)


class UnreadableResponse(OAuthError):
    """The request succeeded, but the web page that sent it cannot read the response. Only the client's log says why."""

    code = "cors_origin_not_allowed"

    def __init__(self, status: int, origin: str, registered: Iterable[str]) -> None:
        super().__init__("The browser did not let the web page read the response.")
        self.status = status
        self.with_cause("cors_origin_not_allowed", received=origin, expected=sorted(registered))


def json_response(document: Mapping[str, Any], status: int = 200) -> ProtocolResponse:
    """Return a JSON response that must not be stored (RFC 6749 section 5.1)."""
    body = json.dumps(document).encode()
    length = ("Content-Length", str(len(body)))
    return ProtocolResponse(status, body, [*_JSON, *program_headers(config.current().is_https), length])


def empty_response() -> ProtocolResponse:
    """Return a response without a body."""
    headers = [("Pragma", "no-cache"), *program_headers(config.current().is_https)]
    return ProtocolResponse(HTTPStatus.NO_CONTENT, b"", headers)


def redirect_response(location: str) -> ProtocolResponse:
    """Return a redirect of the browser to a client, after a form or not, never a 307 (RU-7)."""
    headers = [("Location", location), *redirect_headers(config.current().is_https)]
    return ProtocolResponse(HTTPStatus.SEE_OTHER, b"", headers)


def jwt_response(jwt: str, media_type: str) -> ProtocolResponse:
    """Return a response whose body is a JWT."""
    body = jwt.encode()
    headers = [("Content-Type", media_type), ("Content-Length", str(len(body)))]
    return ProtocolResponse(200, body, [*headers, *program_headers(config.current().is_https)])


def error_response(error: DomainError, request: ProtocolRequest) -> ProtocolResponse:
    """Return the error in the form of RFC 6749 section 5.2, and record it in the client's log of failed requests."""
    record_refusal(error, request)
    response = unlogged_error_response(error)
    # Required if the client used this header, with whatever scheme.
    if isinstance(error, InvalidClient) and request.authorization:
        response.headers.append(("WWW-Authenticate", f'Basic realm="{REALM}"'))
    return response


def unlogged_error_response(error: DomainError) -> ProtocolResponse:
    """Return the error in the same form where no client sends requests: a stranger can name one there."""
    response = json_response({"error": error.code, "error_description": error.description}, error.status)
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        response.headers.append(("Retry-After", str(retry_after)))
    return response


def with_dpop_nonce(response: ProtocolResponse, request: ProtocolRequest) -> ProtocolResponse:
    """Add the nonce for the next proof, for callers that send proofs (RFC 9449 section 8.2)."""
    if request.dpop_proof is not None:
        response.headers.append(("DPoP-Nonce", dpop_proofs.fresh_nonce()))
    return response


def with_cors(
    response: ProtocolResponse, request: ProtocolRequest, authenticated: AuthenticatedClient | None
) -> ProtocolResponse:
    """Let the client's own web pages read the response: those at the origin of a redirect URI (CR-3)."""
    origin = request.origin
    if origin is not None:
        uris = authenticated.client.document["redirect_uris"] if authenticated is not None else ()
        registered = {found for uri in uris if (found := get_web_origin(uri)) is not None}
        is_allowed = origin in registered
        if authenticated is not None and not is_allowed and response.status < 400:
            record_refusal(UnreadableResponse(response.status, origin, registered), request)
        response.headers += response_headers(origin, is_allowed=is_allowed, status=response.status)
    return response
