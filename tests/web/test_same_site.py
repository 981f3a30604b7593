"""The origin check of forms (CF-1)."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.web import browser_session
from tests.factories import Factory


def test_every_form_page_checks_the_origin(app: Flask) -> None:
    """CF-1: the CSRF token and the origin check protect the same pages; other endpoints use no cookies."""
    with_forms = {
        rule.endpoint.rpartition(".")[0]
        for rule in app.url_map.iter_rules()
        if "POST" in (rule.methods or ())
    }
    exempt = {"api", "api_v1", "api_v1_only", "oauth", "organization_oauth", "provider_logout", "scim"}
    assert with_forms - exempt == browser_session._BLUEPRINTS


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}],
)
def test_device_code_from_another_site_is_rejected(
    app: Flask, http: FlaskClient, make: Factory, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    """CF-1, DV-1: without CSRF tokens, the origin check alone rejects it."""
    organization = make.organization()
    make.sign_in(make.user(organization), http)
    monkeypatch.setitem(app.config, "WTF_CSRF_ENABLED", False)
    answer = http.post(
        f"/organizations/{organization.slug}/device", data={"user_code": "BCDF-GHJK"}, headers=headers
    )
    assert answer.status_code == 400 and "form_expired" in answer.text
