"""Tell security researchers whom to contact: ``/.well-known/security.txt`` (RFC 9116)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flask import Blueprint, Flask, Response, abort

from app.config import current

# The file must say until when it may be relied on (RFC 9116 section 2.5.5). It is read again much earlier.
VALID_DAYS = 30
PATH = "/.well-known/security.txt"
blueprint = Blueprint("security_txt", __name__)


@blueprint.get(PATH)
def show() -> Response:
    """Respond with the contacts of GATEHOUSE_SECURITY_CONTACT, or 404 if it is not set."""
    config = current()
    if not config.security_contacts:
        abort(404)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0)
    lines = [f"Contact: {uri}" for uri in config.security_contacts]
    lines.append(f"Expires: {today + timedelta(days=VALID_DAYS):%Y-%m-%dT%H:%M:%SZ}")
    lines.append(f"Canonical: {config.base_url}{PATH}")
    response = Response("\n".join(lines) + "\n", content_type="text/plain; charset=utf-8")
    response.headers["Cache-Control"] = "public, max-age=3600"
    return response


def register(app: Flask) -> None:
    """Add the route at the root of the URL space."""
    app.register_blueprint(blueprint)
