"""Groups: members as Okta and Entra send them, and what a provider may not do."""

from __future__ import annotations

from typing import Any

import pytest

from app.models.audit import AuditEvent
from app.models.user import Group
from app.operations.users import provisioned_groups
from app.operations.users.groups import create_group
from tests.factories import Factory
from tests.scim.conftest import Directory, new_directory
from tests.support.cases import each

NAMES = "abcd"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"


@pytest.fixture
def users(directory: Directory) -> dict[str, str]:
    """Return the ids of four users by name."""
    return {name: directory.create(f"{name}@acme.example")["id"] for name in NAMES}


def members(directory: Directory, group_id: str, users: dict[str, str]) -> str:
    """Return the names of a group's members."""
    shown = directory.send("GET", f"/Groups/{group_id}").get("members", [])
    names = {user_id: name for name, user_id in users.items()}
    return "".join(sorted(names[each["value"]] for each in shown))


def written(value: Any, users: dict[str, str]) -> Any:
    """Replace the name of each user by the id."""
    if isinstance(value, dict):
        return {name: written(inner, users) for name, inner in value.items()}
    if isinstance(value, list):
        return [written(inner, users) for inner in value]
    if isinstance(value, str):
        return users.get(value, value.replace('"c"', f'"{users["c"]}"'))
    return value


@each(
    ("operations", "expected"),
    [
        # Microsoft Entra.
        ([{"op": "Add", "path": "members", "value": [{"value": "c"}, {"value": "a"}]}], "abc"),
        ([{"op": "Remove", "path": "members", "value": [{"value": "a"}, {"value": "d"}]}], "b"),
        # Okta.
        ([{"op": "remove", "path": 'members[value eq "c"]'}], "ab"),
        ([{"op": "replace", "value": {"id": "ignored", "displayName": "Crew"}}], "ab"),
        ([{"op": "replace", "path": "members", "value": [{"value": "d", "display": "D"}]}], "d"),
        # The standard.
        ([{"op": "add", "path": "members", "value": {"value": "c"}}], "abc"),
        ([{"op": "add", "value": {"members": [{"value": "d"}]}}], "abd"),
        ([{"op": "replace", "value": {"members": [{"value": "c"}], "displayName": "Crew"}}], "c"),
        ([{"op": "remove", "path": "members"}], ""),
        ([{"op": "replace", "path": "members", "value": []}], ""),
        ([{"op": "replace", "path": f"{GROUP}:members", "value": []}], ""),
        ([{"op": "replace", "value": {f"{GROUP}:members": []}}], ""),
        # An attribute with the same name in another schema.
        ([{"op": "remove", "path": "urn:other:schema:members"}], "ab"),
        # An empty list names nobody, so it removes nobody.
        ([{"op": "remove", "path": "members", "value": []}], "ab"),
        (
            [
                {"op": "remove", "path": "members"},
                {"op": "add", "path": "members", "value": [{"value": "c"}, {"value": "d"}]},
                {"op": "remove", "path": 'members[value eq "c"]'},
            ],
            "d",
        ),
    ],
)
def test_patch_changes_members(
    directory: Directory, users: dict[str, str], operations: Any, expected: str
) -> None:
    group = directory.group(f"Crew {len(directory.rows(Group))}", users["a"], users["b"])
    directory.patch(f"/Groups/{group['id']}", *written(operations, users), status=204)
    assert members(directory, group["id"], users) == expected
    for name, user_id in users.items():
        held = [each["value"] for each in directory.send("GET", f"/Users/{user_id}").get("groups", [])]
        assert (group["id"] in held) is (name in expected)
    directory.send("DELETE", f"/Groups/{group['id']}", status=204)


def test_replacement_sets_name_and_members_and_records_who_changed(
    directory: Directory, users: dict[str, str]
) -> None:
    for name in ("Band", "Choir"):
        assert "externalId" not in directory.group(name, externalId="")
    group = directory.group("Crew", users["a"], users["b"], externalId="g1")
    assert group["externalId"] == "g1" and group["meta"]["resourceType"] == "Group"
    before = len(directory.rows(AuditEvent))
    body = {
        "schemas": group["schemas"],
        "displayName": "Ops",
        "members": [{"value": users[name]} for name in "bcc"],
    }
    replaced = directory.send("PUT", f"/Groups/{group['id']}", body)
    assert replaced["displayName"] == "Ops" and members(directory, group["id"], users) == "bc"
    events = [
        (row.action, (row.after or row.before or {}).get("user"))
        for row in directory.rows(AuditEvent)[before:]
    ]
    assert sorted(map(str, events)) == sorted(
        map(
            str,
            [
                ("group.updated", None),
                ("group.member_removed", users["a"]),
                ("group.member_added", users["c"]),
            ],
        )
    )
    directory.send("PUT", f"/Groups/{group['id']}", body)
    assert len(directory.rows(AuditEvent)) == before + 3
    assert directory.send("GET", '/Groups?filter=externalId eq "g1"')["totalResults"] == 1
    rename = {"op": "replace", "path": "displayName", "value": "Crew"}
    shown = directory.patch(f"/Groups/{group['id']}?attributes=displayName", rename)
    assert shown["displayName"] == "Crew" and "members" not in shown


