"""The portal: pages for developers and administrators."""

from __future__ import annotations

import importlib
import pkgutil

from flask import Flask

from app.portal.context import portal


def register(app: Flask) -> None:
    """Add the pages below /portal and /setup: importing a module of this package adds its views."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    app.register_blueprint(portal)
