"""Signing keys: what the API shows of them, rotation, emergency rotation, repeated requests."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants.signing_keys import get_active_key
from tests.factories import Factory, bearer_header
from tests.support.answers import version_of


@pytest.fixture
def acme(make: Factory) -> OrganizationSnapshot:
    return make.organization("acme", settings={"oauth": {"signing": {"algorithm": "EdDSA"}}})


@pytest.fixture
def headers(make: Factory, acme: OrganizationSnapshot) -> dict[str, str]:
    return bearer_header(make.bearer(acme))


PATH = "/organizations/acme/signing-keys"


def test_list_contains_public_keys_and_states(
    app: Flask, http: FlaskClient, acme: OrganizationSnapshot, headers: dict[str, str]
) -> None:
    """KY-3."""
    with app.app_context():
        kid = get_active_key(acme, "EdDSA").kid
    [key] = http.get(PATH, headers=headers).get_json()["data"]
    assert (key["kid"], key["state"], key["algorithm"]) == (kid, "active", "EdDSA")
    assert key["activated_at"] == key["created_at"] and key["retired_at"] is None
    assert set(key["public_jwk"]) == {"kty", "crv", "x", "kid", "use", "alg"}
    assert http.get(f"{PATH}/{kid}", headers=headers).get_json()["data"] == key


def test_rotation_publishes_next_key(
    http: FlaskClient, acme: OrganizationSnapshot, headers: dict[str, str]
) -> None:
    answer = http.post(f"{PATH}/rotations", headers=headers)
    assert answer.status_code == 201
    made = answer.get_json()["data"]
    assert made["state"] == "next"
    assert answer.headers["Location"] == f"{PATH}/{made['kid']}"
    read = http.get(answer.headers["Location"], headers=headers)
    assert read.get_json()["data"] == made and version_of(read) == version_of(answer)
    published = http.get("/organizations/acme/oauth/jwks").get_json()["keys"]
    assert made["public_jwk"] in published


def test_emergency_rotation_leaves_one_key(
    app: Flask, http: FlaskClient, acme: OrganizationSnapshot, headers: dict[str, str]
) -> None:
    """KY-5."""
    with app.app_context():
        before = get_active_key(acme, "EdDSA").kid
    assert before in http.get("/organizations/acme/oauth/jwks").text
    answer = http.post(f"{PATH}/rotations", json={"emergency": True}, headers=headers)
    assert answer.status_code == 201
    [standing] = http.get("/organizations/acme/oauth/jwks").get_json()["keys"]
    assert standing["kid"] == answer.get_json()["data"]["kid"] != before


def test_repeated_emergency_rotation_runs_once(
    http: FlaskClient, acme: OrganizationSnapshot, headers: dict[str, str]
) -> None:
    """JS-9."""
    once = headers | {"Idempotency-Key": "leak-7"}
    first = http.post(f"{PATH}/rotations", json={"emergency": True}, headers=once).get_json()
    again = http.post(f"{PATH}/rotations", json={"emergency": True}, headers=once).get_json()
    assert again["data"] == first["data"] and again["meta"]["repeated"] is True


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"algorithm": "HS256", "emergency": "yes"}, {"algorithm", "emergency"}),
        ({"algorithm": []}, {"algorithm"}),
        ({"emergencey": True}, {"emergencey"}),
    ],
)
def test_all_invalid_fields_are_named(
    http: FlaskClient,
    acme: OrganizationSnapshot,
    headers: dict[str, str],
    body: dict[str, Any],
    fields: set[str],
) -> None:
    answer = http.post(f"{PATH}/rotations", json=body, headers=headers)
    assert answer.status_code == 400
    assert {wrong["field"] for wrong in answer.get_json()["errors"]} == fields
