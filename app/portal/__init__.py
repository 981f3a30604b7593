"""Face: pages of developers and administrators."""

from __future__ import annotations

import importlib

from flask import Flask

from app.portal.blueprint import portal

# Each module adds its views to the blueprint by being imported.
_PAGES = (
    "chooser", "overview", "clients", "client_pages", "client_requests", "apis", "scopes", "credentials", "settings",
    "signing_keys",
    "roles", "users", "user_imports", "administrators", "organizations", "logs", "audit", "tokens",
    "ceilings", "theme", "organization_logo", "setup",
    "registration_tokens", "registrations", "webhooks", "revocations", "rotations",
)  # fmt: skip


def register(app: Flask) -> None:
    """/portal answers."""
    for name in _PAGES:
        importlib.import_module(f"app.portal.{name}")
    app.register_blueprint(portal)
