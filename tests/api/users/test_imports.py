"""Imports of users: upload of a file that is larger than other bodies, and its progress."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.operations.tokens.revocation import revoke_token
from app.operations.users import import_runner
from app.rules.actor import Actor
from app.rules.users import import_files
from app.web import request_bodies
from tests.factories import Factory, bearer_header
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.importing import LONG_SURNAME, user_rows
from tests.support.request_bodies import BodyWithCallback, StalledBody


@pytest.fixture
def token(make: Factory) -> dict[str, str]:
    return bearer_header(make.bearer(make.organization("acme")))


def send(
    http: FlaskClient, token: dict[str, str], text: str, kind: str = "text/csv", **query: str
) -> TestResponse:
    return http.post(
        "/users/imports", data=text.encode(), content_type=kind, headers=token, query_string=query
    )


def work(app: Flask) -> None:
    with app.app_context():
        import_runner.process_due_imports(Actor.system("", "tests"), holder="tests")


@pytest.mark.slow
def test_large_file_is_imported(
    app: Flask, http: FlaskClient, token: dict[str, str], database: Database
) -> None:
    text = user_rows(700, surname=LONG_SURNAME)
    assert len(text) > 64 * 1024
    made = send(http, token, text, name="users.csv")
    assert made.status_code == 201, made.text
    data = made.get_json()["data"]
    assert (data["status"], data["rows"], data["processed"], data["name"]) == (
        "running",
        700,
        0,
        "users.csv",
    )
    work(app)
    data = http.get(made.headers["Location"], headers=token).get_json()["data"]
    assert (data["status"], data["created"], data["rejected"]) == ("done", 700, 0)
    assert data["finished_at"] is not None
    assert http.get("/users/imports", headers=token).get_json()["data"] == [data]
    assert database.count("users") == 700
    assert (
        http.get("/users?q=p699@", headers=token).get_json()["data"][0]["name"] == f"Person 699{LONG_SURNAME}"
    )


@pytest.mark.parametrize(("kind", "join"), [("application/json", True), ("application/x-ndjson", False)])
def test_dry_run_is_checked_and_then_imported(
    app: Flask, http: FlaskClient, token: dict[str, str], database: Database, kind: str, join: bool
) -> None:
    rows = [{"email": "ada@a.example", "name": "Ada"}, {"email": "bob@a.example", "nmae": "Bob"}]
    text = json.dumps(rows) if join else "\n".join(map(json.dumps, rows))
    made = send(http, token, text, kind, dry_run="true").get_json()["data"]
    path = f"/users/imports/{made['id']}"
    assert made["status"] == "checking"
    assert http.post(f"{path}/start", headers=token).status_code == 409
    work(app)
    assert http.get(path, headers=token).get_json()["data"]["status"] == "checked"
    assert database.count("users") == 0
    refused = http.get(f"{path}/rejected-rows", headers=token).get_json()
    assert refused["meta"] == {"next_cursor": None}
    assert refused["data"] == [
        {
            "row": 2,
            "fields": {"email": "bob@a.example", "nmae": "Bob"},
            "errors": [
                {
                    "field": "nmae",
                    "code": "unknown_field",
                    "message": 'There is no such field. Did you mean "name"?',
                }
            ],
        }
    ]
    assert http.post(f"{path}/start", headers=token).get_json()["data"]["status"] == "running"
    work(app)
    assert database.count("users") == 1
    assert http.delete(path, headers=token).status_code == 409


def test_rejected_rows_are_paged(app: Flask, http: FlaskClient, token: dict[str, str]) -> None:
    made = send(http, token, "email\n" + "nobody\n" * 5).get_json()["data"]
    work(app)
    path = f"/users/imports/{made['id']}/rejected-rows?limit=2"
    seen: list[int] = []
    cursor = ""
    while cursor is not None:
        page = http.get(path + (f"&cursor={cursor}" if cursor else ""), headers=token).get_json()
        seen += [row["row"] for row in page["data"]]
        cursor = page["meta"]["next_cursor"]
    assert seen == [2, 3, 4, 5, 6]


def test_idempotency_key_creates_one_import(
    http: FlaskClient, token: dict[str, str], database: Database
) -> None:
    keyed = token | {"Idempotency-Key": "moving-day"}
    first = send(http, keyed, user_rows(3))
    again = send(http, keyed, user_rows(3))
    assert again.get_json()["data"]["id"] == first.get_json()["data"]["id"]
    assert again.get_json()["meta"] == {"repeated": True}
    assert send(http, keyed, user_rows(4)).status_code == 409
    assert send(http, token | {"Idempotency-Key": "a b"}, user_rows(4)).status_code == 400
    assert database.count("user_imports") == database.count("user_import_parts") == 1


@each(
    ("text", "kind", "query", "status", "field"),
    [
        ("emial\nx", "text/csv", {}, 400, "file"),
        ("", "text/csv", {}, 400, "file"),
        ("{}", "application/json", {}, 400, "file"),
        ("[5]", "application/json", {}, 400, "file"),
        ("email\n", "text/csv", {"on_existing": "replace"}, 400, "on_existing"),
        ("email\n", "text/csv", {"dry_run": "yes"}, 400, "dry_run"),
        ("email\n", "text/csv", {"name": "x" * 201}, 400, "name"),
        ("email\n", "text/csv", {"format": "csv"}, 400, "format"),
        ("email\n", "text/plain", {}, 415, None),
        ("email\n", "text/csv; charset=latin-1", {}, 415, None),
        ("email\n", "multipart/form-data; boundary=x", {}, 415, None),
    ],
)  # fmt: skip
def test_invalid_import_stores_nothing(
    http: FlaskClient,
    token: dict[str, str],
    database: Database,
    text: str,
    kind: str,
    query: dict[str, str],
    status: int,
    field: str | None,
) -> None:
    answer = send(http, token, text, kind, **query)
    assert answer.status_code == status, answer.text
    assert [error["field"] for error in answer.get_json()["errors"]] == ([field] if field else [])
    assert database.count("user_imports") == database.count("user_import_parts") == 0


def test_js9_too_large_file_is_rejected_before_and_while_it_is_read(
    http: FlaskClient, token: dict[str, str], monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    from app.api.users import imports

    monkeypatch.setattr(imports, "MAX_FILE_BYTES", 200_000)
    answer = send(http, token, user_rows(20_000))
    assert answer.status_code == 413 and answer.get_json()["error"] == "too_large"
    monkeypatch.setattr(imports, "MAX_FILE_BYTES", 10**9)
    monkeypatch.setattr(import_files, "MAX_FILE_BYTES", 200_000)
    assert send(http, token, user_rows(20_000)).status_code == 400
    assert database.count("user_imports") == database.count("user_import_parts") == 0


def test_import_that_stalls_is_rejected_with_408(
    context: Flask, http: FlaskClient, token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_bodies, "MAX_BODY_SECONDS", 0.2)
    body = StalledBody(b"email,name\n", length=9000)
    answer = http.post(
        "/users/imports", headers=token, content_type="text/csv", environ_overrides=body.environment
    )
    body.connection_closed.set()
    assert (answer.status_code, answer.get_json()["error"]) == (408, "too_slow")
    assert http.get("/users/imports", headers=token).get_json()["data"] == []
    assert send(http, token, user_rows(1)).status_code == 201


def test_token_revoked_during_upload_imports_nobody(
    app: Flask, http: FlaskClient, make: Factory, database: Database
) -> None:
    """SS-5: an upload may take minutes."""
    acme = make.organization("acme")
    bearer, actor = make.bearer(acme), make.actor(acme)

    def revoke() -> None:
        with app.app_context():
            revoke_token(actor, bearer)

    body = BodyWithCallback(user_rows(1).encode(), revoke)
    answer = http.post(
        "/users/imports",
        headers=bearer_header(bearer),
        content_type="text/csv",
        environ_overrides=body.environment,
    )
    assert answer.status_code == 401, answer.text
    assert database.count("user_imports") == database.count("user_import_parts") == 0


def test_import_has_permissions_of_its_token(
    app: Flask, http: FlaskClient, make: Factory, token: dict[str, str]
) -> None:
    """TN-11: a token without the role's permissions grants none of them."""
    acme = make.organization("weak")
    weak = bearer_header(make.bearer(acme, "users:read", "users:write"))
    made = send(
        http, weak, "email,roles,email_verified\na@a.example,admin,\nb@a.example,,true\nc@a.example,,\n"
    )
    work(app)
    data: dict[str, Any] = http.get(made.headers["Location"], headers=weak).get_json()["data"]
    assert (data["created"], data["rejected"]) == (1, 2)
    assert http.get(made.headers["Location"], headers=token).status_code == 404
