"""Titles and descriptions of scopes in the portal."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.clients import resources, scopes
from tests.factories import Factory
from tests.portal.conftest import PortalUser

NAMES = ("reports:read", "https://api.example/files.read")


@pytest.fixture
def untitled(app: Flask, acme: Any, make: Factory) -> None:
    with app.app_context():
        scopes.add_scopes(make.actor(acme), NAMES)


@pytest.mark.usefixtures("untitled")
@pytest.mark.parametrize("name", NAMES)
def test_scope_texts_are_saved_and_removed(
    app: Flask, ada: PortalUser, acme: Any, make: Factory, name: str
) -> None:
    ada.get("/scopes")
    assert "No title" in ada.text
    path = f"/scopes/{name}"
    ada.get(path)
    ada.send(path, version=ada.hidden("version"), title="Read your reports", description="All of them.")
    ada.follow()
    assert "Read your reports All of them." in ada.text
    ada.get(path)
    ada.send(path, version=ada.hidden("version"), title="", description="")
    with app.app_context():
        assert scopes.get_scope(make.actor(acme), name).title is None


@pytest.mark.usefixtures("untitled")
def test_invalid_or_stale_change_shows_error(ada: PortalUser) -> None:
    path = "/scopes/reports:read"
    ada.get(path)
    first = ada.hidden("version")
    assert ada.send(path, version=first, title="x" * 201).status_code == 400
    ada.send(path, version=first, title="See")
    assert ada.send(path, version=first, title="Look at").status_code == 412
    assert "Someone changed this scope" in ada.text
    assert ada.get("/scopes/never:was").status_code == 404


@pytest.mark.usefixtures("untitled")
def test_scope_of_api_is_edited_on_api_page(app: Flask, ada: PortalUser, acme: Any, make: Factory) -> None:
    with app.app_context():
        fields = {"identifier": "urn:api", "name": "Orders", "scopes": [{"name": "api:read"}]}
        api = resources.define_resource(make.actor(acme), fields)
    page = ada.get("/scopes/api:read")
    assert f'href="/portal/acme/apis/{api.public_id}"' in page.text
    assert "disabled" in page.text
    assert ada.send("/scopes/api:read", title="Mine").status_code == 409
    assert "This scope belongs to" in ada.text


@pytest.mark.usefixtures("untitled")
def test_client_form_links_to_scopes_without_title(ada: PortalUser, portal_user: Any, acme: Any) -> None:
    page = ada.get("/clients/new?type=web")
    assert 'href="/portal/acme/scopes/reports%3Aread"' in page.text
    # A developer cannot edit scopes, so the page does not link to them.
    grace = portal_user(acme, "developer")
    assert "/scopes/reports" not in grace.get("/clients/new?type=web").text
    assert grace.get("/scopes/reports:read").status_code == 200
    assert grace.send("/scopes/reports:read", title="Mine").status_code == 403


@pytest.mark.usefixtures("untitled")
@pytest.mark.parametrize("name", NAMES)
def test_scope_is_deleted_after_its_clients_were_named(
    app: Flask, ada: PortalUser, acme: Any, make: Factory, portal_user: Any, name: str
) -> None:
    with app.app_context():
        make.client(acme, name="Orchard", scopes=["openid", name])
    path = f"/scopes/{name}?delete=1"
    assert portal_user(acme, "developer").get(path).status_code == 403
    page = ada.get(path)
    assert "Orchard" in page.text and 'id="confirm"' in page.text
    ada.send(path)
    assert "Scope deleted." in ada.follow().text
    assert ada.get(f"/scopes/{name}").status_code == 404
    assert 'id="delete"' not in ada.get("/scopes/openid").text
    assert ada.send("/scopes/openid?delete=1").status_code == 409
