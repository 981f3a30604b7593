"""Bulk data for measuring that costs do not grow: many organizations, a million tokens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import MySQLdb.cursors

from app.rules.identifiers import (
    ACCESS_TOKEN,
    CLIENT_SECRET,
    digest,
    format_client_id,
    new_id,
    new_routing_key,
    new_token,
    parse_client_id,
)
from tests.factories import MadeClient

BATCH = 5000
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client's id and its secret in clear."""

    client_id: str
    secret: str


def copies_of(connection: Any, client: MadeClient, count: int) -> list[Credentials]:
    """Create this number of organizations, each with a copy of the client with its own secret."""
    key = client.organization.id.encode()
    [organization] = rows_of(connection, "organizations", "id", key)
    [template] = rows_of(connection, "clients", "organization_id", key)
    [credential] = rows_of(connection, "client_credentials", "organization_id", key)
    scopes = rows_of(connection, "scopes", "organization_id", key)
    made: list[Credentials] = []
    tables: dict[str, list[Row]] = {
        name: [] for name in ("organizations", "scopes", "clients", "client_credentials")
    }
    for number in range(count):
        routing_key, client_row, secret_row = new_routing_key(), new_id(), new_id()
        secret = new_token(CLIENT_SECRET, routing_key)
        own = {"organization_id": routing_key.encode()}
        tables["organizations"].append(
            organization | {"id": routing_key.encode(), "slug": f"copy-{number}".encode()}
        )
        tables["scopes"] += [scope | own | {"id": new_id().bytes} for scope in scopes]
        tables["clients"].append(template | own | {"id": client_row.bytes})
        changed = {"id": secret_row.bytes, "client_id": client_row.bytes, "digest": digest(secret)}
        tables["client_credentials"].append(credential | own | changed)
        made.append(Credentials(format_client_id(routing_key, client_row), secret))
    for name, rows in tables.items():
        insert_rows(connection, name, rows)
    return made


def fill_tokens(connection: Any, client: MadeClient, until: int, *, kept: int = 5000) -> list[str]:
    """Fill the token table up to ``until`` rows with active access tokens of the client; return some of them."""
    parsed = parse_client_id(client.client_id)
    assert parsed is not None
    organization_id, client_row = parsed
    cursor = connection.cursor()
    cursor.execute("SELECT COUNT(*) FROM access_tokens")
    missing = until - int(cursor.fetchone()[0])
    cursor.execute(
        "SELECT id FROM client_credentials WHERE organization_id = %s AND client_id = %s",
        (organization_id.encode(), client_row.bytes),
    )
    credential = cursor.fetchone()[0]
    cursor.execute("SELECT scope, audience FROM access_tokens LIMIT 1")
    scope, audience = cursor.fetchone()
    now = datetime.now(UTC).replace(tzinfo=None)
    ends = now + timedelta(hours=12)
    sample: list[str] = []
    every = max(1, missing // kept)
    for start in range(0, max(0, missing), BATCH):
        rows = []
        for number in range(start, min(start + BATCH, missing)):
            token = new_token(ACCESS_TOKEN, organization_id)
            if number % every == 0:
                sample.append(token)
            rows.append(
                {
                    "organization_id": organization_id.encode(),
                    "id": new_id().bytes,
                    "digest": digest(token),
                    "client_id": client_row.bytes,
                    "credential_id": credential,
                    "scope": scope,
                    "audience": audience,
                    "issued_at": now,
                    "expires_at": ends,
                }
            )
        insert_rows(connection, "access_tokens", rows)
    cursor.execute("ANALYZE TABLE access_tokens")
    cursor.fetchall()
    return sample


def rows_of(connection: Any, table: str, column: str, value: bytes) -> list[Row]:
    """Return the rows whose column has the value, as the driver returns them."""
    cursor = connection.cursor(MySQLdb.cursors.DictCursor)
    cursor.execute(f"SELECT * FROM {table} WHERE {column} = %s", (value,))
    return list(cursor.fetchall())


def insert_rows(connection: Any, table: str, rows: list[Row]) -> None:
    """Insert the rows in one transaction."""
    if not rows:
        return
    columns = list(rows[0])
    # The driver sends many rows in one statement only if VALUES contains nothing but placeholders.
    marks = ", ".join(["%s"] * len(columns))
    quoted = ", ".join(f"`{column}`" for column in columns)
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    cursor.executemany(
        f"INSERT INTO {table} ({quoted}) VALUES ({marks})", [tuple(row.values()) for row in rows]
    )
    cursor.execute("COMMIT")
