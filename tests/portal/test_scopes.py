"""Scopes at the portal: those that belong to no API get their words by a form alone."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.clients import resources, scopes
from tests.factories import Factory
from tests.portal.conftest import Person

NAMES = ("reports:read", "https://api.example/files.read")


@pytest.fixture
def unworded(app: Flask, acme: Any, make: Factory) -> None:
    with app.app_context():
        scopes.add_scopes(make.actor(acme), NAMES)


@pytest.mark.usefixtures("unworded")
@pytest.mark.parametrize("name", NAMES)
def test_a_scope_of_no_api_gets_words_and_loses_them_again(
    app: Flask, ada: Person, acme: Any, make: Factory, name: str
) -> None:
    ada.get("/scopes")
    assert "Wants words" in ada.text
    path = f"/scopes/{name}"
    ada.get(path)
    ada.send(path, version=ada.hidden("version"), title="Read your reports", description="All of them.")
    ada.follow()
    assert "Read your reports All of them." in ada.text
    ada.get(path)
    ada.send(path, version=ada.hidden("version"), title="", description="")
    with app.app_context():
        assert scopes.get_scope(make.actor(acme), name).title is None


@pytest.mark.usefixtures("unworded")
def test_what_is_wrong_or_late_stands_on_the_form(ada: Person) -> None:
    path = "/scopes/reports:read"
    ada.get(path)
    first = ada.hidden("version")
    assert ada.send(path, version=first, title="x" * 201).status_code == 400
    ada.send(path, version=first, title="See")
    assert ada.send(path, version=first, title="Look at").status_code == 412
    assert "Somebody changed these words" in ada.text
    assert ada.get("/scopes/never:was").status_code == 404


@pytest.mark.usefixtures("unworded")
def test_the_words_of_an_apis_scope_are_on_the_page_of_the_api(
    app: Flask, ada: Person, acme: Any, make: Factory
) -> None:
    with app.app_context():
        fields = {"identifier": "urn:api", "name": "Orders", "scopes": [{"name": "api:read"}]}
        api = resources.define_resource(make.actor(acme), fields)
    page = ada.get("/scopes/api:read")
    assert f'href="/portal/acme/apis/{api.public_id}"' in page.text
    assert "disabled" in page.text
    assert ada.send("/scopes/api:read", title="Mine").status_code == 400
    assert "belongs to a resource" in ada.text


@pytest.mark.usefixtures("unworded")
def test_forms_about_a_client_lead_to_the_scopes_that_want_words(ada: Person, person: Any, acme: Any) -> None:
    page = ada.get("/clients/new?type=web")
    assert 'href="/portal/acme/scopes/reports%3Aread"' in page.text
    # Whoever cannot write them is not sent there.
    grace = person(acme, "developer")
    assert "/scopes/reports" not in grace.get("/clients/new?type=web").text
    assert grace.get("/scopes/reports:read").status_code == 200
    assert grace.send("/scopes/reports:read", title="Mine").status_code == 403
