"""Connections of transactions: the driver's own until an ORM session joins, and open from one to the next.

SQLAlchemy's pool checks each connection out and in again, and its connections make an object for each transaction,
which together cost a sixth of what a revocation does. Here a transaction takes an idle connection of its engine and
works with the driver. SQLAlchemy learns of the transaction when a session joins it. An engine has as many idle
connections as its pool would keep; they still count as the pool's, so that its limit holds. SQLite has none: there the
first statement must tell whether the transaction writes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.config import application, current
from app.database import IDLE_SECONDS, engines, is_outdated, leave_node
from app.database_errors import must_leave_node

_IDLE = "gatehouse idle connections"
_creating = threading.Lock()


class TransactionConnection:
    """The connection of one transaction at a time. ``driver`` is the driver's, ``engine`` the one that opened it."""

    __slots__ = ("_connection", "_is_finished", "_opened_at", "_used_at", "driver", "engine")

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        self.engine = engine
        self._connection = engine.connect()
        if engine.dialect.name == "sqlite":
            try:
                self._connection.execution_options(read_only=read_only).begin()
            except BaseException:
                self._connection.close()
                raise
        self.driver: Any = self._connection.connection.dbapi_connection
        self._opened_at: float = self._connection.info.get("opened", 0.0)
        self._used_at = 0.0
        self._is_finished = False

    def join(self) -> Connection:
        """Return SQLAlchemy's connection, in the transaction."""
        if not self._connection.in_transaction():
            self._connection.begin()
        return self._connection

    def commit(self) -> None:
        """Commit. Raises DBAPIError, after which the state of the connection is unknown, so it is closed."""
        if self._connection.in_transaction():
            self._connection.commit()
        else:
            self._by_driver(self.driver.commit)
        self._is_finished = True

    def fail(self, error: Any) -> None:
        """Close the connection if the driver's error says that it is lost, and all others of the engine."""
        if must_leave_node(error):
            leave_node()
        if self.engine.dialect.is_disconnect(error, None, None):
            self._connection.invalidate(error)
            self.engine.dispose()

    def invalidate(self) -> None:
        """Close the connection without a ROLLBACK; the server then rolls back."""
        if not self._connection.closed:
            self._connection.invalidate()

    def close(self) -> None:
        """Roll back what was not committed, and keep the connection for the next transaction. Raises DBAPIError."""
        connection = self._connection
        if connection.invalidated or connection.closed or self.engine.dialect.name == "sqlite":
            connection.close()
            return
        try:
            if connection.in_transaction():
                connection.rollback()
            elif not self._is_finished:
                self._by_driver(self.driver.rollback)
        except BaseException:
            connection.close()
            raise
        idle = _idle_connections(self.engine)
        if len(idle) >= _max_idle():
            connection.close()
            return
        self._used_at = time.monotonic()
        idle.append(self)

    def reuse(self) -> bool:
        """Return whether the idle connection can be used; it is closed if not."""
        self._is_finished = False
        tick = time.monotonic()
        if not is_outdated(self._opened_at):
            try:
                # A firewall may have dropped an idle connection without telling either side.
                if tick - self._used_at > IDLE_SECONDS:
                    self.driver.ping()
            except self.engine.dialect.loaded_dbapi.Error:
                pass
            else:
                return True
        self.discard()
        return False

    def discard(self) -> None:
        """Close the connection."""
        self._connection.invalidate()
        self._connection.close()

    def _by_driver(self, act: Callable[[], None]) -> None:
        """Commit or roll back; raise the driver's error as SQLAlchemy would, and close a connection that failed."""
        dialect = self.engine.dialect
        try:
            act()
        except dialect.loaded_dbapi.Error as error:
            if must_leave_node(error):
                leave_node()
            self._connection.invalidate(error)
            raise DBAPIError.instance(
                None,
                None,
                error,
                dialect.loaded_dbapi.Error,
                hide_parameters=True,
                connection_invalidated=True,
                dialect=dialect,
            ) from error


def open_connection(*, read_only: bool) -> TransactionConnection:
    """Return a connection for a transaction. Raises DBAPIError, or sqlalchemy.exc.TimeoutError if none is free.

    One that only reads runs in autocommit mode: at READ COMMITTED a transaction would add nothing but a round trip.
    SQLite gives a transaction that reads one state of all tables.
    """
    for_transactions, for_statements = engines()
    if for_transactions.dialect.name == "sqlite":
        return TransactionConnection(for_transactions, read_only=read_only)
    engine = for_statements if read_only else for_transactions
    idle = _idle_connections(engine)
    while idle:
        try:
            connection = idle.pop()
        except IndexError:
            break  # Another thread took it.
        if connection.reuse():
            return connection
    return TransactionConnection(engine)


def _max_idle() -> int:
    config = current()
    return 0 if "compiled-queries" in config.disabled_fast_paths else config.database_pool


def _idle_connections(engine: Engine) -> deque[TransactionConnection]:
    by_engine: dict[Engine, deque[TransactionConnection]] = application().extensions.setdefault(_IDLE, {})
    idle = by_engine.get(engine)
    if idle is not None:
        return idle
    with _creating:
        if engine not in by_engine:
            idle = deque()
            event.listen(engine, "engine_disposed", lambda _: _discard_all(idle))
            by_engine[engine] = idle
    return by_engine[engine]


def _discard_all(idle: deque[TransactionConnection]) -> None:
    while idle:
        try:
            idle.pop().discard()
        except IndexError:
            return  # Another thread took it.
