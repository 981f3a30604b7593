"""The handlers of the fast path: the OAuth endpoints that ``app.fast_path`` answers without Flask."""

from __future__ import annotations

import logging

from flask import Flask

from app.config import Config
from app.fast_path.middleware import Endpoints, FastPathMiddleware
from app.oauth import authorize, discovery, userinfo
from app.oauth.client_endpoints import respond
from app.oauth.protocol_request import MAX_BODY, ProtocolRequest, handle
from app.oauth.protocol_response import STATUS_LINES, ProtocolResponse, json_response, with_cors

_log = logging.getLogger("gatehouse.oauth")


def install_fast_path(app: Flask) -> None:
    """Put the fast path innermost, directly in front of Flask, unless the configuration switches it off."""
    config: Config = app.config["GATEHOUSE"]
    if "middleware" not in config.disabled_fast_paths:
        app.wsgi_app = FastPathMiddleware(app, app.wsgi_app, ENDPOINTS)  # type: ignore[method-assign]


def _userinfo(request: ProtocolRequest) -> ProtocolResponse:
    # Raised here, an unknown organization is Flask's to answer.
    request.organization_id  # noqa: B018
    return handle(userinfo.userinfo, request)


def _authorize(request: ProtocolRequest) -> ProtocolResponse | None:
    return handle(authorize.issue_at_once, request)


def _failed(request: ProtocolRequest) -> ProtocolResponse:
    """Log the exception being handled and answer without its details."""
    _log.exception("an OAuth request failed", extra={"request_id": request.request_id})
    description = "Something went wrong on our side. Include the request ID when you report it."
    response = json_response({"error": "server_error", "error_description": description}, 500)
    return with_cors(response, request, None) if request.endpoint != "introspect" else response


ENDPOINTS = Endpoints(
    make_request=ProtocolRequest,
    posts={"token": respond, "introspect": respond, "revoke": respond},
    gets={
        "authorize": _authorize,
        "jwks": discovery.jwks,
        "metadata": discovery.metadata,
        "userinfo": _userinfo,
    },
    on_error=_failed,
    status_lines=STATUS_LINES,
    max_body_bytes=MAX_BODY,
)
