"""A trusted client cannot be changed by its owner without the permission to trust clients."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.clients import clients
from app.rules.actor import Actor
from app.rules.clients.client_types import TOKEN_EXCHANGE
from app.rules.errors import Forbidden, InvalidInput
from tests.factories import Factory
from tests.support.cases import each

OWN = ("clients:read:own", "clients:write:own", "credentials:read:own", "credentials:write:own")
GOOD: dict[str, Any] = {
    "name": "Orchard",
    "redirect_uris": ["https://orchard.example/callback"],
    "scopes": ["openid", "email"],
}


class Trusted:
    """A developer's client that an administrator marked as trusted."""

    def __init__(self, make: Factory) -> None:
        organization = make.organization()
        self.admin = make.actor(organization)
        self.developer: Actor = make.actor(organization, *OWN, user=make.user(organization))
        self.client_id = clients.register_client(self.developer, GOOD).client.client_id
        clients.update_client(self.admin, self.client_id, {"trust": "first_party"})


@pytest.fixture
def trusted(context: Flask, make: Factory) -> Trusted:
    return Trusted(make)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Bank"},
        {"redirect_uris": ["https://thief.example/callback"]},
        {"scopes": ["openid", "email", "phone"]},
        {"type": "spa", "token_endpoint_auth_method": "none"},
        {"grant_types": ["authorization_code"]},
        {"client_uri": "https://bank.example/"},
        {"policy_uri": "https://bank.example/privacy"},
        {"token_endpoint_auth_method": "client_secret_post"},
    ],
)
def test_owner_cannot_change_a_trusted_client(trusted: Trusted, change: dict[str, Any]) -> None:
    before = clients.get_client(trusted.admin, trusted.client_id)
    with pytest.raises(Forbidden) as refusal:
        clients.update_client(trusted.developer, trusted.client_id, change)
    assert refusal.value.permission == "clients:trust"
    assert next(iter(change)) in {error.field for error in refusal.value.errors}
    assert clients.get_client(trusted.admin, trusted.client_id) == before
    assert clients.update_client(trusted.admin, trusted.client_id, change).changed


def test_owner_can_describe_and_disable_a_trusted_client(trusted: Trusted) -> None:
    change = {"description": "Fruit", "contacts": ["ada@example.com"], "status": "disabled"}
    assert clients.update_client(trusted.developer, trusted.client_id, change).changed


def test_owner_cannot_enable_a_disabled_client(context: Flask, make: Factory) -> None:
    organization = make.organization()
    developer = make.actor(organization, *OWN, user=make.user(organization))
    client_id = clients.register_client(developer, GOOD).client.client_id
    clients.update_client(make.actor(organization), client_id, {"status": "disabled"})
    for change in ({"status": "active"}, {"status": None}):
        with pytest.raises(Forbidden) as refusal:
            clients.update_client(developer, client_id, change)
        assert refusal.value.permission == "clients:write"
    enabled = clients.update_client(
        make.actor(organization, "clients:write"), client_id, {"status": "active"}
    )
    assert enabled.client.status == "active"


def test_resources_require_the_resources_permission(context: Flask, make: Factory) -> None:
    organization = make.organization()
    developer = make.actor(organization, *OWN, "resources:write:own", user=make.user(organization))
    wanted = {**GOOD, "resources": ["https://api.example"]}
    with pytest.raises(Forbidden) as refusal:
        clients.register_client(developer, wanted)
    assert refusal.value.field == "resources"
    client_id = clients.register_client(developer, GOOD).client.client_id
    with pytest.raises(Forbidden):
        clients.update_client(developer, client_id, {"resources": ["https://api.example"]})
    for permission in ("resources:write", "clients:trust"):
        actor = make.actor(organization, "clients:write", permission)
        assert clients.register_client(actor, wanted).client.resources == ("https://api.example",)


@each("rest", ["", "/", "/management", "/organizations/acme", "?x=1"])
def test_service_url_cannot_be_a_resource(context: Flask, make: Factory, rest: str) -> None:
    """Only this service may read tokens for its own URL (IT-1)."""
    organization = make.organization()
    actor, base = make.actor(organization), organization.base_url
    with pytest.raises(InvalidInput) as refusal:
        clients.register_client(actor, {**GOOD, "resources": ["https://api.example", base + rest]})
    assert [(error.field, error.code) for error in refusal.value.errors] == [("resources[1]", "own_resource")]
    client_id = clients.register_client(actor, GOOD).client.client_id
    with pytest.raises(InvalidInput):
        clients.update_client(actor, client_id, {"resources": [base.upper().replace("HTTP", "http") + rest]})


def test_token_exchange_requires_the_trust_permission(context: Flask, make: Factory) -> None:
    """RFC 8693: the client could obtain tokens of users who never consented."""
    grant_types = ["client_credentials", TOKEN_EXCHANGE]
    organization = make.organization(settings={"oauth": {"grant_types": grant_types}})
    fields = {
        "name": "API",
        "type": "machine",
        "grant_types": grant_types,
        "scopes": [],
        "token_exchange": "delegation",
    }
    developer = make.actor(organization, "clients:write", "resources:write")
    with pytest.raises(Forbidden) as refused:
        clients.register_client(developer, fields)
    assert refused.value.field == "token_exchange"
    plain = clients.register_client(
        developer, fields | {"grant_types": ["client_credentials"], "token_exchange": None}
    )
    changes = {"grant_types": grant_types, "token_exchange": "impersonation"}
    with pytest.raises(Forbidden):
        clients.update_client(developer, plain.client.client_id, changes)
    admin = make.actor(organization)
    assert clients.register_client(admin, fields).client.token_exchange == "delegation"
    for wrong in (
        {"token_exchange": None},
        {"grant_types": ["client_credentials"]},
        {"token_exchange": "both"},
    ):
        with pytest.raises(InvalidInput) as unfit:
            clients.register_client(admin, fields | wrong)
        assert unfit.value.field == "token_exchange"
