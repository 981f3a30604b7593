"""One row of an import: accepted fields, and every invalid field by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.rules.directory.attributes import Attribute
from app.rules.errors import InvalidInput
from app.rules.users.import_files import read_rows
from app.rules.users.user_import import validate_imported_user
from tests.support.cases import each
from tests.support.servers import ROOT

GOOD = {"email": "Ada@A.example"}


def test_row_needs_only_an_email() -> None:
    user = validate_imported_user(GOOD)
    assert (user.email, user.canonical) == ("Ada@A.example", "ada@a.example")
    assert (user.name, user.email_verified, user.status, user.roles) == ("", False, "active", ())
    assert user.password_hash is user.password_scheme is None
    assert user.given == {"email"}


def test_row_with_all_fields_is_accepted() -> None:
    user = validate_imported_user(
        {
            **GOOD,
            "name": "Ada Lovelace",
            "email_verified": "yes",
            "roles": "member, auditor;member",
            "status": "disabled",
            "phone_number": "+41 44 668 18 00",
            "birthdate": "1815-12-10",
            "locale": "en_GB",
            "address": {"country": "England"},
            "address.locality": "London",
            "password_hash": "$2b$12$" + "a" * 53,
        }
    )
    assert user.email_verified and user.status == "disabled"
    assert user.roles == ("member", "auditor")
    assert user.profile == {
        "phone_number": "+41446681800",
        "birthdate": "1815-12-10",
        "locale": "en-GB",
        "address": {"locality": "London", "country": "England"},
    }
    assert (user.password_scheme, user.password_hash) == ("bcrypt 12", "$2b$12$" + "a" * 53)


@pytest.mark.usefixtures("real_hashes")
def test_hash_with_current_parameters_has_no_scheme() -> None:
    current = (
        "$argon2id$v=19$m=19456,t=2,p=1$c2l4dGVlbiBieXRlcyBvaw$bm8gcGFzc3dvcmQgaGFzIHRoaXMgZGlnZXN0IDMyIGI"
    )
    assert validate_imported_user(GOOD | {"password_hash": current}).password_scheme is None
    other = current.replace("t=2", "t=3")
    assert validate_imported_user(GOOD | {"password_hash": other}).password_scheme == "argon2id 19456 3 1"


def test_keycloak_hash_is_parsed_from_a_cell() -> None:
    text = "c2l4dGVlbiBieXRlcyBvaw=="
    cell = json.dumps({"algorithm": "pbkdf2-sha256", "iterations": 27500, "salt": text, "value": text})
    assert validate_imported_user(GOOD | {"password_hash": cell}).password_scheme == "pbkdf2-sha256 27500"


@each(
    ("field", "value", "code"),
    [
        ("email", "nobody", "invalid_email"),
        ("email", "", "invalid_email"),
        ("email", 5, "invalid_email"),
        ("email", None, "required"),
        ("email", "a\0@a.example", "invalid_email"),
        ("name", "x" * 101, "too_long"),
        ("name", "A\u202eB", "forbidden_character"),
        ("name", "A\0B", "forbidden_character"),
        ("name", ["Ada"], "wrong_type"),
        ("status", "deleted", "not_allowed"),
        ("status", ["active"], "not_allowed"),
        ("email_verified", "perhaps", "wrong_type"),
        ("email_verified", 1, "wrong_type"),
        ("roles", {"admin": True}, "wrong_type"),
        ("roles", [5], "wrong_type"),
        ("roles", [f"r{number}" for number in range(21)], "too_many"),
        ("groups", {"Drivers": True}, "wrong_type"),
        ("groups", [5], "wrong_type"),
        ("groups", "[", "wrong_type"),
        ("groups", ["x"] * 101, "too_many"),
        ("phone_number", "044", "invalid_phone"),
        ("birthdate", "yesterday", "invalid_date"),
        ("address", "London", "wrong_type"),
        ("address.country", "x" * 101, "too_long"),
        ("password_hash", "password", "unknown_hash"),
        ("password_hash", "{", "malformed_hash"),
        ("password_hash", "$2b$31$" + "a" * 53, "hash_too_expensive"),
        ("id", "usr_x", "unknown_field"),
        ("organization_id", "globex", "unknown_field"),
        ("version", 1, "unknown_field"),
        ("password", "clear text", "unknown_field"),
    ],
)
def test_invalid_field_is_rejected_by_name(field: str, value: Any, code: str) -> None:
    """TN-12: unknown fields are rejected, never ignored and never set."""
    with pytest.raises(InvalidInput) as refusal:
        validate_imported_user({**GOOD, "gender": "x" * 99, field: value})
    found = {error.field: error.code for error in refusal.value.errors}
    assert found == {field: code, "gender": "too_long"}


@each(
    ("field", "meant"),
    [
        ("firstName", "given_name"),
        ("displayName", "name"),
        ("emailVerified", "email_verified"),
        ("app_metadata", "attributes"),
        ("credentials", "password_hash"),
    ],
)
def test_field_of_another_product_gets_suggestion(field: str, meant: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        validate_imported_user({**GOOD, field: "x"})
    assert refusal.value.errors[0].message.endswith(f'Did you mean "{meant}"?')


SALT = "c2l4dGVlbiBieXRlcyBvaw=="
BCRYPT = "$2b$10$" + "a" * 53
KEYCLOAK = {
    "realm": "acme",
    "users": [
        {
            "id": "8d1c",
            "username": "ada",
            "email": "ada@a.example",
            "emailVerified": True,
            "enabled": False,
            "firstName": "Ada",
            "lastName": "Lovelace",
            "groups": ["/staff"],
            "realmRoles": ["editor", "default-roles-acme", "offline_access"],
            "credentials": [
                {"type": "otp", "secretData": "{}", "credentialData": "{}"},
                {
                    "type": "password",
                    "secretData": json.dumps({"value": SALT, "salt": SALT, "additionalParameters": {}}),
                    "credentialData": json.dumps({"hashIterations": 27500, "algorithm": "pbkdf2-sha256"}),
                },
            ],
        },
        {"id": "9e2d", "username": "robot"},
    ],
}
AUTH0 = [
    {"user_id": "auth0|1", "email": "ada@a.example", "email_verified": True, "name": "Ada", "blocked": True},
    {"_id": {"$oid": "60425"}, "email": "bob@a.example", "passwordHash": BCRYPT, "tenant": "acme"},
]
FIREBASE = {
    "users": [
        {
            "localId": "Zx1",
            "email": "ada@a.example",
            "emailVerified": True,
            "disabled": True,
            "displayName": "Ada",
            "phoneNumber": "+41446681800",
            "salt": SALT,
            "passwordHash": "A" * 86 + "==",
        },
        {"localId": "Zx2", "phoneNumber": "+41446681801"},
    ]
}


@each(
    ("product", "export", "parameters", "schemes", "notes"),
    [
        ("keycloak", KEYCLOAK, [], ["pbkdf2-sha256 27500"], "no email: 9e2d\ngroup: /staff\ngroup: editor\n"),
        ("auth0", AUTH0, [], [None, "bcrypt 10"], ""),
        ("firebase", FIREBASE, ["A" * 86 + "==", "Bw==", "8", "14"], ["firescrypt 14 8 1"], "no email: Zx2\n"),
    ],
)  # fmt: skip
def test_example_makes_rows_of_what_another_product_exports(
    product: str, export: Any, parameters: list[str], schemes: list[str | None], notes: str, tmp_path: Path
) -> None:
    """The program of docs/guides/migrate.md."""
    lines = export if isinstance(export, list) else [export]
    (tmp_path / "export").write_text("\n".join(json.dumps(line) for line in lines))
    program = ROOT / "docs/examples/users_for_import.py"
    done = subprocess.run(
        [sys.executable, program, product, tmp_path / "export", *parameters],
        capture_output=True,
        check=True,
    )
    assert done.stderr.decode() == notes
    old_id = Attribute("old_id", "Old ID", "string")
    users = [validate_imported_user(row.fields, [old_id]) for row in read_rows([done.stdout], "ndjson")]
    assert [user.password_scheme for user in users] == schemes
    ada = users[0]
    assert (ada.email, ada.email_verified, ada.status) == ("ada@a.example", True, "disabled")
    assert ada.attributes["old_id"] in ("8d1c", "auth0|1", "Zx1")
    assert ada.groups == (("/staff", "editor") if product == "keycloak" else ())
