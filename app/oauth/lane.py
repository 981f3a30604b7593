"""The lane: token, introspection and revocation requests, keys and metadata go past Flask's own request handling.

Flask spends as much on a request's context, URL map, session and hooks as a token costs in all, and none of it is
for these. Only what is plainly one of them takes the lane: a POST of a form of known length, or a GET of a public
document, to a trusted host. Everything else goes on to Flask, whose routes have the same handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flask import Flask

from app.config import at_work
from app.oauth import documents, introspection, revocation, token
from app.oauth.answer import STATUS_LINES, Answer, answer
from app.oauth.call import LONGEST_BODY, Call
from app.oauth.wire import FORM

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

HANDLERS = {"token": token.issue, "introspect": introspection.introspect, "revoke": revocation.revoke}
DOCUMENTS = {"jwks": documents.jwks, "metadata": documents.metadata}
_METADATA = ("openid-configuration", "oauth-authorization-server")
_log = logging.getLogger("gatehouse.oauth")


class Lane:
    """WSGI in front of the application it belongs to."""

    def __init__(self, app: Flask, otherwise: WSGIApplication) -> None:
        self.app = app
        self.otherwise = otherwise

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            return self._read(environ, start_response)
        name, slug = _endpoint_of(environ["PATH_INFO"])
        if name is None or not self._is_plain(environ):
            return self.otherwise(environ, start_response)
        # Not Flask's own context: making and ending one costs a tenth of what a token does.
        token = at_work.set(self.app)
        try:
            given = _handled(name, Call(environ, slug))
        finally:
            at_work.reset(token)
        start_response(STATUS_LINES[given.status], given.headers)
        return [given.body]

    def _read(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        name, slug = _document_of(environ["PATH_INFO"])
        if name is None or not self._is_trusted(environ):
            return self.otherwise(environ, start_response)
        token = at_work.set(self.app)
        try:
            given = DOCUMENTS[name](Call(environ, slug))
        except Exception:  # noqa: BLE001 - Flask's route does it again, and has the words for what is wrong
            return self.otherwise(environ, start_response)
        finally:
            at_work.reset(token)
        start_response(STATUS_LINES[given.status], given.headers)
        return [given.body]

    def _is_plain(self, environ: WSGIEnvironment) -> bool:
        length = environ.get("CONTENT_LENGTH", "")
        return (
            environ["REQUEST_METHOD"] == "POST"
            and environ.get("CONTENT_TYPE") == FORM
            and length.isascii()
            and length.isdigit()
            and len(length) < 10
            and int(length) <= LONGEST_BODY
            and self._is_trusted(environ)
        )

    def _is_trusted(self, environ: WSGIEnvironment) -> bool:
        return _host_of(environ) in self.app.config["TRUSTED_HOSTS"]


def _handled(name: str, call: Call) -> Answer:
    try:
        return HANDLERS[name](call)
    except Exception:  # noqa: BLE001 - the last resort, as Flask's own: logged, told to nobody, nothing goes on
        _log.exception("a request of the wire failed", extra={"request_id": call.request_id})
        words = "Something went wrong here. It was noted."
        return answer({"error": "server_error", "error_description": words}, 500)


def _host_of(environ: WSGIEnvironment) -> str:
    host: str = environ.get("HTTP_HOST", "")
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _endpoint_of(path: str) -> tuple[str | None, str | None]:
    """(name, slug of the organization or None) of a path that has a handler."""
    parts = path.split("/")
    if len(parts) == 3 and parts[1] == "oauth" and parts[2] in HANDLERS:
        return parts[2], None
    if len(parts) == 5 and parts[1] == "organizations" and parts[3] == "oauth" and parts[4] in HANDLERS:
        return parts[4], parts[2]
    return None, None


def _document_of(path: str) -> tuple[str | None, str | None]:
    """(name, slug of the organization or None) of a path that a public document stands at."""
    parts = path.split("/")
    slug: str | None = None
    if len(parts) == 5 and parts[1] == "organizations":
        _, _, slug, *parts[1:] = parts
    elif len(parts) == 5 and parts[1] == ".well-known" and parts[3] == "organizations":
        slug = parts.pop()
        parts.pop()
    if len(parts) != 3 or slug == "":
        return None, None
    if parts[1] == "oauth" and parts[2] == "jwks":
        return "jwks", slug
    if parts[1] == ".well-known" and parts[2] in _METADATA:
        return "metadata", slug
    return None, None
