"""The JSON management API, in rooms by subject. Each module declares its endpoints."""

from __future__ import annotations

import importlib
import pkgutil

from flask import Flask

_PREFIX = "/api/v1"


def register(app: Flask) -> None:
    """Register every endpoint at its path in the specification, and under /api/v1."""
    from app.api.endpoints import api, api_v1_only

    # The OpenAPI document is built on its first request: its modules are not imported before.
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not module.name.startswith(f"{__name__}.openapi."):
            importlib.import_module(module.name)
    # The portal renders the API reference from it.
    app.extensions["openapi_document"] = importlib.import_module(f"{__name__}.service").describe
    app.register_blueprint(api)
    app.register_blueprint(api, name="api_v1", url_prefix=_PREFIX)
    app.register_blueprint(api_v1_only, url_prefix=_PREFIX)
