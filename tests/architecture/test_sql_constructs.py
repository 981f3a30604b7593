"""Which constructs of SQL the service uses that databases like TiDB and Vitess lack: docs/operations/topologies.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flask import Flask
from flask_migrate import upgrade

from app import config, create_app
from app.mysql_connection import MySQLConnection
from app.operations.audit.chain import seal_all_events
from app.operations.maintenance.janitor import purge_expired
from app.operations.store import checkpoints, idempotency, outages
from app.rules.actor import Actor
from tests.factories import Factory
from tests.support.applications import BASE_URL, environment, forget
from tests.support.databases import Database, MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import ROOT
from tests.support.stored_state import StateKeeper
from tests.support.valid_requests import Requests

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]
DOCUMENT = (ROOT / "docs" / "operations" / "topologies.md").read_text()
PARTS = ("management", "portal", "account", "protocol")
CONSTRUCTS: Mapping[str, str] = {
    "FOREIGN KEY": r"\bFOREIGN KEY\b",
    "CHECK": r"\bCHECK \(",
    "generated columns": r"\bGENERATED ALWAYS\b",
    "FULLTEXT and SPATIAL indexes": r"\b(?:FULLTEXT|SPATIAL)\b",
    "triggers, procedures, events": r"\bCREATE (?:TRIGGER|PROCEDURE|FUNCTION|EVENT)\b|\bCALL ",
    "SAVEPOINT": r"^SAVEPOINT\b",
    "FOR UPDATE": r"\bFOR UPDATE\b",
    "SKIP LOCKED, NOWAIT": r"\b(?:SKIP LOCKED|NOWAIT)\b",
    "LOCK IN SHARE MODE": r"\bLOCK IN SHARE MODE\b|\bFOR SHARE\b",
    "LOCK TABLES, GET_LOCK": r"\bLOCK TABLES\b|\bGET_LOCK\(",
    "INSERT … ON DUPLICATE KEY UPDATE": r"\bON DUPLICATE KEY UPDATE\b",
    "INSERT … SELECT": r"^INSERT\b.*\)\s*SELECT\b",
    "INSERT … RETURNING": r"\bRETURNING\b",
    "ON UPDATE CURRENT_TIMESTAMP": r"\bON UPDATE CURRENT_TIMESTAMP\b",
    "DELETE of several tables": r"^DELETE [a-z_`]+(?:, ?[a-z_`]+)* FROM\b|^DELETE FROM [a-z_`]+ USING\b",
    "UPDATE of several tables": r"^UPDATE [a-z_`]+(?:,| (?:INNER )?JOIN)\b",
    "UPDATE or DELETE … LIMIT": r"^(?:UPDATE|DELETE)\b.* LIMIT \S+$",
    "UNION": r"\bUNION\b",
    "WITH": r"^WITH\b",
    "window functions": r"\bOVER \(",
    "JSON_TABLE": r"\bJSON_TABLE\(",
    "JSON functions": r"\bJSON_[A-Z]+\(",
    "AUTO_INCREMENT": r"\bAUTO_INCREMENT\b",
    "several statements in one packet": r";\s*(?:COMMIT|INSERT|UPDATE|DELETE)\b",
}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every text that is sent to the database while the test runs, without values and in one line."""
    found: set[str] = set()
    query, send_waiting = MySQLConnection.query, MySQLConnection.send_waiting

    def record(text: bytes | str) -> None:
        words = text if isinstance(text, str) else bytes(text).decode(errors="replace")
        found.add(" ".join(re.sub(r"'(?:[^'\\]|\\.|'')*'", "?", words).split()))

    def record_query(self: MySQLConnection, text: bytes) -> None:
        record(text)
        query(self, text)

    def record_packet(self: MySQLConnection, *last: bytes) -> None:
        record(b";".join([*self.waiting, *last]))
        send_waiting(self, *last)

    monkeypatch.setattr(MySQLConnection, "query", record_query)
    monkeypatch.setattr(MySQLConnection, "send_waiting", record_packet)
    return found


def used(statements: set[str]) -> Iterator[str]:
    """Yield the constructs that occur in a statement."""
    for name, pattern in CONSTRUCTS.items():
        if any(re.search(pattern, statement, re.IGNORECASE) for statement in statements):
            yield name


def documented() -> dict[str, str]:
    """Return the first column of the document's table, and whether the second says that the construct is used."""
    section = DOCUMENT.split("## TiDB, Vitess and Aurora")[1]
    rows = re.findall(r"^\| ([^|]+?) \| (yes|no) \|", section, re.MULTILINE)
    return dict(rows)


@pytest.mark.timeout(900)
def test_constructs_of_every_statement_are_those_of_the_document(
    mariadb: MariaDB,
    worker: str,
    instance: Path,
    recorded: set[str],
    app: Flask,
    database: Database,
    make: Factory,
    requests: Requests,
    keeper: StateKeeper,
) -> None:
    """Every migration, a valid request to every route, and what runs in the background."""
    unmigrated = MariaDBDatabase(mariadb, f"constructs_{worker}")
    with create_app(config.load(environment(unmigrated, instance, BASE_URL))).app_context():
        upgrade()
    for part in PARTS:
        for request in getattr(requests, part)():
            # Protocols end sessions with GET, too.
            is_reading = request.method == "GET" and part != "protocol"
            if not is_reading:
                keeper.read()
            request.send(app).close()
            if not is_reading:
                keeper.put_back()
                forget(app)
    database.clean()
    forget(app)
    with app.app_context():
        outages.beat()
        checkpoints.advance()
        seal_all_events(make.system(make.root()), make.root().id)
        idempotency.claim(
            make.root().id, "tests", "tests", "expired", expires_at=datetime(2020, 1, 1, tzinfo=UTC)
        )
        assert purge_expired(Actor.system("", "tests")) is not None
    # Each kind of statement was seen, or this test sees nothing.
    for beginning in ("CREATE TABLE", "SELECT", "INSERT", "UPDATE", "DELETE", "SET SESSION"):
        assert any(statement.startswith(beginning) for statement in recorded), beginning
    found = set(used(recorded))
    assert documented() == {name: "yes" if name in found else "no" for name in CONSTRUCTS}
