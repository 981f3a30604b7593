"""Which browser apps may read an answer: those whose redirect URIs lie on the asking origin (CR-3)."""

from __future__ import annotations

from flask import Response, request

from app.oauth.answer import Answer
from app.oauth.call import Call
from app.operations.directory.lookups import AuthenticatedClient
from app.rules.clients.redirect_uris import get_web_origin

_PREFLIGHT_SECONDS = "600"


def preflight() -> Response:
    """The answer to OPTIONS, alike for every origin: it tells nothing about any client."""
    response = Response(status=204)
    if "Origin" in request.headers:
        response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
        response.headers["Access-Control-Allow-Methods"] = "GET, POST"
        response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type, DPoP"
        response.headers["Access-Control-Max-Age"] = _PREFLIGHT_SECONDS
    response.vary.add("Origin")
    return response


def allow_own_origins(given: Answer, call: Call, authenticated: AuthenticatedClient | None) -> Answer:
    """The client's own web pages may read the answer; never with credentials, never ``null``."""
    origin = call.origin
    if origin is None:
        return given
    given.headers.append(("Vary", "Origin"))
    if authenticated is not None and origin in {
        get_web_origin(uri) for uri in authenticated.client.document["redirect_uris"]
    }:
        given.headers.append(("Access-Control-Allow-Origin", origin))
        given.headers.append(("Access-Control-Expose-Headers", "DPoP-Nonce, WWW-Authenticate"))
    return given
