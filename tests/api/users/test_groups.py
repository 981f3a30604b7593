"""Groups of users by API: fields, members, tenancy, limits, and what deletions remove."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.users import groups
from app.operations.users.deletion import delete_user
from app.rules.identifiers import new_id, public_id
from tests.factories import Factory, MadeUser, bearer_header
from tests.oauth.conftest import audited
from tests.support.databases import Database

pytestmark = pytest.mark.either


class Api:
    """Calls of the groups of one organization."""

    def __init__(self, http: FlaskClient, slug: str, token: str) -> None:
        self.http, self.base, self.headers = http, f"/organizations/{slug}/groups", bearer_header(token)

    def call(self, method: str, path: str = "", **more: Any) -> Any:
        headers = {**self.headers, **more.pop("headers", {})}
        return self.http.open(f"{self.base}{path}", method=method, headers=headers, **more)

    def create(self, name: str = "Pickers") -> str:
        return str(self.call("POST", json={"name": name}).get_json()["data"]["id"])

    def add(self, group: str, user: MadeUser) -> Any:
        return self.call("POST", f"/{group}/members", json={"user_id": user.public_id})


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization("acme")


@pytest.fixture
def api(http: FlaskClient, make: Factory, acme: Any) -> Api:
    return Api(http, "acme", make.bearer(acme, "users:read", "users:write"))


def test_group_is_created_listed_changed_and_deleted(api: Api) -> None:
    made = api.call("POST", json={"name": "Pickers", "description": "Those who pick."})
    assert made.status_code == 201, made.text
    group = made.get_json()["data"]
    assert made.headers["Location"].endswith(f"/groups/{group['id']}")
    assert (group["organization_id"], group["members"]) == ("acme", 0)
    api.create("Drivers")
    assert [entry["name"] for entry in api.call("GET").get_json()["data"]] == ["Drivers", "Pickers"]
    page = api.call("GET", query_string={"q": "PICK", "limit": 1}).get_json()
    assert [entry["id"] for entry in page["data"]] == [group["id"]] and page["meta"]["next_cursor"] is None
    read = api.call("GET", f"/{group['id']}")
    changed = api.call(
        "PUT", f"/{group['id']}", json={"name": "Gatherers"}, headers={"If-Match": read.headers["ETag"]}
    )
    assert changed.get_json()["meta"] == {"changed": ["name"]}
    stale = {"If-Match": read.headers["ETag"]}
    assert api.call("PUT", f"/{group['id']}", json={"name": "X"}, headers=stale).status_code == 412
    assert api.call("DELETE", f"/{group['id']}", headers=stale).status_code == 412
    assert api.call("DELETE", f"/{group['id']}").get_json()["data"]["name"] == "Gatherers"
    assert api.call("GET", f"/{group['id']}").status_code == 404


NO_IDP = public_id("idp", new_id())


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({}, "name", "required"),
        ({"name": None}, "name", "required"),
        ({"name": ""}, "name", "too_short"),
        ({"name": "x" * 101}, "name", "too_long"),
        ({"name": "a\nb"}, "name", "forbidden_character"),
        ({"name": 7}, "name", "wrong_type"),
        ({"name": "New", "description": "x" * 501}, "description", "too_long"),
        ({"name": "New", "members": 3}, "members", "read_only"),
        ({"name": "New", "colour": "red"}, "colour", "unknown_field"),
        ({"name": "New", "provider_groups": "eng"}, "provider_groups", "wrong_type"),
        (
            {"name": "New", "provider_groups": [{"provider_id": NO_IDP, "value": "x"}] * 21},
            "provider_groups",
            "too_many",
        ),
        (
            {"name": "New", "provider_groups": [{"provider_id": "idp_1", "value": "x"}]},
            "provider_groups[0].provider_id",
            "invalid_id",
        ),
        (
            {"name": "New", "provider_groups": [{"provider_id": NO_IDP, "value": ""}]},
            "provider_groups[0].value",
            "too_short",
        ),
        (
            {"name": "New", "provider_groups": [{"provider_id": NO_IDP, "value": "x"}]},
            "provider_groups[0].provider_id",
            "unknown_provider",
        ),
    ],
)
def test_invalid_group_is_rejected_and_names_the_field(
    api: Api, database: Database, body: dict[str, Any], field: str, code: str
) -> None:
    answer = api.call("POST", json=body)
    assert answer.status_code == 400, answer.text
    assert [(error["field"], error["code"]) for error in answer.get_json()["errors"]] == [(field, code)]
    assert database.count("user_groups") == 0


def test_name_is_unique_regardless_of_case_within_the_organization(
    api: Api, http: FlaskClient, make: Factory
) -> None:
    api.create("Pickers")
    other = api.create("Drivers")
    assert api.call("POST", json={"name": "PICKERS"}).get_json()["error"] == "taken"
    assert api.call("PUT", f"/{other}", json={"name": "pickers"}).get_json()["error"] == "taken"
    globex = make.organization("globex")
    elsewhere = Api(http, "globex", make.bearer(globex, "users:read", "users:write"))
    assert elsewhere.call("POST", json={"name": "Pickers"}).status_code == 201


def test_members_are_added_listed_and_removed(api: Api, make: Factory, acme: Any) -> None:
    group, ada = api.create(), make.user(acme, email="ada@acme.example", name="Ada")
    bob = make.user(acme, email="bob@acme.example")
    assert api.add(group, ada).status_code == 201
    assert api.call("POST", f"/{group}/members", json={"email": "BOB@acme.example"}).status_code == 201
    assert api.add(group, ada).get_json()["error"] == "already_member"
    for both_or_neither in ({"user_id": ada.public_id, "email": ada.email}, {}):
        refused = api.call("POST", f"/{group}/members", json=both_or_neither).get_json()
        assert (refused["error"], refused["errors"][0]["code"]) == ("invalid_input", "required")
    first = api.call("GET", f"/{group}/members", query_string={"limit": 1}).get_json()
    assert [member["email"] for member in first["data"]] == [ada.email]
    query = {"limit": 1, "cursor": first["meta"]["next_cursor"]}
    second = api.call("GET", f"/{group}/members", query_string=query).get_json()
    assert [member["user_id"] for member in second["data"]] == [bob.public_id]
    for text in ("ADA@", ada.public_id):
        found = api.call("GET", f"/{group}/members", query_string={"q": text}).get_json()
        assert [member["email"] for member in found["data"]] == [ada.email], text
    assert api.call("GET", f"/{group}").get_json()["data"]["members"] == 2
    assert api.call("DELETE", f"/{group}/members/{ada.public_id}").status_code == 200
    assert api.call("DELETE", f"/{group}/members/{ada.public_id}").status_code == 404


@pytest.mark.parametrize("kind", ["foreign", "deleted", "absent", "malformed"])
def test_only_users_of_the_organization_can_be_members(
    app: Flask, api: Api, make: Factory, acme: Any, database: Database, kind: str
) -> None:
    group = api.create()
    deleted = make.user(acme).public_id
    with app.app_context():
        delete_user(make.actor(acme), deleted)
    user_id = {
        "foreign": make.user(make.organization("globex")).public_id,
        "deleted": deleted,
        "absent": public_id("usr", new_id()),
        "malformed": "usr_1",
    }[kind]
    answer = api.call("POST", f"/{group}/members", json={"user_id": user_id})
    assert answer.status_code == 400 and answer.get_json()["errors"][0]["code"] == "unknown_user"
    for body in ({}, {"user_id": user_id, "email": "ada@acme.example"}):
        assert api.call("POST", f"/{group}/members", json=body).status_code == 400
    assert database.count("group_members") == 0


def test_deleting_a_user_or_a_group_removes_memberships(
    app: Flask, api: Api, make: Factory, acme: Any, database: Database
) -> None:
    pickers, drivers = api.create("Pickers"), api.create("Drivers")
    ada, bob = make.user(acme), make.user(acme)
    for group in (pickers, drivers):
        for user in (ada, bob):
            api.add(group, user)
    with app.app_context():
        delete_user(make.actor(acme), ada.public_id)
    assert database.count("group_members") == 2
    assert api.call("DELETE", f"/{pickers}").get_json()["data"]["members"] == 1
    assert database.count("group_members") == 1


def test_groups_and_groups_of_a_user_are_limited(
    api: Api, make: Factory, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_GROUPS", 3)
    monkeypatch.setattr(groups, "MAX_GROUPS_PER_USER", 2)
    made, ada = [api.create(name) for name in ("A", "B", "C")], make.user(acme)
    assert api.call("POST", json={"name": "D"}).get_json()["error"] == "too_many"
    answers = [api.add(group, ada) for group in made]
    assert [answer.status_code for answer in answers] == [201, 201, 409]


def test_changes_of_groups_are_audited(api: Api, make: Factory, acme: Any, database: Database) -> None:
    group, ada = api.create(), make.user(acme)
    api.add(group, ada)
    api.call("PUT", f"/{group}", json={"name": "Pickers"})
    api.call("PUT", f"/{group}", json={"name": "Gatherers"})
    api.call("DELETE", f"/{group}/members/{ada.public_id}")
    api.call("DELETE", f"/{group}")
    counts = {"created": 1, "member_added": 1, "updated": 1, "member_removed": 1, "deleted": 1}
    assert {name: audited(database, f"group.{name}") for name in counts} == counts
