"""The handlers of the fast path: the OAuth endpoints that ``app.fast_path`` answers without Flask."""

from __future__ import annotations

import logging

from flask import Flask

from app.config import Config
from app.fast_path.middleware import Endpoints, FastPathMiddleware
from app.oauth import documents, introspection, revocation, token
from app.oauth.answer import STATUS_LINES, Answer, answer
from app.oauth.call import LONGEST_BODY, Call

_log = logging.getLogger("gatehouse.oauth")


def install_fast_path(app: Flask) -> None:
    """Put the fast path innermost, directly in front of Flask, unless the configuration switches it off."""
    config: Config = app.config["GATEHOUSE"]
    if "middleware" not in config.disabled_fast_paths:
        app.wsgi_app = FastPathMiddleware(app, app.wsgi_app, ENDPOINTS)  # type: ignore[method-assign]


def _failed(call: Call) -> Answer:
    """Log the exception being handled and answer without its details."""
    _log.exception("an OAuth request failed", extra={"request_id": call.request_id})
    description = "Something went wrong on our side. Include the request id when you report it."
    return answer({"error": "server_error", "error_description": description}, 500)


ENDPOINTS = Endpoints(
    make_request=Call,
    posts={"token": token.issue, "introspect": introspection.introspect, "revoke": revocation.revoke},
    documents={"jwks": documents.jwks, "metadata": documents.metadata},
    on_error=_failed,
    status_lines=STATUS_LINES,
    max_body_bytes=LONGEST_BODY,
)
