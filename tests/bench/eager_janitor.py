"""The application as it is served, with a janitor that looks for expired rows each second instead of each minute."""

from __future__ import annotations

from app.web import background

background.EVERY_SECONDS = 1.0

from wsgi import app  # noqa: E402 - its threads start with the application

__all__ = ["app"]
