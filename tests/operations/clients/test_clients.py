"""Clients: register, update and delete them, permissions, and that a rejected request changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask

from app.models.client import Client
from app.operations.authorization.connected_apps import list_consents
from app.operations.authorization.consents import store_consent
from app.operations.clients import client_records, clients, credential_revocation, credentials, scopes
from app.operations.directory import lookups
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError, Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.identifiers import new_id, parse_client_id
from tests.factories import Factory
from tests.oauth.conftest import audited
from tests.support.authenticator import set_rows
from tests.support.cases import each
from tests.support.databases import Database

GOOD: dict[str, Any] = {
    "name": "Orchard",
    "redirect_uris": ["https://orchard.example/callback"],
    "scopes": ["openid", "email"],
}


@pytest.fixture
def admin(context: Flask, make: Factory) -> Actor:
    return make.actor(make.organization())


def audit_actions(database: Database) -> list[str]:
    return [bytes(row[0]).decode() for row in database.query("SELECT action FROM audit_events ORDER BY id")]


def assert_rejected(database: Database, kind: type[DomainError], act: Any) -> DomainError:
    """Assert that the call raises the error and changes neither a row nor the audit log. Return the error."""
    tables = ("clients", "client_credentials", "scopes", "audit_events")
    before = [database.query(f"SELECT * FROM {table}") for table in tables]
    with pytest.raises(kind) as refusal:
        act()
    assert before == [database.query(f"SELECT * FROM {table}") for table in tables]
    return refusal.value


def test_registered_client_gets_a_secret(admin: Actor, database: Database) -> None:
    made = clients.register_client(admin, GOOD)
    assert clients.get_client(admin, made.client.client_id) == made.client
    assert parse_client_id(made.client.client_id) == (admin.organization_id, made.client.id)
    assert made.secret is not None
    assert made.secret.startswith(f"gth_cs_{admin.organization_id}")
    assert made.credential is not None
    assert made.credential.hint == made.secret[-12:-8]
    assert (made.client.created_by, made.client.status, made.client.version) == ("tests", "active", 1)
    assert audit_actions(database)[-1] == "client.registered"
    assert made.secret.encode() not in database.dump()


def test_public_client_gets_no_secret(admin: Actor) -> None:
    made = clients.register_client(admin, {**GOOD, "type": "spa"})
    assert (made.credential, made.secret) == (None, None)
    with pytest.raises(Conflict) as refusal:
        credentials.create_credential(admin, made.client.client_id)
    assert refusal.value.code == "no_secret_kept"


def test_invalid_client_is_rejected_without_changes(admin: Actor, database: Database) -> None:
    error = assert_rejected(
        database, InvalidInput, lambda: clients.register_client(admin, {"name": 3, "scopes": "x"})
    )
    assert {wrong.field for wrong in error.errors} == {"name", "redirect_uris", "scopes"}


@pytest.mark.parametrize("permissions", [("clients:read",), ("settings:read",), ("credentials:write",)])
def test_registration_requires_permission(
    context: Flask, make: Factory, database: Database, permissions: tuple[str, ...]
) -> None:
    actor = make.actor(make.organization(), *permissions)
    error = assert_rejected(database, Forbidden, lambda: clients.register_client(actor, GOOD))
    assert isinstance(error, Forbidden)
    assert error.permission == "clients:write"


def test_organization_settings_limit_clients(context: Flask, make: Factory, database: Database) -> None:
    settings = {"oauth": {"redirect_uris": {"allowed_hosts": ["acme.example"]}}}
    admin = make.actor(make.organization(settings=settings))
    error = assert_rejected(database, InvalidInput, lambda: clients.register_client(admin, GOOD))
    assert error.errors[0].code == "host_not_allowed"


def test_unknown_scope_is_added_with_resources_permission(admin: Actor) -> None:
    made = clients.register_client(admin, {**GOOD, "scopes": ["openid", "orders:read"]})
    assert made.client.scopes == ("openid", "orders:read")
    assert made.warnings == [
        'The scope "orders:read" is new in this organization. Add a title for the consent page.'
    ]
    assert "orders:read" in {scope.name for scope in scopes.list_scopes(admin)}
    assert clients.register_client(admin, {**GOOD, "scopes": ["orders:read"]}).warnings == []


def test_unknown_scope_is_rejected_without_resources_permission(
    context: Flask, make: Factory, database: Database
) -> None:
    actor = make.actor(make.organization(), "clients:write")
    fields = {**GOOD, "scopes": ["openid", "orders:read"]}
    error = assert_rejected(database, InvalidInput, lambda: clients.register_client(actor, fields))
    assert (error.errors[0].field, error.errors[0].code) == ("scopes[1]", "unknown_scope")
    assert "offline_access" in error.errors[0].message


@pytest.mark.parametrize(
    ("held", "fields", "missing"),
    [
        (("clients:write",), {"trust": "first_party"}, "clients:trust"),
        (("clients:write",), {"scopes": ["openid", "clients:read"]}, "clients:trust"),
        (("clients:write", "clients:trust"), {"scopes": ["openid", "settings:write"]}, "settings:write"),
    ],
)
def test_management_scope_cannot_be_granted_without_having_it(
    context: Flask, make: Factory, database: Database, held: tuple[str, ...], fields: Any, missing: str
) -> None:
    """TN-11."""
    actor = make.actor(make.organization(), *held)
    error = assert_rejected(database, Forbidden, lambda: clients.register_client(actor, {**GOOD, **fields}))
    assert isinstance(error, Forbidden)
    assert error.permission == missing


def test_instance_scopes_are_only_for_root_clients(admin: Actor, make: Factory, database: Database) -> None:
    fields = {"name": "Job", "type": "machine", "scopes": ["organizations:read"]}
    assert_rejected(database, InvalidInput, lambda: clients.register_client(admin, fields))
    root = make.actor(make.root())
    assert clients.register_client(root, fields).client.scopes == ("organizations:read",)


def test_client_with_more_permissions_cannot_be_changed(context: Flask, make: Factory) -> None:
    organization = make.organization()
    strong = make.machine(organization, "settings:write").client_id
    weak = make.actor(organization, "clients:write", "clients:read", "credentials:read", "credentials:write")
    for act in (
        lambda: clients.update_client(weak, strong, {"name": "Mine"}),
        lambda: clients.delete_client(weak, strong),
        lambda: credentials.create_credential(weak, strong),
        lambda: credential_revocation.revoke_credentials(weak, strong),
        lambda: credentials.reveal_credential(
            weak, strong, credentials.list_credentials(weak, strong).items[0].public_id
        ),
    ):
        with pytest.raises(Forbidden):
            act()


def test_update_returns_and_audits_the_changed_fields(admin: Actor, database: Database) -> None:
    client_id = clients.register_client(admin, GOOD).client.client_id
    updated = clients.update_client(admin, client_id, {"name": "Quince", "description": "New"})
    assert updated.changed == ["name", "description"]
    assert (updated.client.name, updated.client.version) == ("Quince", 2)
    assert audit_actions(database)[-1] == "client.updated"
    [(after,)] = database.query("SELECT `after` FROM audit_events ORDER BY id DESC LIMIT 1")
    assert json.loads(after) == {"name": "Quince", "description": "New"}


def test_client_of_an_earlier_release_has_the_defaults_of_later_fields(
    admin: Actor, database: Database
) -> None:
    client = clients.register_client(
        admin, {**GOOD, "token_endpoint_auth_method": "client_secret_basic"}
    ).client
    [(text,)] = database.query("SELECT document FROM clients")
    later = {"any_secret_method", "id_token_claims", "require_pkce", "app_roles", "claim_mappings"}
    set_rows(Client, document={name: value for name, value in json.loads(text).items() if name not in later})
    assert clients.get_client(admin, client.client_id) == client
    assert client_records.list_clients(admin).items == (client,)


def test_update_keeps_fields_of_the_next_release(admin: Actor, database: Database) -> None:
    """During an upgrade both releases run side by side."""
    client = clients.register_client(admin, GOOD).client
    [(text,)] = database.query("SELECT document FROM clients")
    set_rows(Client, document={**json.loads(text), "later": [1]})
    clients.update_client(admin, client.client_id, {"contacts": ["ada@orchard.example"]})
    [(text,)] = database.query("SELECT document FROM clients")
    document = json.loads(text)
    assert (document["later"], document["contacts"]) == ([1], ["ada@orchard.example"])


def test_update_without_changes_is_not_recorded(admin: Actor, database: Database) -> None:
    client = clients.register_client(admin, GOOD).client
    told = audit_actions(database)
    assert clients.update_client(admin, client.client_id, {"name": client.name}).changed == []
    assert audit_actions(database) == told
    assert clients.get_client(admin, client.client_id).version == client.version


def test_stale_version_is_rejected(admin: Actor, database: Database) -> None:
    client_id = clients.register_client(admin, GOOD).client.client_id
    clients.update_client(admin, client_id, {"name": "Quince"}, expected_version=1)
    stale = {"expected_version": 1}
    assert_rejected(
        database, PreconditionFailed, lambda: clients.update_client(admin, client_id, {"name": "X"}, **stale)
    )
    assert_rejected(database, PreconditionFailed, lambda: clients.delete_client(admin, client_id, **stale))
    assert clients.get_client(admin, client_id).name == "Quince"


def test_secrets_are_revoked_when_no_longer_used(admin: Actor, database: Database) -> None:
    made = clients.register_client(admin, GOOD)
    key = {"kty": "EC", "crv": "P-256", "x": "x" * 43, "y": "y" * 43}
    sent = {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [key]}}
    clients.update_client(admin, made.client.client_id, sent)
    assert {entry.status for entry in credentials.list_credentials(admin, made.client.client_id).items} == {
        "revoked"
    }
    assert audited(database, "credential.revoked") == 1
    view = lookups.find_client(made.client.client_id, fresh=True)
    assert view is not None
    assert view.secrets == ()


def test_deleted_client_is_removed_with_its_tokens(admin: Actor, database: Database) -> None:
    made = clients.register_client(admin, GOOD)
    counts = clients.delete_client(admin, made.client.client_id)
    assert counts.credentials == 1
    assert lookups.find_client(made.client.client_id, fresh=True) is None
    for act in (clients.get_client, clients.delete_client, credentials.list_credentials):
        with pytest.raises(NotFound):
            act(admin, made.client.client_id)
    assert audit_actions(database)[-1] == "client.deleted"
    assert client_records.list_clients(admin).items == ()


def test_deleted_client_is_not_a_connected_app(context: Flask, make: Factory) -> None:
    organization = make.organization()
    user, client = make.user(organization), make.client(organization)
    actor = make.actor(organization, user=user)
    view = lookups.find_client(client.client_id)
    assert view is not None
    transaction(store_consent)(actor, view, user.id, ("openid",))
    assert [consent.client_id for consent in list_consents(actor)] == [client.client_id]
    assert clients.delete_client(actor, client.client_id).consents == 1
    assert list_consents(actor) == []


@each("client_id", ["", "cli_x", "x" * 500, "cli_00000000_00000000000000000000000000", "cli_\x00"])
def test_invalid_client_id_is_not_found(admin: Actor, client_id: str) -> None:
    for act in (clients.get_client, clients.delete_client, credentials.list_credentials):
        with pytest.raises(NotFound):
            act(admin, client_id)


def test_client_of_another_organization_is_not_found(
    admin: Actor, context: Flask, make: Factory, database: Database
) -> None:
    """TN-2."""
    theirs = make.client(make.organization())
    entry = theirs.registered.credential
    assert entry is not None
    for act in (
        lambda: clients.get_client(admin, theirs.client_id),
        lambda: clients.update_client(admin, theirs.client_id, {"name": "Mine"}),
        lambda: clients.delete_client(admin, theirs.client_id),
        lambda: credentials.list_credentials(admin, theirs.client_id),
        lambda: credentials.create_credential(admin, theirs.client_id),
        lambda: credentials.reveal_credential(admin, theirs.client_id, entry.public_id),
        lambda: credential_revocation.revoke_credentials(admin, theirs.client_id),
        lambda: credentials.restore_retiring_secrets(admin, theirs.client_id),
    ):
        assert_rejected(database, NotFound, act)


def test_developer_can_manage_only_own_clients(context: Flask, make: Factory) -> None:
    organization = make.organization()
    own = ("clients:read:own", "clients:write:own", "credentials:read:own", "credentials:write:own")
    ada = make.actor(organization, *own, user=make.user(organization))
    bob = make.actor(organization, *own, user=make.user(organization))
    mine = clients.register_client(ada, GOOD)
    theirs = clients.register_client(bob, {**GOOD, "name": "Quince"})
    assert [client.name for client in client_records.list_clients(ada).items] == ["Orchard"]
    assert clients.update_client(ada, mine.client.client_id, {"name": "Pear"}).changed == ["name"]
    assert credentials.create_credential(ada, mine.client.client_id).secret
    for act in (
        lambda: clients.get_client(ada, theirs.client.client_id),
        lambda: clients.update_client(ada, theirs.client.client_id, {"name": "X"}),
        lambda: clients.delete_client(ada, theirs.client.client_id),
        lambda: credentials.list_credentials(ada, theirs.client.client_id),
        lambda: credentials.create_credential(ada, theirs.client.client_id),
    ):
        with pytest.raises(NotFound):
            act()


def test_machine_client_with_own_permission_sees_no_clients(context: Flask, make: Factory) -> None:
    """Clients registered by clients or by the system have no owner."""
    organization = make.organization()
    make.client(organization)
    machine = Actor(
        "client",
        organization.id,
        organization.id,
        permissions=frozenset({"clients:read:own"}),
        client_id=new_id(),
    )
    assert client_records.list_clients(machine).items == ()


def test_client_cannot_delete_itself(context: Flask, make: Factory) -> None:
    organization = make.organization()
    machine = make.machine(organization)
    actor = Actor(
        "client",
        organization.id,
        organization.id,
        permissions=make.actor(organization).permissions,
        client_id=machine.registered.client.id,
    )
    with pytest.raises(Conflict):
        clients.delete_client(actor, machine.client_id)
