"""Gatehouse: authentication and authorization for many organizations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask

from app import account, api, config, database, oauth, portal, web
from app.extensions import db
from app.operations import subscriptions
from app.operations.maintenance import memory
from app.web.routes import Route


class Gatehouse(Flask):
    """Flask that knows that no view is a coroutine; it would look anew at each of a request's functions."""

    url_rule_class = Route

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """The function as it is."""
        return func


def create_app(configuration: config.Config | None = None, *, commands: bool = True) -> Flask:
    """The application. ``configuration`` is read from the environment when left out.

    Without ``commands`` it can serve and nothing else: a worker has no use for migrations and the command line,
    which are an eighth of its memory.
    """
    settings = configuration or config.load()
    app = Gatehouse(
        __name__, template_folder=str(config.ROOT / "templates"), static_folder=str(config.ROOT / "static")
    )
    app.config["GATEHOUSE"] = settings
    app.config["SECRET_KEY"] = settings.secret_key
    memory.release_large_blocks()
    memory.use_single_arena()
    subscriptions.connect()
    database.configure(app, settings)
    oauth.open_lane(app)
    web.register(app, settings)
    oauth.register(app)
    api.register(app)
    portal.register(app)
    account.register(app)
    if commands:
        _add_commands(app)
    return app


def _add_commands(app: Flask) -> None:
    from flask_migrate import Migrate

    from app import cli

    Migrate(app, db, directory=str(config.ROOT / "migrations"), render_as_batch=True)
    cli.register(app)
