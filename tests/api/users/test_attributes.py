"""Custom attributes by API: definitions in the settings, and values of users that fit them."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.factories import Factory, bearer_header
from tests.support.cases import each

pytestmark = pytest.mark.either

DEFINED: list[dict[str, Any]] = [
    {"key": "department", "name": "Department", "type": "string", "choices": ["Fruit", "Tools"]},
    {"key": "nickname", "name": "Nickname", "type": "string", "editable_by": "user", "scope": "openid"},
    {"key": "grade", "name": "Grade", "type": "integer"},
    {"key": "remote", "name": "Remote", "type": "boolean"},
    {"key": "hired", "name": "Hired", "type": "date"},
    {"key": "skills", "name": "Skills", "type": "list", "choices": ["pick", "prune", "drive"]},
]
VALUES = {
    "department": "Fruit",
    "nickname": "Ace",
    "grade": -3,
    "remote": False,
    "hired": "2024-02-29",
    "skills": ["prune", "pick"],
}


class Api:
    """Calls of the users and settings of one organization."""

    def __init__(self, http: FlaskClient, make: Factory, organization: Any) -> None:
        self.http, self.make, self.organization = http, make, organization
        self.headers = bearer_header(make.bearer(organization))

    def define(self, *attributes: Any, **query: str) -> Any:
        body = {"user_profile": {"attributes": list(attributes)}}
        path = f"/organizations/{self.organization.slug}/settings"
        return self.http.put(path, json=body, headers=self.headers, query_string=query)

    def put(self, user_id: str, **fields: Any) -> Any:
        return self.http.put(f"/users/{user_id}", json=fields, headers=self.headers)

    def get(self, user_id: str) -> Any:
        return self.http.get(f"/users/{user_id}", headers=self.headers).get_json()["data"]["attributes"]


@pytest.fixture
def api(http: FlaskClient, make: Factory) -> Api:
    made = Api(http, make, make.organization("acme"))
    answer = made.define(*DEFINED)
    assert answer.status_code == 200, answer.text
    return made


@each(
    ("entry", "field", "code"),
    [
        ("department", "", "wrong_type"),
        ({"name": "X", "type": "string"}, ".key", "required"),
        ({"key": "x", "type": "string"}, ".name", "required"),
        ({"key": "x", "name": "X"}, ".type", "required"),
        ({"key": "Big", "name": "X", "type": "string"}, ".key", "invalid_format"),
        ({"key": "x", "name": "X", "type": "float"}, ".type", "not_allowed"),
        ({"key": "x", "name": "X", "type": "date", "choices": ["a"]}, ".choices", "contradiction"),
        ({"key": "x", "name": "X", "type": "string", "editable_by": "all"}, ".editable_by", "not_allowed"),
        ({"key": "x", "name": "X", "type": "string", "scope": "a b"}, ".scope", "invalid_format"),
        ({"key": "x", "name": "X", "type": "string", "required": 1}, ".required", "wrong_type"),
        ({"key": "x", "name": "X", "type": "string", "lable": "L"}, ".lable", "unknown_field"),
        ({"key": "grade", "name": "X", "type": "string"}, ".key", "duplicate"),
    ],
)
def test_invalid_definition_is_rejected_and_names_the_field(
    api: Api, entry: Any, field: str, code: str
) -> None:
    answer = api.define(DEFINED[2], entry)
    assert answer.status_code == 400, answer.text
    path = f"user_profile.attributes[1]{field}"
    assert [(error["field"], error["code"]) for error in answer.get_json()["errors"]] == [(path, code)]


def test_values_are_stored_replaced_and_listed(api: Api) -> None:
    body = {"email": "ada@acme.example", "attributes": VALUES}
    made = api.http.post("/users", json=body, headers=api.headers).get_json()["data"]
    assert made["attributes"] == VALUES
    listed = api.http.get("/users", headers=api.headers).get_json()["data"]
    assert [user["attributes"] for user in listed if user["id"] == made["id"]] == [VALUES]
    changed = api.put(made["id"], attributes={"grade": 4, "skills": [], "nickname": None})
    assert changed.get_json()["meta"] == {"changed": ["attributes"]}
    assert api.get(made["id"]) == {"grade": 4}
    assert api.put(made["id"], name="Ada").get_json()["data"]["attributes"] == {"grade": 4}
    assert api.put(made["id"], attributes=None).get_json()["data"]["attributes"] == {}


@each(
    ("values", "key", "code"),
    [
        ({"department": "Sales"}, "department", "not_allowed"),
        ({"department": 5}, "department", "wrong_type"),
        ({"nickname": "x" * 501}, "nickname", "too_long"),
        ({"nickname": "a\nb"}, "nickname", "forbidden_character"),
        ({"grade": "4"}, "grade", "wrong_type"),
        ({"grade": True}, "grade", "wrong_type"),
        ({"grade": 2**53}, "grade", "out_of_range"),
        ({"remote": "yes"}, "remote", "wrong_type"),
        ({"hired": "2023-02-29"}, "hired", "invalid_date"),
        ({"hired": "20240229"}, "hired", "invalid_date"),
        ({"skills": "pick"}, "skills", "wrong_type"),
        ({"skills": ["pick", "pick"]}, "skills", "duplicate"),
        ({"skills": ["swim"]}, "skills", "not_allowed"),
        ({"skills": ["pick"] * 51}, "skills", "too_many"),
        ({"shoe_size": 45}, "shoe_size", "unknown_field"),
    ],
)
def test_invalid_value_is_rejected_and_names_the_attribute(
    api: Api, values: dict[str, Any], key: str, code: str
) -> None:
    user = api.make.user(api.organization).public_id
    answer = api.put(user, attributes=values)
    assert answer.status_code == 400, answer.text
    errors = [(error["field"], error["code"]) for error in answer.get_json()["errors"]]
    assert errors == [(f"attributes.{key}", code)]
    assert api.get(user) == {}
    new = {"email": "new@acme.example", "attributes": values}
    assert api.http.post("/users", json=new, headers=api.headers).status_code == 400


def test_required_attribute_needs_a_value_where_attributes_are_sent(api: Api) -> None:
    api.define({**DEFINED[0], "required": True}, DEFINED[2])
    user = api.make.user(api.organization).public_id
    assert api.put(user, name="Ada").status_code == 200
    answer = api.put(user, attributes={"grade": 4})
    assert answer.get_json()["errors"][0]["field"] == "attributes.department"
    assert api.put(user, attributes={"department": "Fruit"}).status_code == 200


def test_removed_or_changed_attribute_hides_values_until_the_next_save(api: Api) -> None:
    user = api.make.user(api.organization).public_id
    api.put(user, attributes=VALUES)
    api.define(DEFINED[1], {**DEFINED[2], "type": "string"})
    assert api.get(user) == {"nickname": "Ace"}
    api.put(user, attributes={"nickname": "Ace"})
    api.define(*DEFINED)
    assert api.get(user) == {"nickname": "Ace"}
