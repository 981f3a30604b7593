"""The portal: pages for developers and administrators."""

from __future__ import annotations

import importlib

from flask import Flask

from app.portal.context import portal

# Importing a module adds its views to the blueprint.
_PAGES = (
    "overview", "setup", "clients", "redirect_uris", "client_overview", "quickstarts", "client_claims",
    "client_secrets", "tokens", "client_requests", "registration_tokens", "apis",
    "access_requests", "playground",
    "users", "attributes", "groups", "user_imports", "roles", "settings", "branding", "webhooks", "logs", "requests",
    "organizations", "instance_limits", "search",
)  # fmt: skip


def register(app: Flask) -> None:
    """Add the pages below /portal and /setup."""
    for name in _PAGES:
        importlib.import_module(f"app.portal.{name}")
    app.register_blueprint(portal)
