"""Database connections that are cut at a chosen statement, below SQLAlchemy and below compiled queries."""

from __future__ import annotations

import functools
import os
import re
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol

import MySQLdb
import pytest
from flask import Flask
from sqlalchemy import Engine, event

from app import database
from app.database import engines
from app.fast_path import compiled_query
from app.mysql_connection import MySQLConnection

# One statement that changes nothing. A packet has several.
_READ = re.compile(
    r"\s*(SELECT|SET|SHOW|PRAGMA|BEGIN|START|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)[^;]*", re.IGNORECASE
)
_WRITTEN = re.compile(r"\b(?:INTO|UPDATE|DELETE FROM|REPLACE) +[`\"]?(\w+)", re.IGNORECASE)


class Loss(Enum):
    """How the database is lost."""

    BEFORE = "before the statement is sent, once"
    AFTER = "after the statement was executed and before its reply, once"
    FOR_GOOD = "before the statement, and from then on no connection can be opened"


class Cuts:
    """The statements of this thread, and the one that loses the connection.

    ``sent`` holds them in order, COMMIT and ROLLBACK included. ``is_away`` says that the database is lost for good.
    ``writes`` counts those of all threads that may have changed something, and ``written`` names their tables, among
    them None for one that is not known.
    """

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.writes = 0
        self.written: set[str | None] = set()
        self.is_away = False
        self._number = -1
        self._loss: Loss | None = None
        self._thread = threading.get_ident()

    def start(self, number: int = -1, loss: Loss | None = None) -> None:
        """Count from zero again, and lose the connection at the statement with this number if ``loss`` is given."""
        self.sent, self.is_away = [], False
        self._number, self._loss = number, loss

    def stop(self) -> None:
        """Lose no more connections; ``sent`` stays."""
        self.is_away, self._loss = False, None

    def run(self, connection: Cuttable, statement: str, execute: Callable[[], Any]) -> Any:
        """Execute the statement of the connection unless its turn to be lost has come."""
        if not _READ.fullmatch(statement):
            self.writes += 1
            self.written |= set(_WRITTEN.findall(statement)) or {None}
        if threading.get_ident() != self._thread:
            return execute()
        is_due = len(self.sent) == self._number and self._loss is not None
        self.sent.append(statement)
        if self.is_away or (is_due and self._loss is not Loss.AFTER):
            self.is_away = self._loss is Loss.FOR_GOOD
            connection.cut()
            # The driver notices by itself, except SQLite's, which has no connection.
            raise AssertionError(f"executed on a lost connection: {execute()}")
        result = execute()
        if is_due:
            connection.cut()
            connection.lose_reply()
        return result


class Cuttable(Protocol):
    """A driver's connection that can be cut."""

    def cut(self) -> None:
        """Cut it: what follows on it fails."""
        ...

    def lose_reply(self) -> None:
        """Raise what the driver raises when the reply does not arrive."""
        ...


@contextmanager
def cuttable(app: Flask, cuts: Cuts | None = None) -> Iterator[Cuts]:
    """Give the application cuttable connections, and its own ones again at the end."""
    cuts = cuts or Cuts()

    def connect(dialect: Any, _record: Any, _arguments: Any, parameters: Any) -> None:
        if dialect.name == "sqlite":
            if cuts.is_away:
                raise sqlite3.OperationalError("unable to open database file")
            parameters["factory"] = functools.partial(SQLiteConnection, cuts)

    def connect_to_server(*arguments: Any, **parameters: Any) -> CuttableMySQLConnection:
        if cuts.is_away:
            raise MySQLdb.OperationalError(2003, "Can't connect to server")
        return CuttableMySQLConnection(cuts, *arguments, **parameters)

    with app.app_context():
        both = engines()
    for engine in both:
        event.listen(engine, "do_connect", connect)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "MySQLConnection", connect_to_server)
            _renew_connections(both)
            yield cuts
    finally:
        for engine in both:
            event.remove(engine, "do_connect", connect)
        _renew_connections(both)


class CuttableMySQLConnection(MySQLConnection, Cuttable):
    """A connection to a server, whose socket is shut down."""

    def __init__(self, cuts: Cuts, *arguments: Any, **parameters: Any) -> None:
        self.cuts = cuts
        super().__init__(*arguments, **parameters)

    def query(self, query: bytes) -> Any:
        """Execute a statement; cursors and compiled queries end here."""
        if self.waiting:
            self.send_waiting()
        run = super().query
        return self.cuts.run(self, query.decode(errors="replace"), lambda: run(query))

    def commit(self) -> Any:
        """Commit."""
        return super().commit() if self.waiting else self.cuts.run(self, "COMMIT", super().commit)

    def send_waiting(self, *last: bytes) -> Any:
        """Execute a packet of statements, which count as one."""
        packet = b";".join([*self.waiting, *last]).decode()
        run = super().send_waiting
        return self.cuts.run(self, packet, lambda: run(*last))

    def rollback(self) -> Any:
        """Roll back."""
        return None if self.get_autocommit() else self.cuts.run(self, "ROLLBACK", super().rollback)

    def cut(self) -> None:
        """Shut down the socket: the server rolls back, and the driver notices at the next statement."""
        with socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def lose_reply(self) -> None:
        """Raise the driver's error."""
        raise MySQLdb.OperationalError(2013, "Lost connection to server during query")


class SQLiteConnection(sqlite3.Connection, Cuttable):
    """A file, which cannot be read or written."""

    def __init__(self, cuts: Cuts, *arguments: Any, **parameters: Any) -> None:
        self.cuts = cuts
        super().__init__(*arguments, **parameters)

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor whose statements are counted."""
        return super().cursor(factory or SQLiteCursor)

    def execute(self, sql: str, *values: Any) -> Any:
        """Execute a compiled query."""
        return self.cursor().execute(sql, *values)

    def commit(self) -> None:
        """Commit."""
        self.cuts.run(self, "COMMIT", super().commit)

    def cut(self) -> None:
        """Raise the error of a disk that is gone."""
        raise sqlite3.OperationalError("disk I/O error")


class SQLiteCursor(sqlite3.Cursor):
    """A cursor of a ``SQLiteConnection``."""

    connection: SQLiteConnection

    def execute(self, sql: str, *values: Any) -> Any:
        """Execute a statement."""
        run = super().execute
        return self.connection.cuts.run(self.connection, sql, lambda: run(sql, *values))

    def executemany(self, sql: str, *values: Any) -> Any:
        """Execute a statement for many rows."""
        run = super().executemany
        return self.connection.cuts.run(self.connection, sql, lambda: run(sql, *values))


def _renew_connections(both: tuple[Engine, Engine]) -> None:
    """Close the connections of the pools, and this thread's of compiled queries, which the event replaces."""
    for engine in both:
        engine.dispose()
        compiled_query._discard_thread_connection(engine)
