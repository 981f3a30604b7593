"""Gatehouse: authentication and authorization for many organizations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask

from app import account, api, cli, config, database, oauth, portal, web
from app.extensions import db, migrate


class Gatehouse(Flask):
    """Flask that knows that no view is a coroutine; it would look anew at each of a request's functions."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """The function as it is."""
        return func


def create_app(configuration: config.Config | None = None) -> Flask:
    """The application. ``configuration`` is read from the environment when left out."""
    settings = configuration or config.load()
    app = Gatehouse(
        __name__, template_folder=str(config.ROOT / "templates"), static_folder=str(config.ROOT / "static")
    )
    app.config["GATEHOUSE"] = settings
    app.config["SECRET_KEY"] = settings.secret_key
    database.configure(app, settings)
    migrate.init_app(app, db=db, directory=str(config.ROOT / "migrations"), render_as_batch=True)
    oauth.open_lane(app)
    web.register(app, settings)
    oauth.register(app)
    api.register(app)
    portal.register(app)
    account.register(app)
    cli.register(app)
    return app
