"""Clients that register and manage themselves over HTTP."""

from __future__ import annotations

from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.operations.directory.lookups import OrganizationSnapshot
from tests.factories import bearer_header

GOOD: dict[str, Any] = {
    "client_name": "Weather Bot",
    "redirect_uris": ["https://weather.example/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
}


def register(
    http: FlaskClient, organization: OrganizationSnapshot, token: str | None = None, **changes: Any
) -> TestResponse:
    body = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return http.post(
        f"/organizations/{organization.slug}/oauth/register",
        json=body,
        headers=bearer_header(token) if token else {},
    )


def own(http: FlaskClient, registered: dict[str, Any], method: str, **body: Any) -> TestResponse:
    path = registered["registration_client_uri"].removeprefix("http://localhost")
    headers = bearer_header(registered["registration_access_token"])
    return http.open(path, method=method, headers=headers, json=body or None)
