"""Creating, changing and deleting APIs in the portal."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.clients import client_records, clients, resources
from app.operations.organizations.settings import update_settings
from tests.factories import Factory
from tests.portal.conftest import PortalUser

GOOD: dict[str, Any] = {
    "identifier": "https://orders.example/api",
    "name": "Orders",
    "description": "All about orders.",
    "scopes-0-name": "orders:read",
    "scopes-0-title": "See your orders",
    "scopes-0-description": "All of them.",
    "scopes-1-name": "",
    "scopes-1-description": "ignored",
    "scopes-2-name": "orders:write",
    "access_token_format": "jwt",
    "access_token_ttl_seconds": "300",
}


@pytest.fixture
def defined(app: Flask, acme: Any, make: Factory) -> resources.ResourceRecord:
    with app.app_context():
        fields = {
            "identifier": "urn:api",
            "name": "API",
            "scopes": [{"name": "api:read"}, {"name": "api:write"}],
        }
        return resources.define_resource(make.actor(acme), fields)


def only(app: Flask, make: Factory, organization: Any) -> resources.ResourceRecord:
    with app.app_context():
        [found] = resources.list_resources(make.actor(organization)).items
        return found


def test_api_is_created_with_scopes_and_metadata(
    app: Flask, ada: PortalUser, acme: Any, make: Factory
) -> None:
    ada.get("/apis")
    assert "No APIs yet" in ada.text
    ada.send("/apis/new", **GOOD)
    ada.follow()
    assert "API created" in ada.text
    made = only(app, make, acme)
    assert (made.identifier, made.name, made.access_token_format) == (GOOD["identifier"], "Orders", "jwt")
    assert made.access_token_ttl_seconds == 300
    assert [(scope.name, scope.title, scope.description) for scope in made.scopes] == [
        ("orders:read", "See your orders", "All of them."),
        ("orders:write", None, None),
    ]
    # RFC 9728: the metadata that the API serves, and the header of its 401 response.
    assert "https://orders.example/.well-known/oauth-protected-resource/api" in ada.text
    assert '"authorization_servers": [ "http://localhost/organizations/acme" ]' in ada.text
    assert "WWW-Authenticate: Bearer resource_metadata=" in ada.text
    ada.get("/apis?q=orders")
    assert GOOD["identifier"] in ada.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"identifier": "orders"}, "absolute URI"),
        ({"name": ""}, "This field is required."),
        ({"access_token_ttl_seconds": "soon"}, "Enter a whole number"),
        ({"access_token_ttl_seconds": "5"}, "from 60 to 86400"),
        ({"scopes-0-name": "a b"}, "Line 1"),
    ],
)
def test_invalid_value_shows_error_and_keeps_input(
    ada: PortalUser, changes: dict[str, Any], message: str
) -> None:
    answer = ada.send("/apis/new", **(GOOD | changes))
    assert answer.status_code == 400
    assert message in ada.text
    assert "All about orders." in ada.text


def test_api_does_without_stored_tokens_if_the_organization_permits(
    app: Flask, ada: PortalUser, acme: Any, make: Factory
) -> None:
    ada.get("/apis/new")
    assert "Revocation of JWTs" not in ada.text
    with app.app_context():
        permitted = {"oauth": {"access_token": {"allow_unstored": True}}}
        update_settings(make.system(acme), acme.slug, permitted)
    ada.get("/apis/new")
    assert "Revocation of JWTs" in ada.text
    ada.send("/apis/new", **GOOD, access_token_storage="status_list")
    assert only(app, make, acme).access_token_storage == "status_list"


def test_change_is_saved_and_stale_change_is_rejected(
    app: Flask, ada: PortalUser, acme: Any, make: Factory, defined: resources.ResourceRecord
) -> None:
    path = f"/apis/{defined.public_id}"
    fields: dict[str, Any] = {
        "name": "Renamed",
        "scopes-0-name": "api:read",
        "scopes-0-title": "See",
    }
    ada.get(path)
    version = ada.hidden("version")
    ada.send(path, version=version, **fields)
    ada.follow()
    assert "Saved" in ada.text
    changed = only(app, make, acme)
    assert (changed.name, changed.status, len(changed.scopes)) == ("Renamed", "disabled", 1)
    stale = ada.send(path, version=version, **fields)
    assert stale.status_code == 412


def test_scopes_in_use_are_removed_only_after_confirmation(
    app: Flask, ada: PortalUser, acme: Any, make: Factory, defined: resources.ResourceRecord
) -> None:
    holder = make.client(acme, name="Shop", scopes=["openid", "api:read", "api:write"])
    path = f"/apis/{defined.public_id}"
    fields: dict[str, Any] = {
        "name": "API",
        "is_active": "1",
        "scopes-0-name": "api:read",
    }
    answer = ada.send(path, **fields)
    assert answer.status_code == 400
    assert "used by 1 client" in ada.text
    assert "Remove the missing scopes" in ada.text
    ada.send(path, confirmed="1", **fields)
    ada.follow()
    with app.app_context():
        assert clients.get_client(make.actor(acme), holder.client_id).scopes == ("openid", "api:read")
    ada.get(f"{path}/delete")
    assert "1 client will lose access" in ada.text
    assert "Shop" in ada.text
    assert "it rejects existing ones immediately" in ada.text
    wrong = ada.send(f"{path}/delete", typed="Apy")
    assert wrong.status_code == 400
    ada.send(f"{path}/delete", typed="API")
    ada.follow()
    assert "API deleted" in ada.text
    with app.app_context():
        assert clients.get_client(make.actor(acme), holder.client_id).scopes == ("openid",)


def test_auditor_has_read_only_access(acme: Any, portal_user: Any, defined: resources.ResourceRecord) -> None:
    auditor = portal_user(acme, "auditor")
    auditor.get(f"/apis/{defined.public_id}")
    assert "You have read-only access to this API." in auditor.text
    assert auditor.get(f"/apis/{defined.public_id}/delete").status_code == 403
    assert auditor.get("/apis/new").status_code == 403
    developer = portal_user(acme, "developer")
    assert developer.get(f"/apis/{defined.public_id}").status_code == 404
    assert developer.get("/apis/new").status_code == 200


def test_administrator_allows_token_exchange(app: Flask, make: Factory, portal_user: Any) -> None:
    exchange = "urn:ietf:params:oauth:grant-type:token-exchange"
    organization = make.organization(settings={"oauth": {"grant_types": ["client_credentials", exchange]}})
    ada = portal_user(organization)
    client = make.client(organization, type="machine", redirect_uris=[], scopes=[], name="API")
    path = f"/clients/{client.client_id}/advanced"
    ada.get(path)
    fields = {
        "version": ada.hidden("version"),
        "grant_types": ["client_credentials", exchange],
        "token_endpoint_auth_method": "client_secret_basic",
    }
    assert ada.send(path, **fields).status_code == 400
    ada.send(path, **fields, token_exchange="delegation")
    ada.follow()
    with app.app_context():
        found = clients.get_client(make.actor(organization), client.client_id)
    assert found.token_exchange == "delegation"


def test_developer_cannot_allow_token_exchange(app: Flask, make: Factory, portal_user: Any) -> None:
    """The field is not shown to a developer, and the operation refuses a forged form that contains it."""
    exchange = "urn:ietf:params:oauth:grant-type:token-exchange"
    organization = make.organization(settings={"oauth": {"grant_types": ["client_credentials", exchange]}})
    grace = portal_user(organization, "developer")
    with app.app_context():
        own = make.actor(organization, "clients:read:own", "clients:write:own", user=grace.user)
        made = clients.register_client(own, {"name": "API", "type": "machine"}).client
    path = f"/clients/{made.client_id}/advanced"
    grace.get(path)
    assert 'name="token_exchange"' not in grace.text
    fields = {
        "version": grace.hidden("version"),
        "grant_types": ["client_credentials", exchange],
        "token_endpoint_auth_method": "client_secret_basic",
        "token_exchange": "delegation",
    }
    assert grace.send(path, **fields).status_code == 403
    with app.app_context():
        found = clients.get_client(make.actor(organization), made.client_id)
    assert (found.token_exchange, found.grant_types) == (None, ("client_credentials",))


def test_api_page_offers_a_client_that_may_introspect_its_tokens(
    app: Flask, ada: PortalUser, acme: Any, make: Factory, defined: resources.ResourceRecord
) -> None:
    assert f'href="/portal/{acme.slug}/docs/protect-an-api"' in ada.get(f"/apis/{defined.public_id}").text
    assert "Create introspection credentials" in ada.text
    path = f"/clients/new?type=machine&api={defined.public_id}"
    ada.get(path)
    assert "It needs no scopes" in ada.text
    ada.submit(path, name="API", resources="urn:api")
    assert "API is registered" in ada.text
    with app.app_context():
        [made] = client_records.list_clients(make.actor(acme)).items
    assert (made.type, made.name, list(made.resources)) == ("machine", "API", ["urn:api"])
