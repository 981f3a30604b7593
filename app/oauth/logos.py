"""Logos of clients, from our own address: the name says the content, so it may be kept for ever."""

from __future__ import annotations

from flask import Response

from app.operations.registration.logos import get_picture


def show(client_id: str, digest: str) -> Response:
    """The picture. Raises NotFound."""
    answer = Response(get_picture(client_id, digest), mimetype="image/png")
    answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return answer
