"""Logos of clients and organizations. The URL holds a digest of the content, so it may be cached forever."""

from __future__ import annotations

from flask import Response

from app.operations.clients import logos
from app.operations.organizations import branding


def show(client_id: str, digest: str) -> Response:
    """Return the logo of a client. Raises NotFound."""
    return _picture(logos.get_logo(client_id, digest))


def show_of_organization(organization_id: str, digest: str) -> Response:
    """Return the logo of an organization. Raises NotFound."""
    return _picture(branding.get_logo_picture(organization_id, digest))


def _picture(content: bytes) -> Response:
    answer = Response(content, mimetype="image/png")
    answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return answer
