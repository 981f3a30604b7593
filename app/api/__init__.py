"""Face: the JSON management API. Modules of this package add their routes to the blueprint."""

from __future__ import annotations

import importlib
import pkgutil

from flask import Flask

_PREFIX = "/api/v1"


def register(app: Flask) -> None:
    """Every path of the API answers as the specification gives it, and under /api/v1."""
    from app.api.blueprint import api, api_v1_only

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    app.register_blueprint(api)
    app.register_blueprint(api, name="api_v1", url_prefix=_PREFIX)
    app.register_blueprint(api_v1_only, url_prefix=_PREFIX)
