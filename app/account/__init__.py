"""Interface: signing in and out, invitations, and the account pages of users."""

from __future__ import annotations

import importlib
import pkgutil

from flask import Flask

from app.account.context import account


def register(app: Flask) -> None:
    """Add the pages under /login and /organizations/: importing a module of this package adds its views."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    app.register_blueprint(account)
