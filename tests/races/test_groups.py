"""Members that are added at once, and while their group or user is deleted."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from flask import Flask

from app.models.audit import AuditEvent
from app.operations.clients.clients import update_client
from app.operations.users.app_roles import assign_app_role
from app.operations.users.deletion import delete_user
from app.operations.users.groups import add_member, create_group, delete_group
from app.operations.users.provisioned_groups import MemberChange, update_provisioned_group
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from tests.factories import Factory
from tests.oauth.conftest import audited
from tests.scim.conftest import new_directory
from tests.support.databases import Database
from tests.support.threads import at_once

ROUNDS, CROWD = 3, 16


def test_parallel_additions_of_a_member_add_one(app: Flask, make: Factory, database: Database) -> None:
    acme = make.organization("acme")
    boss = make.actor(acme)
    for number in range(ROUNDS):
        with app.app_context():
            group = create_group(boss, "acme", {"name": f"Group {number}"}).public_id
        add = partial(add_member, boss, "acme", group, {"user_id": make.user(acme).public_id})
        assert Counter(at_once(app, [add] * CROWD)) == {"MemberRecord": 1, "Conflict": CROWD - 1}
    assert database.count("group_members") == audited(database, "group.member_added") == ROUNDS


@pytest.mark.parametrize("ends", ["group", "user"])
def test_no_membership_outlives_its_group_or_user(
    app: Flask, make: Factory, database: Database, ends: str
) -> None:
    acme = make.organization("acme")
    boss = make.actor(acme)
    for number in range(ROUNDS):
        user = make.user(acme).public_id
        with app.app_context():
            groups = [
                create_group(boss, "acme", {"name": f"{number}.{each}"}).public_id for each in range(CROWD)
            ]
        if ends == "user":
            adds = [partial(add_or_refuse, boss, group, user) for group in groups]
            end = partial(delete_user, boss, user)
        else:
            adds = [partial(add_or_refuse, boss, groups[0], make.user(acme).public_id) for _ in groups]
            end = partial(delete_group, boss, "acme", groups[0])
        results = at_once(app, [*adds[: CROWD // 2], end, *adds[CROWD // 2 :]])
        assert len(results) == CROWD + 1 and {"UserDeletion", "GroupRecord"} & set(results), results
    assert database.count("group_members") == 0


def test_overlapping_batches_of_a_provider_add_each_member_once(
    app: Flask, make: Factory, database: Database
) -> None:
    """A user is deleted and the group renamed at the same time."""
    directory = new_directory(app, make, make.organization("acme"))
    actor = directory.actor()
    for number in range(ROUNDS):
        users = [make.user(directory.organization).public_id for _ in range(CROWD)]
        group = directory.group(f"Group {number}")["id"]
        batches = [users[:8], users[4:12], users[12:2:-1], users[8:]]
        calls = [partial(add_until_none_is_missing, actor, group, set(batch)) for batch in batches]
        calls.append(partial(update_provisioned_group, actor, group, name=f"G {number}", external_id="g"))
        results = at_once(app, [*calls, partial(delete_user, directory.admin, users[5])])
        assert Counter(results) == {"NoneType": len(calls), "UserDeletion": 1}, results
        directory.send("DELETE", f"/Groups/{group}", status=204)
        with app.app_context():
            actions = [
                row.after["user"] for row in directory.rows(AuditEvent) if row.action == "group.member_added"
            ]
        assert set(actions) - {users[5]} >= set(users) - {users[5]} and len(actions) == len(set(actions))
    assert database.count("group_members") == 0


def add_until_none_is_missing(actor: Actor, group: str, users: set[str]) -> None:
    """Add the users as a directory does, which leaves out those that it hears are unknown."""
    try:
        update_provisioned_group(actor, group, external_id="g", members=MemberChange(added=users))
    except InvalidInput as refused:
        unknown = {user for user in users if any(user in each.message for each in refused.errors)}
        if not unknown:
            raise
        add_until_none_is_missing(actor, group, users - unknown)


def test_parallel_patches_of_a_user_are_all_applied(app: Flask, make: Factory, database: Database) -> None:
    directory = new_directory(app, make, make.organization("acme"))
    user = f"/Users/{directory.create('grace@acme.example')['id']}"
    for number in range(ROUNDS):
        values = {name: f"{name} {number}" for name in ("displayName", "nickName", "name.familyName")}
        calls = [
            partial(directory.patch, user, {"op": "replace", "path": name, "value": value})
            for name, value in values.items()
        ]
        assert at_once(app, calls) == ["dict"] * len(calls)
        shown = directory.send("GET", user)
        assert {**shown, "name.familyName": shown["name"]["familyName"]}.items() >= values.items()


def add_or_refuse(boss: Actor, group: str, user: str) -> object:
    """Add the member; a deleted user is an invalid field of the request."""
    try:
        return add_member(boss, "acme", group, {"user_id": user})
    except InvalidInput as refused:
        return refused


def test_parallel_assignments_of_a_role_add_one_and_none_outlives_the_role(
    app: Flask, make: Factory, database: Database
) -> None:
    acme = make.organization("acme")
    boss, client = make.actor(acme), make.client(acme, app_roles=[{"key": "editor"}]).client_id
    holder = {"role": "editor", "user_id": make.user(acme).public_id}
    assign = partial(assign_app_role, boss, client, holder)
    assert Counter(at_once(app, [assign] * CROWD)) == {"RoleAssignmentRecord": 1, "Conflict": CROWD - 1}
    for _ in range(ROUNDS):
        users = [make.user(acme).public_id for _ in range(CROWD)]
        calls = [
            partial(assign_or_refuse, boss, client, {"role": "editor", "user_id": user}) for user in users
        ]
        remove = partial(update_client, boss, client, {"app_roles": []})
        at_once(app, [*calls[: CROWD // 2], remove, *calls[CROWD // 2 :]])
        assert database.count("app_role_assignments") == 0
        with app.app_context():
            update_client(boss, client, {"app_roles": [{"key": "editor"}]})


def assign_or_refuse(boss: Actor, client: str, fields: dict[str, str]) -> object:
    """Assign the role; one that the client no longer declares is an invalid field of the request."""
    try:
        return assign_app_role(boss, client, fields)
    except InvalidInput as refused:
        return refused
