"""The baseline, faster than any Python service over MariaDB: bare WSGI with one statement per request.

``/insert`` does one durable single-row INSERT, ``/select`` one look-up by primary key, ``/update`` one durable UPDATE.
``/rotate`` and ``/redeem`` look up a row and then update it and insert one or two in a transaction, which is the least
that a rotated refresh token and a redeemed code need. Each thread has one connection.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import MySQLdb

ROWS = 20_000
TABLE = """CREATE TABLE floor (
    id BINARY(16) NOT NULL PRIMARY KEY, digest BINARY(32) NOT NULL, scope VARCHAR(200) NOT NULL,
    expires_at DATETIME(6) NOT NULL, UNIQUE KEY (digest), KEY (expires_at)) ENGINE=InnoDB"""
_INSERT = (
    "INSERT INTO floor (id, digest, scope, expires_at) VALUES (%s, %s, 'clients:read', UTC_TIMESTAMP(6))"
)
_UPDATE = "UPDATE floor SET expires_at = UTC_TIMESTAMP(6) WHERE id = %s"
_SELECT = "SELECT digest, scope, expires_at FROM floor WHERE id = %s"
_HEADERS = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
_local = threading.local()


def key(number: int) -> bytes:
    """Return the primary key of a row for ``/select``."""
    return number.to_bytes(16, "big")


def fill(connection: Any) -> None:
    """Create the table with the rows for ``/select``."""
    cursor = connection.cursor()
    cursor.execute(TABLE)
    cursor.executemany(
        "INSERT INTO floor (id, digest, scope, expires_at) VALUES (%s, %s, %s, %s)",
        [(key(n), secrets.token_bytes(32), "clients:read", "2040-01-01") for n in range(ROWS)],
    )


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request with one statement."""
    connection = getattr(_local, "connection", None)
    if connection is None:
        connection = _local.connection = MySQLdb.connect(
            unix_socket=os.environ["FLOOR_SOCKET"],
            user=os.environ["FLOOR_USER"],
            password=os.environ["FLOOR_PASSWORD"],
            database=os.environ["FLOOR_DATABASE"],
            autocommit=True,
        )
    cursor = connection.cursor()
    path, row = environ["PATH_INFO"], key(secrets.randbelow(ROWS))
    if path == "/select":
        cursor.execute(_SELECT, (row,))
        body = b'{"active": true, "scope": "' + str(cursor.fetchone()[1]).encode() + b'"}'
    else:
        environ["wsgi.input"].read()
        if path == "/insert":
            _insert(cursor)
        elif path == "/update":
            cursor.execute(_UPDATE, (row,))
        else:
            cursor.execute(_SELECT, (row,))
            cursor.fetchone()
            cursor.execute("BEGIN")
            cursor.execute(_UPDATE, (row,))
            for _ in range(1 if path == "/rotate" else 2):
                _insert(cursor)
            cursor.execute("COMMIT")
        body = b'{"access_token": "' + secrets.token_urlsafe(32).encode() + b'", "expires_in": 3600}'
    cursor.close()
    start_response("200 OK", [*_HEADERS, ("Content-Length", str(len(body)))])
    return [body]


def _insert(cursor: Any) -> None:
    identifier = (time.time_ns() // 1_000_000).to_bytes(6, "big") + secrets.token_bytes(10)
    cursor.execute(_INSERT, (identifier, secrets.token_bytes(32)))
