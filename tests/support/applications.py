"""The application under test: on a migrated database, with the keys of the worker's instance folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from flask import Flask
from flask.testing import FlaskClient
from flask_migrate import upgrade

from app import config, create_app
from app.operations.clients import metadata_documents
from app.operations.store import usage_counters
from tests.support.caches import clear_directory_cache, clear_recorded_uses, forget_busiest, forget_failures
from tests.support.databases import Contents, Database
from tests.support.template_cache import template_cache

BASE_URL = "http://localhost"
# By kind of database: what one has after all migrations, which take longer than to create its tables.
_migrated: dict[str, Contents] = {}


class Client(FlaskClient):
    """A test client that uses the application's base URL, so that Host and Origin are realistic."""

    def open(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            kwargs.setdefault("base_url", urljoin(self.application.config["TEST_BASE_URL"], "/"))
        return super().open(*args, **kwargs)


def application(database: Database, instance: Path, base_url: str) -> Flask:
    """Return the application on the database, migrated to the newest schema."""
    app = create_app(config.load(environment(database, instance, base_url)))
    app.testing = True
    app.config["TEST_BASE_URL"] = base_url
    app.test_client_class = Client
    app.jinja_env.bytecode_cache = template_cache()
    migrated = _migrated.get(database.kind)
    if migrated is not None and database.is_empty():
        database.fill(migrated)
    else:
        with app.app_context():
            upgrade()
    database.remember()
    if migrated is None:
        _migrated[database.kind] = database.contents()
    return app


def forget(app: Flask) -> None:
    """Clear the process's caches of earlier database contents."""
    clear_directory_cache()
    forget_failures()
    clear_recorded_uses()
    usage_counters.counters.forget()
    forget_busiest()
    metadata_documents.clear_document_cache()
    app.extensions["failed_requests"].forget()


def environment(database: Database, instance: Path, base_url: str) -> dict[str, str]:
    """Return the environment settings of an instance under test."""
    return {
        "DATABASE_URL": database.url,
        "GATEHOUSE_BASE_URL": base_url,
        "GATEHOUSE_INSTANCE": str(instance),
        "GATEHOUSE_JANITOR": "off",
        "GATEHOUSE_SECURITY_CONTACT": "mailto:security@example.com,https://example.com/report",
    }
