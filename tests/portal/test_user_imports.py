"""Imports of users in the portal: preview, import, cancellation and the report of rejected rows."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.users import import_runner
from app.rules.actor import Actor
from app.rules.users import import_files
from tests.support.databases import Database
from tests.support.importing import user_rows


def work(app: Flask) -> None:
    with app.app_context():
        import_runner.process_due_imports(Actor.system("", "tests"), holder="tests")


def upload(portal_user: Any, text: str, name: str = "users.csv", **fields: str) -> int:
    """Upload a file and return the status of the response."""
    portal_user.get("/users/imports")
    page = portal_user.send("/users/imports", file=(io.BytesIO(text.encode()), name), **fields)
    return int(page.status_code)


@pytest.mark.either
@pytest.mark.slow
def test_large_file_is_previewed_and_imported(app: Flask, ada: Any, database: Database) -> None:
    street = "Orchard Lane " * 38
    rows = (f"p{number}@users.example,Person {number},{street}\n" for number in range(600))
    text = f"email,name,address.street_address\n{''.join(rows)}nobody,<b>Wrong</b>,\n"
    assert len(text) > 256 * 1024
    assert upload(ada, text) == 303
    ada.follow()
    assert "users.csv" in ada.text and "0 of 601 rows, 0%" in ada.text
    path = urlsplit(ada.page.request.path).path
    assert ada.page.headers["Refresh"] == f"3; url={path}"
    work(app)
    ada.get(path)
    assert "Refresh" not in ada.page.headers
    assert "Will be created 600" in ada.text and "Import 600 users" in ada.page.text
    assert "email : Enter a valid email address." in ada.text
    assert database.count("users") == 1
    ada.send(f"{path}/start")
    ada.follow()
    again = ada.send(f"{path}/start")
    assert (again.status_code, again.headers["Refresh"]) == (409, f"3; url={path}")
    work(app)
    ada.get(path)
    assert "Created 600" in ada.text and "Rejected 1" in ada.text
    assert database.count("users") == 601
    report = ada.get(f"{path}/rejected.csv")
    assert report.mimetype == "text/csv" and "attachment" in report.headers["Content-Disposition"]
    assert report.text.splitlines()[0] == "row,errors,email,name"
    ada.get("/users/imports")
    assert "601 of 601" in ada.text and "Done" in ada.text


def test_invalid_file_shows_error_at_field(ada: Any, database: Database) -> None:
    assert upload(ada, "emial\nx") == 400
    assert 'Did you mean "email"?' in ada.text
    assert upload(ada, "email\n", on_existing="replace") == 400
    ada.get("/users/imports")
    assert ada.send("/users/imports").status_code == 400
    assert "Choose a file." in ada.text
    assert database.count("user_imports") == 0


HASHES = ("md5", "$2b$04$" + "a" * 53, "$scrypt$ln=15,r=8,p=1$" + "a" * 22 + "$aaaa")
ROWS = ({"email": "p@acme.example", "name": 5}, {"email": "q@acme.example", "address": "Orchard Lane"})


@pytest.mark.parametrize(
    ("name", "content", "reasons"),
    [
        (
            "users.csv",
            "email,password_hash\n"
            + "".join(f'p{n}@acme.example,"{each}"\n' for n, each in enumerate(HASHES)),
            [
                "Dieser Passwort-Hash wird nicht unterstützt.",
                "bcrypt cost ist 4. Erlaubt ist 8 bis 14.",
                "Der Teil digest dieses Hashes hat 3 Byte.",
            ],
        ),
        (
            "users.jsonl",
            "".join(f"{json.dumps(row)}\n" for row in ROWS),
            ["Erwartet wird ein Text, nicht eine Zahl.", "Erwartet wird ein Objekt, nicht ein Text."],
        ),
    ],
    ids=["password hashes", "types of values"],
)
def test_reasons_of_rejected_rows_are_in_the_language_of_the_page(
    app: Flask, ada: Any, name: str, content: str, reasons: list[str]
) -> None:
    """Also the values in them, such as the name of a type."""
    upload(ada, content, name)
    ada.follow()
    path = urlsplit(ada.page.request.path).path
    work(app)
    ada.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    ada.get(path)
    assert [reason for reason in reasons if reason not in ada.text] == []


def test_import_is_cancelled(app: Flask, ada: Any, database: Database) -> None:
    upload(ada, user_rows(3), "users.json.csv")
    ada.follow()
    path = urlsplit(ada.page.request.path).path
    ada.send(f"{path}/cancel")
    ada.follow()
    assert "Cancelled" in ada.text
    assert ada.send(f"{path}/start").status_code == 409
    work(app)
    assert database.count("users") == 1 and database.count("user_import_parts") == 0


def test_auditor_cannot_upload_or_see_rejected_rows(
    app: Flask, ada: Any, acme: Any, portal_user: Any
) -> None:
    upload(ada, "email\nnobody\n")
    ada.follow()
    path = ada.page.request.path
    work(app)
    reader = portal_user(acme, "auditor")
    reader.get("/users/imports")
    assert "users.csv" in reader.text and "Preview import" not in reader.text
    reader.get(path)
    assert "Rejected 1" in reader.text and "not an e-mail" not in reader.text
    assert reader.get(f"{path}/rejected.csv").status_code == 403
    ada.get("/users/imports")
    assert reader.send("/users/imports", file=(io.BytesIO(b"email\n"), "x.csv")).status_code in (400, 403)


@pytest.mark.parametrize("slug", ["acme", "never-was"])
def test_upload_without_sign_in_has_ordinary_size_limit(http: FlaskClient, acme: Any, slug: str) -> None:
    body = {"file": (io.BytesIO(b"x" * 200_000), "users.csv")}
    answer = http.post(f"/portal/{slug}/users/imports", data=body, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 413


def test_file_size_is_limited(ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "MAX_FILE_BYTES", 100_000)
    assert upload(ada, user_rows(5000)) == 400
    assert "Split it into smaller files" in ada.text
