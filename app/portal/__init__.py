"""Face."""

from __future__ import annotations

from flask import Flask


def register(app: Flask) -> None:
    """The face answers."""
