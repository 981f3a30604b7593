"""The origin check of forms, in addition to the CSRF token: requests from other sites are rejected (CF-1).

All current browsers send ``Sec-Fetch-Site``. Without it, ``Origin`` must be this service. A client that sends neither
is not a browser and does not send a user's cookies by accident.
"""

from __future__ import annotations

from flask import Flask, current_app, request
from flask_wtf.csrf import CSRFError

from app.config import Config

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_BLUEPRINTS = frozenset({"portal", "account", "interaction", "device"})


def refuse_other_sites(app: Flask) -> None:
    """Check unsafe requests to pages before their views. APIs use no cookies and are not checked."""

    @app.before_request
    def check() -> None:
        if request.blueprint in _BLUEPRINTS and request.method not in _SAFE:
            check_origin()


def check_origin() -> None:
    """Raise CSRFError if another site sent the request."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        if site not in {"same-origin", "none"}:
            raise CSRFError("The form was sent from another site.")
        return
    origin = request.headers.get("Origin")
    config: Config = current_app.config["GATEHOUSE"]
    if origin is not None and origin not in {config.base_url, request.host_url.rstrip("/")}:
        raise CSRFError("The form was sent from another site.")
