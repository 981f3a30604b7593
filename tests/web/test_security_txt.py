"""/.well-known/security.txt (RFC 9116)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from flask import Flask
from flask.testing import FlaskClient

from tests.support.applications import BASE_URL

PATH = "/.well-known/security.txt"


def test_security_txt_names_contacts_expiry_and_canonical_url(http: FlaskClient) -> None:
    answer = http.get(PATH)
    assert answer.content_type == "text/plain; charset=utf-8"
    fields = [line.split(": ", 1) for line in answer.text.splitlines()]
    assert [value for name, value in fields if name == "Contact"] == [
        "mailto:security@example.com",
        "https://example.com/report",
    ]
    assert ["Canonical", BASE_URL + PATH] in fields
    [expires] = [datetime.fromisoformat(value) for name, value in fields if name == "Expires"]
    # It must not be stale, and should be less than a year ahead (section 2.5.5).
    assert timedelta(days=1) < expires - datetime.now(UTC) < timedelta(days=365)


def test_security_txt_without_a_contact_is_not_found(app: Flask, http: FlaskClient) -> None:
    config = app.config["GATEHOUSE"]
    app.config["GATEHOUSE"] = replace(config, security_contacts=())
    try:
        assert http.get(PATH).status_code == 404
    finally:
        app.config["GATEHOUSE"] = config
