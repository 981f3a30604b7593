"""WSGI middleware that answers the busiest OAuth endpoints without Flask's request handling.

Flask spends as much on a request's context, URL map, session and hooks as a token costs in all, and these endpoints
need none of it. Only plain requests are answered here: a POST of a form of known length, or a GET of userinfo, of a
public document, or of a code for a user who needs no page, to a trusted host. Everything else continues to Flask, whose
routes call the same handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from flask import Flask
from msgspec import Struct

from app.config import at_work
from app.metrics import ROUTE

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_FORM = "application/x-www-form-urlencoded"
_OAUTH_GETS = ("authorize", "jwks", "userinfo")
_METADATA = ("openid-configuration", "oauth-authorization-server")
# As Flask's routes are called in metrics.
_ROUTES = {
    **{name: f"oauth.{name}" for name in ("token", "introspect", "revoke", *_OAUTH_GETS)},
    "metadata": "discovery.metadata",
}


class Response(Protocol):
    """The response of a handler."""

    status: int
    body: bytes
    headers: list[tuple[str, str]]


Handler = Callable[[Any], Response]
GetHandler = Callable[[Any], Response | None]


class Endpoints(Struct, frozen=True):
    """The handlers that the middleware calls, and what they need.

    ``make_request`` takes the WSGI environment and the slug of the path's organization. ``posts`` are handlers by the
    last segment of their path, ``gets`` those of ``authorize``, ``jwks``, ``userinfo`` and ``metadata``; they return
    None for what Flask must answer. ``on_error`` answers for a handler that raised.
    """

    make_request: Callable[[WSGIEnvironment, str | None], Any]
    posts: Mapping[str, Handler]
    gets: Mapping[str, GetHandler]
    on_error: Handler
    status_lines: Mapping[int, str]
    max_body_bytes: int


class FastPathMiddleware:
    """WSGI middleware in front of ``next_application``."""

    def __init__(self, app: Flask, next_application: WSGIApplication, endpoints: Endpoints) -> None:
        self._app, self._next, self._endpoints = app, next_application, endpoints

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            return self._get(environ, start_response)
        name, slug = self._post_endpoint(environ["PATH_INFO"])
        if name is None or not self._is_plain_form(environ):
            return self._next(environ, start_response)
        environ[ROUTE] = _ROUTES[name]
        request = self._endpoints.make_request(environ, slug)
        # Pushing Flask's own application context costs a tenth of what a token does.
        token = at_work.set(self._app)
        try:
            response = self._endpoints.posts[name](request)
        except Exception:  # noqa: BLE001 - the last resort, as in Flask: on_error logs it and reveals no details
            response = self._endpoints.on_error(request)
        finally:
            at_work.reset(token)
        start_response(self._endpoints.status_lines[response.status], response.headers)
        return [response.body]

    def _get(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        name, slug = _get_endpoint(environ["PATH_INFO"])
        if name is None or not self._is_trusted_host(environ):
            return self._next(environ, start_response)
        token = at_work.set(self._app)
        try:
            response = self._endpoints.gets[name](self._endpoints.make_request(environ, slug))
        except Exception:  # noqa: BLE001 - Flask's route raises it again and has the error page for it
            response = None
        finally:
            at_work.reset(token)
        if response is None:
            return self._next(environ, start_response)
        environ[ROUTE] = _ROUTES[name]
        start_response(self._endpoints.status_lines[response.status], response.headers)
        return [response.body]

    def _post_endpoint(self, path: str) -> tuple[str | None, str | None]:
        """Return (endpoint, slug of the organization or None) of a path that has a handler."""
        parts, posts = path.split("/"), self._endpoints.posts
        if len(parts) == 3 and parts[1] == "oauth" and parts[2] in posts:
            return parts[2], None
        if len(parts) == 5 and parts[1] == "organizations" and parts[3] == "oauth" and parts[4] in posts:
            return parts[4], parts[2]
        return None, None

    def _is_plain_form(self, environ: WSGIEnvironment) -> bool:
        length = environ.get("CONTENT_LENGTH", "")
        return (
            environ["REQUEST_METHOD"] == "POST"
            and environ.get("CONTENT_TYPE") == _FORM
            and length.isascii()
            and length.isdigit()
            and len(length) < 10
            and int(length) <= self._endpoints.max_body_bytes
            and self._is_trusted_host(environ)
        )

    def _is_trusted_host(self, environ: WSGIEnvironment) -> bool:
        host: str = environ.get("HTTP_HOST", "")
        name, colon, port = host.rpartition(":")
        return (name if colon and port.isdigit() else host) in self._app.config["TRUSTED_HOSTS"]


def _get_endpoint(path: str) -> tuple[str | None, str | None]:
    """Return (endpoint, slug of the organization or None) of a path that has a handler."""
    parts = path.split("/")
    slug: str | None = None
    if len(parts) == 5 and parts[1] == "organizations":
        _, _, slug, *parts[1:] = parts
    elif len(parts) == 5 and parts[1] == ".well-known" and parts[3] == "organizations":
        slug = parts.pop()
        parts.pop()
    if len(parts) != 3 or slug == "":
        return None, None
    if parts[1] == "oauth" and parts[2] in _OAUTH_GETS:
        return parts[2], slug
    if parts[1] == ".well-known" and parts[2] in _METADATA:
        return "metadata", slug
    return None, None
