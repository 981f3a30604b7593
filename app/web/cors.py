"""CORS: which responses the web pages of other origins may read (https://fetch.spec.whatwg.org/#http-cors-protocol).

Every page may read public documents, and errors of the endpoints that web apps call: without them an app sees only
that its request failed, and not that its token has expired. They reveal nothing that the same request without a
browser would not. A success is for the origins of the client that is authenticated, or of the organization's list
for the management API. Nothing else allows any origin, and no response allows cookies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flask import Flask, Response, current_app, g, request
from werkzeug.exceptions import MethodNotAllowed

from app.config import current
from app.rules.clients.redirect_uris import get_web_origin
from app.rules.errors import Forbidden

_API = frozenset({"api", "api_v1", "api_v1_only"})
_ISSUER = r"(?:/organizations/[^/]+)?"
# Agents add a header with the version of their protocol, so these have preflight requests too.
_PUBLIC = re.compile(
    rf"{_ISSUER}/(?:oauth/(?:jwks|status-lists(?:/[^/]+)?)|\.well-known/.+)|(?:/api/v1)?/openapi\.json"
)
_CLIENTS = re.compile(rf"{_ISSUER}/oauth/(?:token|revoke|userinfo|par|(?P<registration>register(?:/.*)?))")
_PREFLIGHT_SECONDS = "600"
_EXPOSED = ", ".join(("DPoP-Nonce", "ETag", "Location", "Retry-After", "WWW-Authenticate", "X-Request-Id"))


@dataclass(frozen=True, slots=True)
class _Policy:
    """The answer to a preflight request of an endpoint, and whether every page may read every response."""

    methods: str
    headers: str
    is_public: bool = False


_DOCUMENT = _Policy("GET, HEAD", "*", is_public=True)
_ENDPOINT = _Policy("GET, POST", "Authorization, Content-Type, DPoP")
_REGISTRATION = _Policy("GET, POST, PUT, DELETE", "Authorization, Content-Type", is_public=True)
_MANAGEMENT = _Policy(
    "GET, HEAD, POST, PUT, DELETE",
    "Authorization, Content-Type, DPoP, Idempotency-Key, If-Match, If-None-Match",
)


class OriginNotAllowed(Forbidden):
    """The organization does not let web pages of this origin call the management API."""

    code = "origin_not_allowed"

    def __init__(self) -> None:
        super().__init__(
            "The organization does not allow web pages at this origin to call the management API. "
            "Add the origin to the setting management_api.allowed_origins."
        )


def require_allowed_origin(allowed: list[str]) -> None:
    """Raise OriginNotAllowed if the request comes from a page of another origin that is not in the list."""
    origin = request.headers.get("Origin")
    if origin is None or origin == get_web_origin(current().base_url):
        return
    if origin not in allowed:
        raise OriginNotAllowed
    g.cors_origin = origin


def response_headers(origin: str | None, *, is_allowed: bool, status: int) -> list[tuple[str, str]]:
    """Return the headers that let a page of ``origin`` read a response: an allowed page, or any page an error."""
    if origin is None:
        return []
    headers = [("Vary", "Origin")]
    if is_allowed or status >= 400:
        # Never the origin "null" by name: every sandboxed page has it.
        headers += [
            ("Access-Control-Allow-Origin", origin if is_allowed else "*"),
            ("Access-Control-Expose-Headers", _EXPOSED),
        ]
    return headers


def register(app: Flask) -> None:
    """Answer preflight requests, and add the headers to the responses of Flask's routes and error handlers."""
    app.before_request(_preflight)
    app.after_request(_add_headers)


def _policy() -> _Policy | None:
    if _PUBLIC.fullmatch(request.path):
        return _DOCUMENT
    if found := _CLIENTS.fullmatch(request.path):
        return _REGISTRATION if found["registration"] else _ENDPOINT
    return _MANAGEMENT if request.path.startswith("/api/v1/") or _blueprint() in _API else None


def _blueprint() -> str | None:
    """Return the blueprint of the path, also where it does not have the method of the request."""
    error = request.routing_exception
    if not isinstance(error, MethodNotAllowed) or not error.valid_methods:
        return request.blueprint
    adapter = current_app.create_url_adapter(request)
    if adapter is None:
        return None
    endpoint, _ = adapter.match(method=next(iter(error.valid_methods)))
    return str(endpoint).rpartition(".")[0]


def _preflight() -> Response | None:
    """Answer a preflight request, alike for every origin and path: it reveals nothing about any client."""
    if request.method != "OPTIONS" or "Origin" not in request.headers or (policy := _policy()) is None:
        return None
    response = Response(status=204)
    del response.headers["Content-Type"]
    response.headers["Access-Control-Allow-Origin"] = "*" if policy.is_public else request.headers["Origin"]
    response.headers["Access-Control-Allow-Methods"] = policy.methods
    response.headers["Access-Control-Allow-Headers"] = policy.headers
    response.headers["Access-Control-Max-Age"] = _PREFLIGHT_SECONDS
    response.vary.add("Origin")
    return response


def _add_headers(response: Response) -> Response:
    policy = _policy()
    if policy is None or "Access-Control-Allow-Origin" in response.headers:
        return response
    if policy.is_public:
        response.headers["Access-Control-Allow-Origin"] = "*"
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        return response
    origin = request.headers.get("Origin")
    is_allowed = origin is not None and g.get("cors_origin") == origin
    for name, value in response_headers(origin, is_allowed=is_allowed, status=response.status_code):
        if name == "Vary":
            response.vary.add(value)
        else:
            response.headers[name] = value
    return response
