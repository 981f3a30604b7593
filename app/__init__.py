"""Gatehouse: authentication and authorization for many organizations."""

from __future__ import annotations

from flask import Flask

from app import account, api, config, database, oauth, portal, scim, web
from app.extensions import db
from app.operations import subscriptions


def create_app(configuration: config.Config | None = None, *, commands: bool = True) -> Flask:
    """Create the application. Without ``configuration`` it is read from the environment.

    Without ``commands`` the application can only serve requests: a worker needs neither migrations nor the command
    line, which are an eighth of its memory.
    """
    settings = configuration or config.load()
    app = Flask(
        __name__, template_folder=str(config.ROOT / "templates"), static_folder=str(config.ROOT / "static")
    )
    app.config["GATEHOUSE"] = settings
    app.config["SECRET_KEY"] = settings.secret_key
    subscriptions.connect()
    database.configure(app, settings)
    oauth.install_fast_path(app)
    web.register(app, settings)
    oauth.register(app)
    api.register(app)
    scim.register(app)
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