@each(
    ("query", "found"),
    [
        ("", ["Crew", "Ops"]),
        ('filter=displayName eq "CREW"', ["Crew"]),
        ('filter=displayName eq "nothing"', []),
        ('filter=externalId eq "g2"', ["Ops"]),
        ('filter=id eq "nothing"', []),
        ("startIndex=2&excludedAttributes=members", ["Ops"]),
        ('filter=displayName co "r"', None),
        ('filter=members[value eq "a"]', None),
    ],
)
def test_lists_are_filtered(directory: Directory, query: str, found: list[str] | None) -> None:
    if not directory.rows(Group):
        user = directory.create("a@acme.example")["id"]
        directory.group("Crew", user)
        directory.group("Ops", externalId="g2")
    listed = directory.send("GET", f"/Groups?{query}", status=400 if found is None else 200)
    if found is not None:
        assert [each["displayName"] for each in listed.get("Resources", [])] == found
        assert [
            each for each in listed.get("Resources", []) if "members" in each and "excluded" in query
        ] == []


@each(
    ("body", "status", "named"),
    [
        ({"displayName": "Crew"}, 409, "displayName"),
        ({"displayName": ""}, 400, "displayName"),
        ({"displayName": "x" * 101}, 400, "displayName"),
        ({}, 400, "displayName"),
        ({"displayName": "New", "externalId": "g1"}, 409, "externalId"),
        ({"displayName": "New", "members": [{"value": "nobody"}]}, 400, "nobody"),
        ({"displayName": "New", "members": [{"value": "usr_01m8h9wytwfrxb556c6c6esm77"}]}, 400, "usr_01m8h"),
        ({"displayName": "New", "members": [{"display": "a"}]}, 400, "members"),
        ({"displayName": "New", "members": "a"}, 400, "members"),
    ],
)
def test_bad_groups_are_named_and_nothing_is_stored(
    directory: Directory, body: Any, status: int, named: str
) -> None:
    if not directory.rows(Group):
        directory.group("Crew", externalId="g1")
    schemas = {"schemas": [GROUP]}
    refused = directory.send("POST", "/Groups", schemas | body, status)
    assert named.lower() in refused["detail"].lower().replace("_name", "name"), refused
    assert len(directory.rows(Group)) == 1


def test_groups_of_others_are_left_alone(directory: Directory, make: Factory) -> None:
    """Those of another provider, and, to delete, groups that no provider manages."""
    other = new_directory(directory.app, make, directory.organization, slug="entra", name="Entra")
    theirs = other.group("Theirs", externalId="1")
    with directory.app.app_context():
        own = create_group(directory.admin, directory.organization.slug, {"name": "At home"}).public_id
        away = make.organization()
        stranger = create_group(make.actor(away), away.slug, {"name": "Away"}).public_id
    assert "externalId" not in directory.send("GET", f"/Groups/{theirs['id']}")
    directory.patch(f"/Groups/{theirs['id']}", {"op": "remove", "path": "members"}, status=403)
    directory.send("DELETE", f"/Groups/{own}", status=403)
    directory.send("GET", f"/Groups/{stranger}", status=404)
    directory.patch(f"/Groups/{own}", {"op": "add", "path": "externalId", "value": "2"}, status=204)
    directory.send("DELETE", f"/Groups/{own}", status=204)
    assert [row.name for row in directory.rows(Group)] == ["Theirs"]


def test_large_groups_change_without_being_read(
    directory: Directory, users: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioned_groups, "MAX_MEMBERS_SHOWN", 2)
    monkeypatch.setattr(provisioned_groups, "_BATCH", 2)
    group = directory.group("Crew")
    path = f"/Groups/{group['id']}"
    everyone = [{"value": user_id} for user_id in users.values()]
    directory.patch(path, {"op": "add", "path": "members", "value": everyone}, status=204)
    assert directory.send("GET", path, status=400)["scimType"] == "tooMany"
    for name in ("members", f"{GROUP}:members"):
        assert "members" not in directory.send("GET", f"{path}?excludedAttributes={name}")
    directory.patch(path, {"op": "remove", "path": "members", "value": everyone[1:]}, status=204)
    directory.group("Band", users["a"], users["b"])
    assert directory.send("GET", "/Groups", status=400)["scimType"] == "tooMany"
    assert directory.send("GET", "/Groups?excludedAttributes=members")["itemsPerPage"] == 2
    assert directory.send("GET", "/Groups?count=1")["itemsPerPage"] == 1
    for name in ("members", "MEMBERS.value", f"{GROUP}:members"):
        assert len(directory.send("GET", f"{path}?attributes={name}")["members"]) == 1, name
    assert members(directory, group["id"], users) == "a"


def test_operations_on_a_group_are_limited(directory: Directory) -> None:
    path = f"/Groups/{directory.group('Crew')['id']}"
    one = {"op": "remove", "path": 'members[value eq "usr_1"]'}
    directory.patch(path, *[one] * 1000, status=204)
    assert directory.patch(path, *[one] * 1001, status=400)["detail"].startswith("Operations: ")


def test_user_is_in_a_hundred_groups_at_most(
    directory: Directory, users: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioned_groups, "MAX_GROUPS_PER_USER", 1)
    directory.group("Crew", users["a"])
    refused = directory.group("Ops", users["a"], status=409)
    assert "at most 1 groups" in refused["detail"] and "scimType" not in refused
    directory.group("Band", users["b"])
    with directory.app.app_context():
        assert len(directory.rows(Group)) == 2
