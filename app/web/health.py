"""Health checks: ``/healthz`` for the process, ``/readyz`` for what it depends on. The first returns the version."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flask import Blueprint, Flask, Response, current_app, jsonify

from app.config import VERSION
from app.operations.maintenance.readiness import require_database_ready
from app.rules.errors import Unavailable
from app.web.json_api import error_response

blueprint = Blueprint("health", __name__)
_log = logging.getLogger("gatehouse.health")


@blueprint.get("/healthz")
def alive() -> Response:
    """Respond 200 without checking anything else: restarting this process would not repair a database."""
    return _no_store(jsonify(success=True, data="alive", version=VERSION))


@blueprint.get("/readyz")
def ready() -> Response:
    """Respond 200 while requests can be served, otherwise 503 with Retry-After.

    A process that is about to stop answers 503 first, and goes on to serve until its port closes.
    """
    is_draining: Callable[[], bool] | None = current_app.config.get("IS_DRAINING")
    try:
        if is_draining is not None and is_draining():
            raise Unavailable("This process is about to stop.", retry_after=1)
        require_database_ready()
    except Unavailable as refusal:
        _log.warning("not ready: %s", refusal.__cause__ or refusal)
        return error_response(refusal)
    return _no_store(jsonify(success=True, data="ready"))


def _no_store(answer: Response) -> Response:
    answer.headers["Cache-Control"] = "no-store"
    return answer


def register(app: Flask) -> None:
    """Add both routes at the root of the URL space."""
    app.register_blueprint(blueprint)
