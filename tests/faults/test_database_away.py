"""The database is away, full or read-only: each answer is 2xx, 4xx, or 503 with Retry-After."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import MySQLdb
import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from werkzeug.test import TestResponse

from app import config, create_app
from app.database import engines
from app.fast_path import compiled_query
from app.oauth import discovery
from app.operations.clients import clients
from app.operations.maintenance import readiness
from app.operations.store import transactions
from app.rules.errors import Unavailable
from app.rules.identifiers import format_client_id, new_id
from tests.factories import Factory, bearer_header
from tests.support import process
from tests.support.applications import BASE_URL, Client
from tests.support.databases import Database

GONE = {
    "mysql": "mysql://gatehouse:gatehouse@127.0.0.1:{port}/gatehouse",
    "refused": "mysql://gatehouse:another-password@127.0.0.1:{mariadb}/gatehouse",
    "sqlite": "sqlite:///{folder}/no-such-folder/gatehouse.sqlite",
}
ORGANIZATION = "0rgan1zt"
VALUES = {"client_id": format_client_id(ORGANIZATION, new_id()), "organization_id": ORGANIZATION}
FORM = {"csrf_token": "x", "username": "ada@example.com", "email": "ada@example.com", "password": "x" * 12}


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.mariadb] * (name == "refused")) for name in sorted(GONE)]
)
def abandoned(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flask:
    """The application without its database; nothing is cached."""
    mariadb = request.getfixturevalue("mariadb").port if request.param == "refused" else None
    url = GONE[request.param].format(port=process.free_port(), folder=tmp_path, mariadb=mariadb)
    instance = tmp_path / "instance"
    instance.mkdir(mode=0o700)
    settings = {"DATABASE_URL": url, "GATEHOUSE_BASE_URL": BASE_URL, "GATEHOUSE_INSTANCE": str(instance)}
    app = create_app(config.load(settings | {"GATEHOUSE_JANITOR": "off"}))
    app.config["TEST_BASE_URL"] = BASE_URL
    app.config["WTF_CSRF_ENABLED"] = False
    app.config["PROPAGATE_EXCEPTIONS"] = False
    app.test_client_class = Client
    for module in (transactions, compiled_query):
        monkeypatch.setattr(module, "DEADLINE_SECONDS", 0.01)
    return app


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.OperationalError("database or disk is full"),
        sqlite3.OperationalError("attempt to write a readonly database"),
        MySQLdb.OperationalError(1290, "read-only"),
        MySQLdb.OperationalError(1836, "read-only mode"),
        MySQLdb.OperationalError(1047, "WSREP has not yet prepared node for application use"),
        MySQLdb.OperationalError(1114, "The table is full"),
    ],
    ids=str,
)
def test_full_or_read_only_database_returns_503(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    bearer = make.bearer(make.organization())
    monkeypatch.setattr(transactions, "DEADLINE_SECONDS", 0.05)

    def refuse(*_: object) -> None:
        raise DBAPIError.instance("INSERT", {}, error, Exception)

    monkeypatch.setattr(clients, "enforce_client_limit", refuse)
    sent = {"name": "Orchard", "redirect_uris": ["https://orchard.example/callback"]}
    answer = app.test_client().post("/clients", json=sent, headers=bearer_header(bearer))
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["Retry-After"]) > 0


def test_full_sqlite_database_returns_503_and_stores_nothing(
    app: Flask, make: Factory, database: Database
) -> None:
    if database.engine != "sqlite":
        return
    organization = make.organization()
    bearer, before = make.bearer(organization), database.count("clients")

    def stop_growth(connection: Any, *_: Any) -> None:
        connection.execute("PRAGMA max_page_count = 1")

    with app.app_context():
        engine = engines()[0]
    engine.dispose()
    # Rows that other tests have deleted leave free pages in the file.
    with closing(database.connect()) as connection:
        connection.execute("VACUUM")
    event.listen(engine, "connect", stop_growth)
    try:
        sent = {
            "name": "Orchard",
            "redirect_uris": [f"https://orchard.example/{n}{'x' * 400}" for n in range(40)],
        }
        answer = app.test_client().post("/clients", json=sent, headers=bearer_header(bearer))
    finally:
        event.remove(engine, "connect", stop_growth)
        engine.dispose()
    assert answer.status_code == 503, answer.text
    assert database.count("clients") == before


def test_readyz_reports_a_database_that_cannot_be_written(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = app.test_client()
    make.root()
    assert http.get("/readyz").status_code == 200
    # Other tests use the same server, so it does not become a replica.
    monkeypatch.setattr(readiness, "why_not_writable", lambda: "it is a replica")
    monkeypatch.setattr(readiness, "_MIN_FREE_BYTES", 1 << 60)
    answer = http.get("/readyz")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


@pytest.mark.parametrize("name", ["openid-configuration", "jwks"])
def test_documents_are_served_from_memory_while_the_database_is_away(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    http, organization = app.test_client(), make.organization()
    base = f"/organizations/{organization.slug}"
    path = f"{base}/oauth/jwks" if name == "jwks" else f"{base}/.well-known/{name}"
    before = http.get(path)
    assert before.status_code == 200 and "Age" not in before.headers

    def fail(*_: object, **__: object) -> None:
        raise Unavailable

    monkeypatch.setattr(discovery, "_load", fail)
    during = http.get(path)
    assert (during.status_code, during.data) == (200, before.data)
    assert 0 <= int(during.headers["Age"]) <= discovery.MAX_AGE_SECONDS
    monkeypatch.setattr(discovery, "MAX_AGE_SECONDS", -1)
    assert http.get(path).status_code == 503


def send(http: FlaskClient, method: str, path: str) -> TestResponse:
    """Send the request as a browser with a session and a program with a token would."""
    http.set_cookie("gh_sid_" + ORGANIZATION, f"gth_ss_{ORGANIZATION}{'x' * 43}", domain="localhost")
    headers = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin", "Origin": BASE_URL}
    if method == "GET":
        return http.get(path, headers=headers)
    return http.open(path, method=method, data=FORM, headers=headers)


def test_every_request_is_answered_while_the_database_is_away(abandoned: Flask) -> None:
    http = abandoned.test_client()
    wrong = {}
    unknown = ("GET", "/organizations/acme/account/nothing"), ("DELETE", "/organizations/acme/login")
    known = (
        (method, re.sub(r"<(?:[^:>]+:)?([^>]+)>", lambda match: VALUES.get(match[1], "acme"), rule.rule))
        for rule in abandoned.url_map.iter_rules()
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})
    )
    for method, path in (*unknown, *known):
        answer = send(http, method, path)
        # 501: what SCIM does not have here, which needs no database to say.
        if answer.status_code >= 500 and not (
            (answer.status_code == 503 and int(answer.headers.get("Retry-After", 0)) > 0)
            or answer.status_code == 501
        ):
            wrong[f"{method} {path}"] = answer.status_code
    assert wrong == {}


@pytest.mark.parametrize(
    "path", ["/organizations/acme/login", "/portal/acme", "/organizations/acme/oauth/authorize"]
)
def test_page_says_that_the_service_is_unavailable(abandoned: Flask, path: str) -> None:
    answer = send(abandoned.test_client(), "GET", path)
    assert (answer.status_code, answer.mimetype) == (503, "text/html")
    assert int(answer.headers["Retry-After"]) > 0
