"""Owners of clients and APIs: who may change them, to whom, and what changes for both (TN-17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db
from app.models.audit import AuditEvent
from app.operations.clients import client_records, clients, ownership, resources
from app.operations.organizations.roles import create_role
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.users.deletion import delete_user
from app.operations.users.user_changes import update_user
from app.rules.actor import Actor
from app.rules.errors import DomainError, Forbidden, InvalidInput, NotFound, PreconditionFailed
from tests.factories import Factory, MadeUser
from tests.operations.clients.test_resources import GOOD, GOOD_CLIENT
from tests.support.cases import each
from tests.support.mail_server import Mailbox

OWN = ("clients:read:own", "clients:write:own", "resources:read:own", "resources:write:own")


@pytest.fixture
def admin(context: Flask, make: Factory) -> Actor:
    return make.actor(make.organization())


@pytest.fixture
def users(admin: Actor, make: Factory) -> dict[str, MadeUser]:
    """Users of the organization by role, and one of another organization."""
    organization = clients._acting_organization(admin)
    roles = {"grace": "developer", "linus": "developer", "bob": None, "ada": "admin"}
    made = {
        name: make.user(organization, email=f"{name}@acme.example", role=role) for name, role in roles.items()
    }
    return made | {"stranger": make.user(make.organization(), email="linus@globex.example", role="developer")}


@pytest.fixture
def grace(admin: Actor, make: Factory, users: dict[str, MadeUser]) -> Actor:
    """A developer, who manages only what she owns."""
    return make.actor(clients._acting_organization(admin), *OWN, user=users["grace"])


@pytest.fixture
def linus(admin: Actor, make: Factory, users: dict[str, MadeUser]) -> Actor:
    return make.actor(clients._acting_organization(admin), *OWN, user=users["linus"])


def to(user: MadeUser) -> dict[str, Any]:
    return {"user_id": user.public_id}


def events() -> list[tuple[str, Any, Any]]:
    return [(event.action, event.before, event.after) for event in db.session.scalars(select(AuditEvent))]


def test_new_owner_manages_the_client_and_the_old_one_no_longer(
    grace: Actor, linus: Actor, users: dict[str, MadeUser]
) -> None:
    made = clients.register_client(grace, GOOD_CLIENT).client
    with pytest.raises(NotFound):
        clients.get_client(linus, made.client_id)
    changed = ownership.change_client_owner(grace, made.client_id, {"email": "LINUS@acme.example"})
    assert (changed.client.owner_id, changed.changed) == (linus.user_id, ["owner_id"])
    assert changed.client.created_by == made.created_by and changed.client.version == made.version + 1
    assert clients.update_client(linus, made.client_id, {"name": "Mine"}).changed == ["name"]
    assert [one.client_id for one in client_records.list_clients(linus).items] == [made.client_id]
    with pytest.raises(NotFound):
        clients.get_client(grace, made.client_id)
    before, after = ({"owner_id": users[name].public_id} for name in ("grace", "linus"))
    assert ("client.updated", before, after) in events()
    again = ownership.change_client_owner(linus, made.client_id, to(users["linus"]))
    assert (again.changed, again.client.version) == ([], made.version + 2)


def test_new_owner_manages_the_api_and_the_old_one_no_longer(
    grace: Actor, linus: Actor, users: dict[str, MadeUser]
) -> None:
    made = resources.define_resource(grace, GOOD)
    changed = ownership.change_resource_owner(grace, made.public_id, to(users["linus"]))
    assert (changed.record.owner_id, changed.changed) == (linus.user_id, ["owner_id"])
    assert resources.update_resource(linus, made.public_id, {"name": "Mine"}).changed == ["name"]
    assert [one.id for one in resources.list_resources(linus).items] == [made.id]
    with pytest.raises(NotFound):
        resources.get_resource(grace, made.public_id)
    before, after = ({"owner_id": users[name].public_id} for name in ("grace", "linus"))
    assert ("resource.updated", before, after) in events()


@each(
    "fields, for_admin, for_developer",
    [
        ({}, "required", "required"),
        ({"user_id": "linus", "email": "ada@acme.example"}, "required", "required"),
        ({"email": 7}, "wrong_type", "wrong_type"),
        ({"user_id": "bob"}, "cannot_own", "cannot_own"),
        ({"user_id": "linus"}, "cannot_own", "cannot_own"),
        ({"user_id": "stranger"}, "unknown_user", "cannot_own"),
        ({"email": "nobody@acme.example"}, "unknown_user", "cannot_own"),
        ({"user_id": "usr_1"}, "unknown_user", "cannot_own"),
    ],
)
def test_owner_is_an_active_user_who_may_have_things_of_their_own(
    admin: Actor,
    grace: Actor,
    users: dict[str, MadeUser],
    fields: dict[str, Any],
    for_admin: str,
    for_developer: str,
) -> None:
    """Who can't list users doesn't learn which exist. Linus is disabled."""
    update_user(admin, users["linus"].public_id, {"status": "disabled"})
    sent = {
        name: users[value].public_id if name == "user_id" and value in users else value
        for name, value in fields.items()
    }
    client = clients.register_client(grace, GOOD_CLIENT).client
    api = resources.define_resource(
        admin, {**GOOD, "identifier": f"https://{client.id}.example", "scopes": []}
    )
    attempts: list[tuple[Actor, Any, str, str]] = [
        (admin, ownership.change_client_owner, client.client_id, for_admin),
        (grace, ownership.change_client_owner, client.client_id, for_developer),
        (admin, ownership.change_resource_owner, api.public_id, for_admin),
    ]
    for actor, change, name, code in attempts:
        with pytest.raises(InvalidInput) as refused:
            change(actor, name, sent)
        assert refused.value.errors[0].code == code
    assert clients.get_client(grace, client.client_id).version == client.version


def test_change_needs_permission_a_recent_sign_in_and_the_current_version(
    admin: Actor, grace: Actor, linus: Actor, make: Factory, users: dict[str, MadeUser]
) -> None:
    organization = clients._acting_organization(admin)
    client = clients.register_client(grace, GOOD_CLIENT).client
    api = resources.define_resource(grace, GOOD)
    powerful = clients.register_client(admin, {**GOOD_CLIENT, "scopes": ["openid", "users:write"]}).client
    stale = make.actor(organization, *OWN, user=users["grace"], authenticated_ago_seconds=86_400)
    reader = make.actor(organization, "clients:read", "resources:read")
    writer = make.actor(organization, "clients:write", "resources:write", "users:read")
    tired = make.actor(organization, user=users["ada"], authenticated_ago_seconds=86_400)
    new: Any = to(users["linus"])
    change, change_api = ownership.change_client_owner, ownership.change_resource_owner
    cases: list[tuple[type[DomainError], Callable[[], object]]] = [
        (NotFound, lambda: change(linus, client.client_id, new)),
        (NotFound, lambda: change_api(linus, api.public_id, new)),
        (Forbidden, lambda: change(reader, client.client_id, new)),
        (Forbidden, lambda: change_api(reader, api.public_id, new)),
        (FreshSignInRequired, lambda: change(stale, client.client_id, new)),
        (FreshSignInRequired, lambda: change_api(stale, api.public_id, new)),
        (PreconditionFailed, lambda: change(grace, client.client_id, new, expected_version=7)),
        (PreconditionFailed, lambda: change_api(grace, api.public_id, new, expected_version=7)),
        # Whoever owns a client can have its secrets, so not even to somebody who has the permission.
        (Forbidden, lambda: change(writer, powerful.client_id, to(users["ada"]))),
        (Forbidden, lambda: ownership.transfer_ownership(grace, users["grace"].public_id, new)),
        (Forbidden, lambda: ownership.transfer_ownership(reader, users["grace"].public_id, new)),
        (FreshSignInRequired, lambda: ownership.transfer_ownership(tired, users["grace"].public_id, new)),
        (NotFound, lambda: ownership.transfer_ownership(writer, "usr_1", new)),
    ]

    for kind, act in cases:
        with pytest.raises(kind):
            act()


def test_everything_of_a_deleted_user_gets_a_new_owner(
    admin: Actor, grace: Actor, make: Factory, users: dict[str, MadeUser], monkeypatch: pytest.MonkeyPatch
) -> None:
    organization = clients._acting_organization(admin)
    create_role(admin, {"id": "api-maker", "permissions": ["resources:write:own"]})
    apis_only = make.user(organization, role="api-maker")
    monkeypatch.setattr(ownership, "_BATCH", 2)
    gone = users["grace"].public_id
    kept = clients.register_client(admin, GOOD_CLIENT).client
    names = [clients.register_client(grace, GOOD_CLIENT).client.client_id for _ in range(5)]
    clients.delete_client(grace, names.pop())
    api = resources.define_resource(grace, GOOD)
    assert ownership.count_owned(admin, users["grace"].id) == ownership.Owned(4, 1)
    delete_user(admin, gone)
    assert ownership.find_owner(admin, grace.user_id) == ownership.Owner(users["grace"].id, gone, None, False)
    for wrong in (users["bob"], users["stranger"], apis_only):
        with pytest.raises(InvalidInput):
            ownership.transfer_ownership(admin, gone, to(wrong))
    assert ownership.count_owned(admin, users["grace"].id) == ownership.Owned(4, 1)
    assert ownership.transfer_ownership(admin, gone, to(users["linus"])) == ownership.Owned(4, 1)
    with pytest.raises(NotFound):
        ownership.transfer_ownership(admin, gone, to(users["linus"]))
    bob = users["bob"].public_id
    assert ownership.transfer_ownership(admin, bob, to(users["linus"])) == ownership.Owned(0, 0)
    listed = client_records.list_clients(admin, filters={"owner_id": users["linus"].public_id})
    assert sorted(one.client_id for one in listed.items) == sorted(names)
    filtered = resources.list_resources(admin, filters={"owner_id": users["linus"].public_id})
    assert [one.public_id for one in filtered.items] == [api.public_id]
    assert clients.get_client(admin, kept.client_id).owner_id == kept.owner_id
    for user, new, code in (
        ("linus", to(users["linus"]), "same_owner"),
        ("bob", {}, "required"),
        ("bob", {"nonsense": 1}, "unknown_field"),
        ("bob", to(users["stranger"]), "unknown_user"),
    ):
        with pytest.raises(InvalidInput) as refused:
            ownership.transfer_ownership(admin, users[user].public_id, new)
        assert refused.value.errors[0].code == code


def test_transfer_that_is_not_allowed_for_one_client_transfers_nothing(
    admin: Actor, grace: Actor, make: Factory, users: dict[str, MadeUser], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_BATCH", 1)
    organization = clients._acting_organization(admin)
    held = ("clients:write", "clients:read", "resources:write", "users:read")
    for scopes in (["openid"], ["openid", "audit:read"]):
        made = clients.register_client(admin, {**GOOD_CLIENT, "name": scopes[-1], "scopes": scopes}).client
        ownership.change_client_owner(admin, made.client_id, to(users["grace"]))
    resources.define_resource(grace, GOOD)
    with pytest.raises(Forbidden, match="audit:read has permissions"):
        ownership.transfer_ownership(
            make.actor(organization, *held), users["grace"].public_id, to(users["linus"])
        )
    assert ownership.count_owned(admin, users["grace"].id) == ownership.Owned(2, 1)


def test_owner_of_the_instance_is_named(admin: Actor, make: Factory) -> None:
    rosa = make.user(make.root(), email="rosa@root.example", role="admin")
    actor = make.actor(clients._acting_organization(admin), user=rosa)
    made = clients.register_client(actor, GOOD_CLIENT).client
    assert ownership.find_owner(admin, made.owner_id) == ownership.Owner(
        rosa.id, rosa.public_id, "rosa@root.example", False
    )


def test_nobody_learns_who_can_be_an_owner_without_naming_them(
    admin: Actor, grace: Actor, make: Factory, users: dict[str, MadeUser]
) -> None:
    organization = clients._acting_organization(admin)
    own = clients.register_client(grace, GOOD_CLIENT).client
    powerful = clients.register_client(admin, {**GOOD_CLIENT, "scopes": ["openid", "audit:read"]}).client
    ownership.change_client_owner(admin, powerful.client_id, to(users["grace"]))
    stale = make.actor(organization, *OWN, user=users["grace"], authenticated_ago_seconds=86_400)
    for actor, client, refusal in (
        (stale, own, FreshSignInRequired),
        (grace, powerful, Forbidden),
    ):
        for name in ("linus", "bob", "nobody"):
            with pytest.raises(refusal):
                ownership.change_client_owner(actor, client.client_id, {"email": f"{name}@acme.example"})


def test_new_owner_is_notified_unless_they_did_it(
    admin: Actor,
    grace: Actor,
    make: Factory,
    users: dict[str, MadeUser],
    box: Mailbox,
    deliver: Callable[[], int],
) -> None:
    first = clients.register_client(grace, GOOD_CLIENT).client
    clients.register_client(grace, GOOD_CLIENT)
    ownership.change_client_owner(grace, first.client_id, to(users["linus"]))
    ownership.transfer_ownership(admin, users["linus"].public_id, to(users["grace"]))
    ownership.transfer_ownership(admin, users["grace"].public_id, to(users["linus"]))
    ada = make.actor(clients._acting_organization(admin), user=users["ada"])
    ownership.change_client_owner(ada, first.client_id, to(users["ada"]))
    deliver()
    sent = [(mail["To"], mail["Subject"]) for mail in box.mails]
    assert sorted(sent) == [
        ("grace@acme.example", "You are the owner of Plain"),
        ("linus@acme.example", "You are the owner of Plain"),
        ("linus@acme.example", "You are the owner of Plain and 1 more"),
    ]
