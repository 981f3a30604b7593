"""The WSGI entry point: ``app`` for the server, and for ``flask --app wsgi``."""

from __future__ import annotations

from app import create_app

app = create_app()
