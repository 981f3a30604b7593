"""The second lock on forms: a browser says where a request came from, and another site's is refused (CF-1).

The first lock is the form token. ``Sec-Fetch-Site`` is sent by every browser of today; where it is missing the
``Origin`` must be ours. A program that sends neither carries nobody's cookies by accident.
"""

from __future__ import annotations

from flask import Flask, current_app, request
from flask_wtf.csrf import CSRFError

from app.config import Config

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_BLUEPRINTS = frozenset({"portal", "account", "interaction", "device"})


def refuse_other_sites(app: Flask) -> None:
    """Posts of pages are checked before their views; programs send no cookies, so theirs are not."""

    @app.before_request
    def check() -> None:
        if request.blueprint in _BLUEPRINTS and request.method not in _SAFE:
            check_origin()


def check_origin() -> None:
    """The request was made by a page of this service. Raises CSRFError."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        if site not in {"same-origin", "none"}:
            raise CSRFError("The form was sent from another site.")
        return
    origin = request.headers.get("Origin")
    config: Config = current_app.config["GATEHOUSE"]
    if origin is not None and origin not in {config.base_url, request.host_url.rstrip("/")}:
        raise CSRFError("The form was sent from another site.")
