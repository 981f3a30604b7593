"""Headers of responses: security, challenges of the API, and CORS, which says what pages of other origins may read.

Every page may read public documents, and errors of the endpoints that web apps call: without them an app sees only
that its request failed, and not that its token has expired. They reveal nothing that the same request without a
browser would not. A success is for the origins of the client that is authenticated, or of the organization's list
for the management API. Nothing else allows any origin, and no response allows cookies
(https://fetch.spec.whatwg.org/#http-cors-protocol).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from flask import Flask, Response, current_app, g, request
from msgspec import Struct
from werkzeug.exceptions import MethodNotAllowed

from app.config import Config, current
from app.rules.clients.dpop import ALGORITHMS
from app.rules.clients.redirect_uris import get_web_origin
from app.rules.errors import Forbidden, HasDefaultText
from app.rules.languages.translation import lazy_gettext
from app.web.languages import add_language_headers
from app.web.static_files import static_files

PageClass = Literal["portal", "account", "flow"]
View = TypeVar("View", bound=Callable[..., Any])

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_FEATURES = (
    "accelerometer, autoplay, camera, display-capture, fullscreen, geolocation, gyroscope, hid, "
    "idle-detection, magnetometer, microphone, midi, payment, serial, usb, xr-spatial-tracking"
)
_PERMISSIONS_POLICY = ", ".join(f"{name}=()" for name in _FEATURES.split(", "))
# Where nothing more is known, such as while a page's form waits for a limit.
_RETRY_SECONDS = "60"
_HSTS = "max-age=31536000; includeSubDomains"
_ALGS = f'algs="{" ".join(ALGORITHMS)}"'


def page_class(kind: PageClass) -> Callable[[View], View]:
    """Decorate a view with the class of its pages.

    ``portal`` and ``account`` pages post to ourselves alone. ``flow`` pages are those whose form may end at a
    client: Chromium holds ``form-action`` against the whole redirect chain of a form and would silently cancel
    sign-in and consent, so they have none; and a client that opened us in a popup keeps its window, so they do
    not isolate it.
    """

    def mark(view: View) -> View:
        view.page_class = kind  # type: ignore[attr-defined]
        return view

    return mark


@functools.cache
def program_headers(is_https: bool) -> tuple[tuple[str, str], ...]:
    """Return all headers of a response to a program, to be passed to its Response together.

    Setting them one by one would cost the token endpoints more than everything else in this module.
    """
    headers = [
        ("X-Content-Type-Options", "nosniff"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Content-Security-Policy", _NOTHING),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
        ("Server", ""),  # Granian would name itself in its place (HD-4).
    ]
    if is_https:
        headers.append(("Strict-Transport-Security", _HSTS))
    return tuple(headers)


@functools.cache
def redirect_headers(is_https: bool) -> tuple[tuple[str, str], ...]:
    """Return all headers of a redirect to a client but its Location: those of a page of class ``flow``."""
    headers = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Length", "0"),
        ("X-Content-Type-Options", "nosniff"),
        ("Server", ""),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", _POLICY),
        ("X-Frame-Options", "DENY"),
        ("Permissions-Policy", _PERMISSIONS_POLICY),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Opener-Policy", "unsafe-none"),
        ("Vary", "Cookie"),
    ]
    if is_https:
        headers.append(("Strict-Transport-Security", _HSTS))
    return tuple(headers)


def page_policy(form_action: str) -> str:
    """Return the Content-Security-Policy of a page whose forms submit to these sources (CSP 3 section 6.4.1)."""
    return f"{_POLICY}; form-action {form_action}"


def register(app: Flask) -> None:
    """Answer preflight requests, and add the headers to every response; headers that a view has set are kept."""
    config: Config = app.config["GATEHOUSE"]
    app.before_request(_preflight)
    app.after_request(_add_cors_headers)
    app.after_request(lambda response: _harden(app, config, response))


def _harden(app: Flask, config: Config, response: Response) -> Response:
    headers = response.headers
    if response.status_code in {429, 503} and "Retry-After" not in headers:
        headers["Retry-After"] = _RETRY_SECONDS
    if "X-Content-Type-Options" in headers:
        return response  # Made with ``program_headers``.
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Server"] = ""
    headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    if config.is_https:
        headers["Strict-Transport-Security"] = _HSTS
    if request.endpoint == "static":
        version, file = request.args.get("v"), static_files().get((request.view_args or {})["filename"])
        if file is not None and version is None:
            headers["Cache-Control"] = "public, max-age=3600"
        elif file is not None and version == file.version:
            headers["Cache-Control"] = "public, max-age=31536000, immutable"
        else:
            # The page came from another version of the service, or the next version may have the file.
            headers["Cache-Control"] = "no-cache"
        headers["Content-Security-Policy"] = _NOTHING
        return response
    if "Cache-Control" not in headers:
        headers["Cache-Control"] = "no-store"
    if response.mimetype != "text/html":
        headers.setdefault("Content-Security-Policy", _NOTHING)
        headers.setdefault("Referrer-Policy", "no-referrer")
        return response
    kind = _class_of_page(app)
    headers.setdefault("Content-Security-Policy", _POLICY if kind == "flow" else page_policy("'self'"))
    headers["X-Frame-Options"] = "DENY"
    headers["Permissions-Policy"] = _PERMISSIONS_POLICY
    # Under no-referrer browsers send "Origin: null" with form posts, which would fail the origin check (CF-2).
    headers.setdefault("Referrer-Policy", "same-origin")
    headers["Cross-Origin-Opener-Policy"] = "unsafe-none" if kind == "flow" else "same-origin"
    response.vary.add("Cookie")
    add_language_headers(response)
    return response


def _class_of_page(app: Flask) -> PageClass:
    chosen: PageClass | None = getattr(app.view_functions.get(request.endpoint or ""), "page_class", None)
    if chosen is not None:
        return chosen
    if request.blueprint == "portal":
        return "portal"
    # Any other page, an error page included, may be between a form and a client.
    return "account" if request.blueprint == "account" else "flow"


_API = frozenset({"api", "api_v1", "api_v1_only"})
_ISSUER = r"(?:/organizations/[^/]+)?"
# Agents add a header with the version of their protocol, so these have preflight requests too.
_PUBLIC = re.compile(
    rf"{_ISSUER}/(?:oauth/(?:jwks|status-lists(?:/[^/]+)?)|\.well-known/.+)|(?:/api/v1)?/openapi\.json"
)
_CLIENTS = re.compile(rf"{_ISSUER}/oauth/(?:token|revoke|userinfo|par|(?P<registration>register(?:/.*)?))")
_PREFLIGHT_SECONDS = "600"
_EXPOSED = ", ".join(("DPoP-Nonce", "ETag", "Location", "Retry-After", "WWW-Authenticate", "X-Request-Id"))


class _Policy(Struct, frozen=True):
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


class OriginNotAllowed(HasDefaultText, Forbidden):
    """The organization does not let web pages of this origin call the management API."""

    code = "origin_not_allowed"
    default_description = lazy_gettext(
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


def _add_cors_headers(response: Response) -> Response:
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


def challenges(resource: str, why: Mapping[str, str], *, by_dpop: bool) -> list[str]:
    """Return the values of the ``WWW-Authenticate`` headers.

    ``resource`` holds the parameters that describe the resource (``realm="…"``), ``why`` those of the error, none of
    them user input. ``by_dpop`` means that the token was presented by DPoP; other callers see both schemes.
    """
    error = "".join(f', {name}="{value}"' for name, value in why.items())
    if by_dpop:
        return [f"DPoP {resource}{error}, {_ALGS}"]
    return [f"Bearer {resource}{error}", f"DPoP {resource}, {_ALGS}"]


def is_by_dpop(header: str | None) -> bool:
    """Return whether the Authorization header has the scheme DPoP, well-formed or not."""
    return (header or "").lower().startswith("dpop ")
