"""Requests read no rows that do not concern them: 10,000 ended ones of one user, or those of members, cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from flask import Flask

from tests.account.conftest import Visitor
from tests.factories import bearer_header
from tests.oauth.conftest import REDIRECT_URI, SCOPES, Flow
from tests.support.databases import Database

COPIES = 10_000
# Sessions are not here: a user has at most 100, ended ones included.
ENDED_BY = {
    "grants": "revoked_at",
    "access_tokens": "revoked_at",
    "authorization_codes": "used_at",
}


def copy_newest(database: Database, table: str, *, first: int, **changes: Any) -> None:
    """Insert COPIES rows like the table's newest one, with these changes and ids that begin with this byte."""
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY id DESC LIMIT 1")
        [row], names = cursor.fetchall(), [column[0] for column in cursor.description]
        newest = dict(zip(names, row, strict=True)) | changes
        copies = []
        for number in range(COPIES):
            newest["id"] = bytes([first]) + number.to_bytes(15)
            unique = {"digest": number.to_bytes(32), "email_canonical": f"{number}@acme.example"}
            newest |= {column: value for column, value in unique.items() if column in newest}
            if table == "role_assignments":
                newest["user_id"] = newest["id"]
            copies.append(tuple(newest.values()))
        marks = ", ".join(["%s"] * len(names))
        cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", copies)
        cursor.execute(f"ANALYZE TABLE {table}")


def rows_read(database: Database, act: Callable[[], Any], enough: int | None = None) -> int:
    """Return how many rows and index entries the server reads for the action, once it is warm.

    The server counts for all its users, so other test workers can only add to the figure. So the smallest of several
    counts; with ``enough``, until one is as small as that.
    """
    act()
    figures: list[int] = []
    while len(figures) < (6 if enough is None else 40):
        before = _handler_reads(database)
        act()
        figures.append(_handler_reads(database) - before)
        if enough is not None and figures[-1] <= enough:
            break
    return min(figures)


def _handler_reads(database: Database) -> int:
    return sum(int(value) for _, value in database.query("SHOW GLOBAL STATUS LIKE 'Handler_read%%'"))


@pytest.mark.mariadb
def test_ended_rows_of_a_user_are_not_read(
    make: Any, app: Flask, acme: Any, ada: Any, database: Database
) -> None:
    client = make.client(acme, scopes=SCOPES, redirect_uris=[REDIRECT_URI])
    flow = Flow(app, app.test_client(), make, client, ada)
    flow.sign_in()
    tokens = flow.tokens(scope=" ".join(SCOPES))
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}

    def refresh() -> None:
        tokens["refresh_token"] = flow.refresh(tokens["refresh_token"]).get_json()["refresh_token"]

    acts: dict[str, Callable[[], Any]] = {
        "code flow": lambda: flow.tokens(scope=" ".join(SCOPES)),
        "refresh": refresh,
        "introspection": lambda: flow.introspect(tokens["access_token"]),
        "userinfo": lambda: flow.http.get("/oauth/userinfo", headers=bearer),
        "sign-in": lambda: Visitor(app).sign_in(ada),
    }
    few = {name: rows_read(database, act) for name, act in acts.items()}
    for table in ENDED_BY:
        copy_newest(database, table, first=1, **{ENDED_BY[table]: "2020-01-01"})
    many = {name: rows_read(database, act, few[name] + 50) for name, act in acts.items()}
    assert {name: many[name] - few[name] for name in acts if many[name] - few[name] > 50} == {}


@pytest.mark.mariadb
def test_lists_of_the_few_administrators_read_no_members(
    make: Any, app: Flask, acme: Any, database: Database
) -> None:
    http, headers = app.test_client(), bearer_header(make.bearer(acme))
    make.user(acme, role="admin")
    copy_newest(database, "users", first=1)
    copy_newest(database, "role_assignments", first=1, role=b"member")
    admins = f"/organizations/{acme.slug}/admins"
    figures = {
        path: rows_read(database, lambda path=path: http.get(path, headers=headers), 100)
        for path in (admins, f"{admins}?role=admin", "/users?role=admin")
    }
    assert {path: figure for path, figure in figures.items() if figure > 100} == {}
