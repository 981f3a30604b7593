"""Initial access tokens in the portal, and the marks of self-registered clients."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from app.rules.actor import Actor
from tests.factories import Factory
from tests.support.form_browser import Page
from tests.support.registration import register

SETTINGS = {"oauth": {"dynamic_registration": {"mode": "initial_access_token"}}}


def press(http: FlaskClient, path: str, element: str, **typed: str) -> Any:
    page = http.get(path)
    assert page.status_code == 200, page.text[:800]
    form = Page("", 200, page.text).form_with(element)
    return http.post(form.action, data=dict(form.values) | typed)


def test_token_is_created_shown_once_and_revoked(app: Flask, http: FlaskClient, make: Factory) -> None:
    organization = make.organization(settings=SETTINGS)
    make.sign_in(make.user(organization, role="admin"), http)
    here = f"/portal/{organization.slug}/registration-tokens"
    assert here in http.get(f"/portal/{organization.slug}/clients").text
    made = press(http, here, "max_uses", name="Laboratory", days="7", max_uses="2")
    assert made.status_code == 303
    made = http.get(made.location)
    assert "gth_ia_" in made.text
    token = made.text.split("gth_ia_")[1].split("<")[0].split('"')[0]
    listed = http.get(here)
    assert "Laboratory" in listed.text and "0 of 2" in listed.text and token not in listed.text
    with app.app_context():
        metadata = {"redirect_uris": ["https://weather.example/cb"], "client_name": "Weather Bot"}
        register(Actor.anonymous(organization.id), metadata, f"gth_ia_{token}")
    clients = http.get(f"/portal/{organization.slug}/clients?source=dynamic").text
    assert "Weather Bot" in clients and "Not reviewed" in clients
    assert "Weather Bot" not in http.get(f"/portal/{organization.slug}/clients?source=person").text
    revoke = listed.text.split(f'href="{here}/ria_')[1].split('"')[0]
    page = http.get(f"{here}/ria_{revoke}")
    form = Page("", 200, page.text)
    assert "Impact" in page.text
    token_field = form.text.split('name="csrf_token" value="')[1].split('"')[0]
    gone = http.post(f"{here}/ria_{revoke}", data={"csrf_token": token_field})
    assert gone.status_code == 303
    assert "Laboratory" not in http.get(here).text


def test_invalid_values_show_errors_at_their_fields(http: FlaskClient, make: Factory) -> None:
    organization = make.organization(settings=SETTINGS)
    make.sign_in(make.user(organization, role="admin"), http)
    here = f"/portal/{organization.slug}/registration-tokens"
    answer = press(http, here, "max_uses", name="", days="9999", max_uses="none")
    assert answer.status_code == 400
    for message in ("This field is required.", "Enter a whole number"):
        assert message in answer.text
    answer = press(http, here, "max_uses", name="Laboratory", days="9999", max_uses="1")
    assert answer.status_code == 400 and "from 1 to 365" in answer.text


def test_auditor_cannot_create_token(http: FlaskClient, make: Factory) -> None:
    organization = make.organization(settings=SETTINGS)
    make.sign_in(make.user(organization, role="auditor"), http)
    page = http.get(f"/portal/{organization.slug}/registration-tokens")
    assert page.status_code == 200 and "Create a token" not in page.text
