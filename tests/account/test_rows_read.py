"""Requests read no rows that have ended: 10,000 of each kind of one user cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from flask import Flask

from tests.account.conftest import Visitor
from tests.oauth.conftest import REDIRECT_URI, SCOPES, Flow
from tests.support.databases import Database

COPIES = 10_000
# Sessions are not here: a user has at most 100, ended ones included.
ENDED_BY = {
    "grants": "revoked_at",
    "access_tokens": "revoked_at",
    "authorization_codes": "used_at",
}


def copy_as_ended(database: Database, table: str) -> None:
    """Insert COPIES ended rows like the table's newest one, with smaller ids."""
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY id DESC LIMIT 1")
        [row], names = cursor.fetchall(), [column[0] for column in cursor.description]
        newest = dict(zip(names, row, strict=True))
        newest[ENDED_BY[table]] = "2020-01-01"
        copies = []
        for number in range(COPIES):
            newest["id"] = b"\x01" + number.to_bytes(15)
            if "digest" in newest:
                newest["digest"] = number.to_bytes(32)
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
        copy_as_ended(database, table)
    many = {name: rows_read(database, act, few[name] + 50) for name, act in acts.items()}
    assert {name: many[name] - few[name] for name in acts if many[name] - few[name] > 50} == {}
