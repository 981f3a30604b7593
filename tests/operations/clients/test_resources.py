"""Resources: define, update and delete them, permissions, and the effect on clients that have their scopes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import delete, update

from app.extensions import db
from app.models.client import Scope
from app.operations.audit.audit_events import list_audit_events
from app.operations.clients import clients, resource_scopes, resources, scopes
from app.operations.clients.resource_scopes import ScopesInUse, delete_scope
from app.operations.clients.resources import get_catalog
from app.operations.store.rows import PageRequest
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError, Forbidden, InvalidInput, NotFound, PreconditionFailed
from tests.factories import Factory
from tests.support.applications import BASE_URL
from tests.support.cases import each
from tests.support.databases import Database

GOOD: dict[str, Any] = {
    "identifier": "https://orders.example/api",
    "name": "Orders",
    "scopes": [
        {"name": "orders:read", "title": "See your orders", "description": "All of them."},
        {"name": "orders:write"},
    ],
}
GOOD_CLIENT = {"name": "Plain", "redirect_uris": ["https://plain.example/cb"], "scopes": ["openid"]}


@pytest.fixture
def admin(context: Flask, make: Factory) -> Actor:
    return make.actor(make.organization())


@pytest.fixture
def developer(admin: Actor, make: Factory) -> Actor:
    """Return an actor who can manage only their own resources."""
    organization = clients._acting_organization(admin)
    user = make.user(organization)
    return make.actor(organization, "resources:read:own", "resources:write:own", "clients:write", user=user)


def audit_actions(database: Database) -> list[str]:
    return [bytes(row[0]).decode() for row in database.query("SELECT action FROM audit_events ORDER BY id")]


def assert_rejected(database: Database, kind: type[DomainError], act: Any) -> DomainError:
    """Assert that the call raises the error and changes nothing. Return the error."""
    tables = ("resources", "scopes", "clients", "audit_events")
    before = [database.query(f"SELECT * FROM {table}") for table in tables]
    with pytest.raises(kind) as refusal:
        act()
    assert before == [database.query(f"SELECT * FROM {table}") for table in tables]
    return refusal.value


def test_resource_is_created_with_its_scopes(admin: Actor, database: Database) -> None:
    made = resources.define_resource(admin, GOOD)
    assert resources.get_resource(admin, made.public_id) == made
    assert [(scope.name, scope.title) for scope in made.scopes] == [
        ("orders:read", "See your orders"),
        ("orders:write", None),
    ]
    assert (made.status, made.access_token_format, made.version, made.created_by) == (
        "active",
        None,
        1,
        "tests",
    )
    assert audit_actions(database)[-1] == "resource.defined"
    listed = {scope.name: scope for scope in scopes.list_scopes(admin)}
    assert listed["orders:read"].resource_public_id == made.public_id
    assert listed["orders:read"].resource_name == "Orders"
    catalog = get_catalog(admin.organization_id)
    assert catalog.owners == {"orders:read": GOOD["identifier"], "orders:write": GOOD["identifier"]}


@each(
    ("changes", "field", "code"),
    [
        ({"identifier": None}, "identifier", "required"),
        ({"name": None}, "name", "required"),
        ({"identifier": "orders"}, "identifier", "invalid_resource"),
        ({"identifier": "https://orders.example/#x"}, "identifier", "invalid_resource"),
        ({"identifier": f"{BASE_URL}/management"}, "identifier", "own_resource"),
        ({"name": ""}, "name", "too_short"),
        ({"audience": "x"}, "audience", "unknown_field"),
        ({"id": "res_x"}, "id", "read_only"),
        ({"status": "off"}, "status", "not_allowed"),
        ({"access_token_format": "jwe"}, "access_token_format", "not_allowed"),
        ({"access_token_ttl_seconds": 59}, "access_token_ttl_seconds", "out_of_range"),
        ({"access_token_ttl_seconds": 60.0}, "access_token_ttl_seconds", "wrong_type"),
        ({"access_token_ttl_seconds": True}, "access_token_ttl_seconds", "wrong_type"),
        (
            {"access_token_format": "jwt", "access_token_ttl_seconds": 3601},
            "access_token_ttl_seconds",
            "out_of_range",
        ),
        ({"scopes": "a"}, "scopes", "wrong_type"),
        ({"scopes": ["a"]}, "scopes[0]", "wrong_type"),
        ({"scopes": [{"name": "a b"}]}, "scopes[0].name", "invalid_scope"),
        ({"scopes": [{"name": "openid"}]}, "scopes[0].name", "reserved"),
        ({"scopes": [{"name": "clients:read"}]}, "scopes[0].name", "reserved"),
        ({"scopes": [{"name": "a"}, {"name": "a"}]}, "scopes[1].name", "duplicate"),
        ({"scopes": [{"name": "a", "word": "x"}]}, "scopes[0].word", "unknown_field"),
        ({"scopes": [{"name": "a", "title": "x\n"}]}, "scopes[0].title", "surrounding_space"),
        ({"scopes": [{"name": f"s{number}"} for number in range(101)]}, "scopes", "too_many"),
    ],
)
def test_invalid_field_is_named(
    admin: Actor, database: Database, changes: dict[str, Any], field: str, code: str
) -> None:
    error = assert_rejected(
        database, InvalidInput, lambda: resources.define_resource(admin, {**GOOD, **changes})
    )
    assert (error.errors[0].field, error.errors[0].code) == (field, code)


def test_scope_of_an_earlier_release_whose_name_is_reserved_since_can_stay(admin: Actor) -> None:
    """Forms send all scopes, so nothing of the API could be changed."""
    made = resources.define_resource(admin, GOOD)
    db.session.execute(delete(Scope).where(Scope.name == "groups"))
    db.session.execute(update(Scope).where(Scope.name == "orders:write").values(name="groups"))
    db.session.commit()
    sent = [*GOOD["scopes"][:1], {"name": "groups", "title": "See teams"}]
    updated = resources.update_resource(admin, made.public_id, {"name": "Shop", "scopes": sent}).record
    assert (updated.name, [scope.name for scope in updated.scopes]) == ("Shop", ["groups", "orders:read"])
    with pytest.raises(InvalidInput) as refusal:
        resources.update_resource(admin, made.public_id, {"scopes": [*sent, {"name": "roles"}]})
    assert [error.field for error in refusal.value.errors] == ["scopes[2].name"]


def test_identifier_is_unique_per_organization(admin: Actor, make: Factory, database: Database) -> None:
    """DC-5: the same identifier in another organization is another resource."""
    first = resources.define_resource(admin, GOOD)
    error = assert_rejected(
        database, Conflict, lambda: resources.define_resource(admin, GOOD | {"scopes": [], "name": "Other"})
    )
    assert (error.code, error.field) == ("taken", "identifier")
    globex = make.actor(make.organization())
    second = resources.define_resource(globex, GOOD)
    assert second.public_id != first.public_id
    with pytest.raises(NotFound):
        resources.get_resource(globex, first.public_id)


def test_update_replaces_the_given_fields(admin: Actor, database: Database) -> None:
    made = resources.define_resource(admin, GOOD | {"access_token_ttl_seconds": 120})
    updated = resources.update_resource(
        admin,
        made.public_id,
        {
            "name": "Order book",
            "access_token_ttl_seconds": None,
            "identifier": GOOD["identifier"],
            "scopes": [{"name": "orders:write", "title": "Change orders"}, {"name": "orders:void"}],
        },
    )
    assert updated.changed == ["name", "access_token_ttl_seconds", "scopes"]
    assert updated.record.version == 2
    assert {scope.name: scope.title for scope in updated.record.scopes} == {
        "orders:write": "Change orders",
        "orders:void": None,
    }
    assert audit_actions(database)[-1] == "resource.updated"
    assert set(get_catalog(admin.organization_id).owners) == {"orders:write", "orders:void"}
    assert resources.update_resource(admin, made.public_id, {"name": "Order book"}).changed == []


def test_rejected_update_changes_nothing(admin: Actor, database: Database) -> None:
    there = resources.define_resource(admin, GOOD).public_id
    error = assert_rejected(
        database,
        InvalidInput,
        lambda: resources.update_resource(admin, there, {"identifier": "urn:other", "name": None}),
    )
    assert [(wrong.field, wrong.code) for wrong in error.errors] == [
        ("identifier", "immutable"),
        ("name", "required"),
    ]
    assert_rejected(
        database,
        PreconditionFailed,
        lambda: resources.update_resource(admin, there, {"name": "X"}, expected_version=7),
    )
    assert_rejected(
        database, PreconditionFailed, lambda: resources.delete_resource(admin, there, expected_version=7)
    )
    assert_rejected(database, NotFound, lambda: resources.update_resource(admin, "res_x", {"name": "X"}))


def test_scopes_are_removed_from_clients_only_if_confirmed(
    admin: Actor, make: Factory, database: Database
) -> None:
    made = resources.define_resource(admin, GOOD)
    fields = {
        "name": "Shop",
        "redirect_uris": ["https://shop.example/cb"],
        "scopes": ["openid", "orders:read", "orders:write"],
        "optional_scopes": ["orders:read"],
        "resources": [GOOD["identifier"]],
    }
    shop = clients.register_client(admin, fields).client.client_id
    other = clients.register_client(admin, GOOD_CLIENT).client
    without_read = {"scopes": [{"name": "orders:write"}]}
    held = assert_rejected(
        database, ScopesInUse, lambda: resources.update_resource(admin, made.public_id, without_read)
    )
    assert (held.code, held.details) == ("in_use", {"clients": 1})
    resources.update_resource(admin, made.public_id, without_read, confirmed=True)
    assert clients.get_client(admin, shop).scopes == ("openid", "orders:write")
    assert clients.get_client(admin, shop).optional_scopes == ()
    assert_rejected(database, ScopesInUse, lambda: resources.delete_resource(admin, made.public_id))
    assert [holder.name for holder in resources.list_resource_holders(admin, made.public_id)] == ["Shop"]
    ended = resources.delete_resource(admin, made.public_id, confirmed=True)
    assert (ended.scopes, ended.clients) == (1, 1)
    assert clients.get_client(admin, shop).scopes == ("openid",)
    assert clients.get_client(admin, shop).resources == ()
    assert clients.get_client(admin, other.client_id) == other
    assert audit_actions(database)[-3:] == ["scope.deleted", "client.updated", "resource.deleted"]
    assert "orders:write" not in {scope.name for scope in scopes.list_scopes(admin)}
    assert get_catalog(admin.organization_id).resources == {}


def test_scope_belongs_to_one_resource(admin: Actor, developer: Actor, database: Database) -> None:
    resources.define_resource(admin, GOOD)
    other = {"identifier": "urn:other", "name": "Other", "scopes": [{"name": "orders:read"}]}
    error = assert_rejected(database, InvalidInput, lambda: resources.define_resource(admin, other))
    assert (error.field, error.errors[0].code) == ("scopes[0].name", "taken")
    scopes.add_scopes(admin, ["plain"])
    takes_plain = other | {"scopes": [{"name": "plain"}]}
    # Other users' clients have the scope. Taking it over would redirect their tokens to this resource.
    assert_rejected(database, InvalidInput, lambda: resources.define_resource(developer, takes_plain))
    made = resources.define_resource(admin, takes_plain)
    assert [scope.name for scope in made.scopes] == ["plain"]


def test_scope_of_an_attribute_needs_permission_for_all_resources(
    context: Flask, make: Factory, database: Database
) -> None:
    """AC-7: its owner would word what users allow, and a client of the owner could map the attribute."""
    salary = {"key": "salary", "name": "Salary", "type": "string", "scope": "hr"}
    organization = make.organization(settings={"user_profile": {"attributes": [salary]}})
    user = make.user(organization)
    developer = make.actor(organization, "resources:read:own", "resources:write:own", user=user)
    game = {"identifier": "urn:game", "name": "Game", "scopes": [{"name": "hr", "title": "See your score"}]}
    error = assert_rejected(database, InvalidInput, lambda: resources.define_resource(developer, game))
    assert (error.field, error.errors[0].code) == ("scopes[0].name", "taken")
    assert resources.define_resource(make.actor(organization), game).scopes[0].name == "hr"


def test_identifier_of_other_clients_needs_permission_for_all_resources(
    admin: Actor, developer: Actor, database: Database
) -> None:
    """TN-11: its owner could get tokens for that API, end those of others, and remove it from their clients."""
    machine = {"name": "Machine", "type": "machine", "resources": [GOOD["identifier"]]}
    holder = clients.register_client(admin, machine).client
    error = assert_rejected(database, InvalidInput, lambda: resources.define_resource(developer, GOOD))
    assert (error.field, error.errors[0].code) == ("identifier", "taken")
    made = resources.define_resource(admin, GOOD)
    assert clients.get_client(admin, holder.client_id).resources == (made.identifier,)


def test_developer_can_manage_only_own_resources(admin: Actor, developer: Actor, database: Database) -> None:
    others = resources.define_resource(admin, GOOD)
    own = resources.define_resource(developer, {"identifier": "urn:own", "name": "Own"})
    assert [item.name for item in resources.list_resources(developer).items] == ["Own"]
    assert [item.name for item in resources.list_resources(admin).items] == ["Orders", "Own"]
    for act in (
        lambda: resources.get_resource(developer, others.public_id),
        lambda: resources.update_resource(developer, others.public_id, {"name": "Mine"}),
        lambda: resources.delete_resource(developer, others.public_id, confirmed=True),
    ):
        assert_rejected(database, NotFound, act)
    assert resources.update_resource(developer, own.public_id, {"name": "Own, too"}).changed == ["name"]
    resources.delete_resource(developer, own.public_id)


def test_resources_require_permissions(admin: Actor, make: Factory, database: Database) -> None:
    made = resources.define_resource(admin, GOOD)
    organization = clients._acting_organization(admin)
    reader, stranger = make.actor(organization, "resources:read"), make.actor(organization, "clients:read")
    assert_rejected(database, Forbidden, lambda: resources.define_resource(reader, GOOD))
    assert_rejected(
        database, Forbidden, lambda: resources.update_resource(reader, made.public_id, {"name": "X"})
    )
    assert_rejected(database, Forbidden, lambda: resources.delete_resource(reader, made.public_id))
    assert_rejected(database, Forbidden, lambda: resources.get_resource(stranger, made.public_id))
    assert_rejected(database, Forbidden, lambda: resources.list_resources(stranger))
    assert_rejected(database, Forbidden, lambda: scopes.search_scopes(stranger))
    assert_rejected(database, Forbidden, lambda: scopes.update_scope(reader, "openid", {"title": "X"}))


def test_list_can_be_searched_filtered_and_paged(admin: Actor) -> None:
    for name in ("banana", "Apple", "cherry", "100% fig"):
        resources.define_resource(admin, {"identifier": f"urn:{name.encode().hex()}", "name": name})
    off = resources.list_resources(admin, query="cherry").items[0]
    resources.update_resource(admin, off.public_id, {"status": "disabled"})

    def names(**options: Any) -> list[str]:
        return [item.name for item in resources.list_resources(admin, **options).items]

    assert names() == ["100% fig", "Apple", "banana", "cherry"]
    assert names(filters={"sort": "-name"}) == ["cherry", "banana", "Apple", "100% fig"]
    assert names(query="APP") == ["Apple"]
    assert names(query="%") == ["100% fig"]
    assert names(query="urn:" + b"banana".hex()) == ["banana"]
    assert names(filters={"status": "disabled"}) == ["cherry"]
    first = resources.list_resources(admin, PageRequest(3))
    second = resources.list_resources(admin, PageRequest(3, first.next_cursor_key))
    assert [item.name for item in (*first.items, *second.items)] == names()
    assert second.next_cursor_key is None
    with pytest.raises(InvalidInput):
        resources.list_resources(admin, filters={"status": "off"})
    with pytest.raises(InvalidInput):
        resources.list_resources(admin, PageRequest(after=("x",)))


def test_scope_texts_are_changed_at_their_owner(admin: Actor, database: Database) -> None:
    api = resources.define_resource(admin, GOOD).public_id
    words = [
        {"name": "orders:read", "title": "See nothing", "description": "All of them."},
        GOOD["scopes"][1],
    ]
    resources.update_resource(admin, api, {"scopes": words})
    assert audit_actions(database)[-2:] == ["scope.updated", "resource.updated"]
    (event,) = list_audit_events(admin, filters={"action": "scope.updated"}).items
    assert (event.before, event.after) == ({"title": "See your orders"}, {"title": "See nothing"})
    scopes.add_scopes(admin, ["plain"])
    scope, changed = scopes.update_scope(admin, "plain", {"title": "Do plain things"}, expected_version=1)
    assert (scope.title, scope.version, changed) == ("Do plain things", 2, ["title"])
    assert scopes.get_scope(admin, "plain") == scope
    assert audit_actions(database)[-1] == "scope.updated"
    assert scopes.update_scope(admin, "plain", {"title": "Do plain things"})[1] == []
    assert_rejected(
        database, PreconditionFailed, lambda: scopes.update_scope(admin, "plain", {}, expected_version=1)
    )
    assert_rejected(database, Conflict, lambda: scopes.update_scope(admin, "orders:read", {"title": "X"}))
    assert_rejected(database, NotFound, lambda: scopes.update_scope(admin, "never-was", {"title": "X"}))
    assert_rejected(database, InvalidInput, lambda: scopes.update_scope(admin, "plain", {"title": 5}))
    assert_rejected(database, InvalidInput, lambda: scopes.update_scope(admin, "plain", {"name": "other"}))


def test_scope_of_no_resource_is_deleted_with_what_clients_have_of_it(
    admin: Actor, database: Database
) -> None:
    resources.define_resource(admin, GOOD)
    made = clients.register_client(admin, GOOD_CLIENT | {"scopes": ["openid", "emial"]}).client
    for refusal, name, options in (
        (ScopesInUse, "emial", {}),
        (PreconditionFailed, "emial", {"expected_version": 2, "confirmed": True}),
        (Conflict, "openid", {"confirmed": True}),
        (Conflict, "orders:read", {"confirmed": True}),
        (NotFound, "never-was", {}),
    ):
        assert_rejected(database, refusal, partial(delete_scope, admin, name, **options))
    assert delete_scope(admin, "emial", expected_version=1, confirmed=True) == 1
    assert audit_actions(database)[-2:] == ["client.updated", "scope.deleted"]
    assert clients.get_client(admin, made.client_id).scopes == ("openid",)
    assert "emial" not in scopes.list_public_scopes(admin.organization_id)
    assert_rejected(database, NotFound, lambda: delete_scope(admin, "emial"))


def test_scope_is_found_behind_clients_with_the_same_text_in_other_fields(
    admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every client for the code flow has the response type ``code``."""
    monkeypatch.setattr(resource_scopes, "MAX_HOLDERS", 1)
    for name in ("first", "second", "third"):
        clients.register_client(admin, {**GOOD_CLIENT, "name": name})
    last = clients.register_client(admin, {**GOOD_CLIENT, "scopes": ["openid", "code"]}).client.client_id
    with pytest.raises(ScopesInUse):
        delete_scope(admin, "code")
    assert delete_scope(admin, "code", confirmed=True) == 1
    assert clients.get_client(admin, last).scopes == ("openid",)


def test_scopes_are_paged(admin: Actor) -> None:
    resources.define_resource(admin, GOOD)
    everything = [scope.name for scope in scopes.list_scopes(admin)]
    first = scopes.search_scopes(admin, PageRequest(5))
    second = scopes.search_scopes(admin, PageRequest(5, first.next_cursor_key))
    assert [scope.name for scope in (*first.items, *second.items)] == everything
    assert [scope.name for scope in scopes.search_scopes(admin, query="orders").items] == [
        "orders:read",
        "orders:write",
    ]
