"""Queries that are compiled once and run on the driver's own connection.

Building and compiling a statement for each request costs more than MariaDB needs to execute it. A ``CompiledQuery``
is compiled at its first use for the database in use; after that it costs one driver call and one round trip. Outside
of a transaction it is its own transaction; inside one it is part of it.

Outside of a transaction each thread has a connection of its own, because checking one out of the pool and back in
costs a fifth of what a token costs. It is closed when the thread ends.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import nullcontext
from typing import Any

from sqlalchemy import BindParameter, bindparam, insert
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.sql import ClauseElement, Delete, Executable, Insert, Select

from app import metrics
from app.circuit_breaker import CircuitBreaker
from app.config import current
from app.database import ACROSS, FENCE, IDLE_SECONDS, breaker, engines, is_outdated, leave_node, turn_to_write
from app.database_errors import (
    ErrorClass,
    classify_error,
    is_duplicate_key,
    is_missing_parent,
    must_leave_node,
    retry_reason,
)
from app.extensions import in_transaction, transaction_connection
from app.fast_path.literals import literal_of, reader_of
from app.models.base import Base
from app.rules.errors import Unavailable
from app.tracing import tracing

# Attempts that the database rolled back. Lost connections are limited by the deadline alone.
MAX_ATTEMPTS = 5
DEADLINE_SECONDS = 2.5
_jitter = random.SystemRandom()


def insert_into(model: type[Base]) -> Insert:
    """Return an INSERT of one row; nullable columns are NULL unless a value is given."""
    table = Base.metadata.tables[model.__tablename__]
    return insert(table).values(
        {
            column.name: bindparam(column.name, None, required=False)
            if column.nullable
            else bindparam(column.name)
            for column in table.columns
        }
    )


def list_parameters(name: str, column: Any, size: int) -> list[BindParameter[Any]]:
    """Return the parameters of a list of values of the column: ``name_0``, ``name_1``, … (see ``list_values``)."""
    return [bindparam(f"{name}_{index}", type_=column.type) for index in range(size)]


def list_values(name: str, values: Sequence[Any], size: int | None = None) -> dict[str, Any]:
    """Return the values of ``list_parameters``. Up to ``size``, the first is repeated, or None without any."""
    filler = values[0] if values else None
    padded = [*values, *[filler] * ((size or len(values)) - len(values))]
    return {f"{name}_{index}": value for index, value in enumerate(padded)}


def size_of_list(values: Sized) -> int:
    """Return the length rounded up to a power of two, so that a few statements serve lists of any length."""
    return 1 << max(0, len(values) - 1).bit_length()


class CompiledQuery:
    """One Core statement with bound parameters; result columns are converted to Python's types."""

    def __init__(self, clause: Executable, *, across_organizations: bool = False) -> None:
        self._clause = clause
        self._is_fenced = not across_organizations
        self._compiled: dict[str, _Compiled | _Plain] = {}

    def first(self, **values: Any) -> Any:
        """Return the first row, or None; its values by position and by column name."""
        rows = self.rows(**values)
        return rows[0] if rows else None

    def rows(self, **values: Any) -> Sequence[Any]:
        """Return every row; an open transaction sees what it has written."""
        if in_transaction():
            compiled, found, _ = self._in_transaction(values, fetch=True)
            return [compiled.convert(row) for row in found]
        compiled, engine = self._for_engine(engines()[1])
        return [compiled.convert(row) for row in _attempts(engine, compiled, values, fetch=True)[0]]

    def write(self, **values: Any) -> int:
        """Write inside the open transaction; return the number of rows written or changed, which decides races."""
        return self._in_transaction(values, fetch=False)[2]

    def write_later(self, **values: Any) -> None:
        """Write inside the open transaction: before its next statement, or with its COMMIT in one packet.

        For statements that cannot fail because of their values: the error would be raised elsewhere.
        """
        self._in_transaction(values, fetch=False, waits=True)

    def insert(self, **values: Any) -> int:
        """Insert and commit; return the number of rows. A duplicate key at a second attempt is our own first row."""
        compiled, engine = self._for_engine(engines()[1])
        return _attempts(engine, compiled, values, fetch=False)[1]

    def insert_if_new(self, **values: Any) -> bool:
        """Insert and commit; return False when a row with the key exists."""
        compiled, engine = self._for_engine(engines()[1])
        return _attempts(engine, compiled, values, fetch=False, may_exist=True)[1] == 1

    def _in_transaction(
        self, values: Mapping[str, Any], *, fetch: bool, waits: bool = False
    ) -> tuple[_Compiled | _Plain, Sequence[Sequence[Any]], int]:
        connection = transaction_connection()
        compiled, engine = self._for_engine(connection.engine)
        if isinstance(compiled, _Plain):
            return compiled, *compiled.run(connection.join(), values, fetch=fetch)
        parameters = compiled.parameters(values)
        try:
            return compiled, *_run(connection.driver, compiled, parameters, fetch=fetch, waits=waits)
        except engine.dialect.loaded_dbapi.Error as error:
            connection.fail(error)
            raise _as_sqlalchemy_error(engine, compiled, error) from error

    def _for_engine(self, engine: Engine) -> tuple[_Compiled | _Plain, Engine]:
        name = engine.dialect.name
        compiled = self._compiled.get(name)
        if compiled is None:
            compiled = self._compiled[name] = self._compile(engine)
        return compiled, engine

    def _compile(self, engine: Engine) -> _Compiled | _Plain:
        if "compiled-queries" in current().disabled_fast_paths:
            return _Plain(self._clause if self._is_fenced else self._clause.execution_options(**ACROSS))
        compiled = _Compiled(self._clause, engine)
        if self._is_fenced:
            FENCE.require(compiled.sql)
        return compiled


class ListQuery:
    """A statement about the rows with one of several values of a column, compiled for each ``size_of_list``."""

    def __init__(self, statement: Select[*tuple[Any, ...]] | Delete, column: Any) -> None:
        self._statement, self._column = statement, column
        self._queries: dict[int, CompiledQuery] = {}

    def rows(self, listed: Sequence[Any], **values: Any) -> Sequence[Any]:
        """Return every row with one of the listed values, as ``CompiledQuery.rows`` does."""
        return self._query(listed).rows(**self._values(listed), **values)

    def write(self, listed: Sequence[Any], **values: Any) -> int:
        """Write the rows with one of the listed values, as ``CompiledQuery.write`` does."""
        return self._query(listed).write(**self._values(listed), **values)

    def write_later(self, listed: Sequence[Any], **values: Any) -> None:
        """Write the rows with one of the listed values, as ``CompiledQuery.write_later`` does."""
        self._query(listed).write_later(**self._values(listed), **values)

    def _query(self, listed: Sequence[Any]) -> CompiledQuery:
        size = size_of_list(listed)
        if size not in self._queries:
            is_listed = self._column.in_(list_parameters("listed", self._column, size))
            self._queries[size] = CompiledQuery(self._statement.where(is_listed))
        return self._queries[size]

    def _values(self, listed: Sequence[Any]) -> dict[str, Any]:
        return list_values("listed", listed, size_of_list(listed))


class _Compiled:
    """The SQL text and the converters of its parameters and columns."""

    def __init__(self, clause: Executable, engine: Engine) -> None:
        dialect = engine.dialect
        if not isinstance(clause, ClauseElement):
            raise TypeError("CompiledQuery needs a Core statement")
        compiled: Any = clause.compile(dialect=dialect)
        self.sql: str = str(compiled)
        self.is_sqlite = dialect.name == "sqlite"
        kinds = [(name, compiled.binds[name].type) for name in compiled.positiontup]
        self._binders = [
            (name, kind.dialect_impl(dialect).bind_processor(dialect) or _same)
            if self.is_sqlite
            else (name, literal_of(kind))
            for name, kind in kinds
        ]
        # A parameter with a callable is called by SQLAlchemy only: here its value must be given.
        self._defaults = {
            name: bind.value
            for name, bind in compiled.binds.items()
            if not bind.required and bind.callable is None
        }
        columns = getattr(clause, "selected_columns", ())
        # Rows have names, as SQLAlchemy's do; the second of two columns with one name is known by its position only.
        named: Any = namedtuple
        row = named("row", [column.key or "" for column in columns], rename=True)
        self._row: Callable[[Iterable[Any]], Any] = row._make
        self._converters = [
            entry.type.dialect_impl(dialect).result_processor(dialect, None)
            if self.is_sqlite
            else reader_of(entry.type, dialect)
            for entry in columns
        ]

    def parameters(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values in the order of their places: driver values, or literals."""
        if self._defaults:
            values = {**self._defaults, **values}
        return tuple([bind(values[name]) for name, bind in self._binders])

    def convert(self, row: Sequence[Any]) -> Any:
        """Return a driver's row in Python's types."""
        return self._row(
            [
                value if convert is None else convert(value)
                for value, convert in zip(row, self._converters, strict=True)
            ]
        )


class _Plain:
    """The statement as SQLAlchemy runs it, when compiled queries are switched off."""

    def __init__(self, clause: Executable) -> None:
        self._clause = clause

    def run(
        self, connection: Connection, values: Mapping[str, Any], *, fetch: bool
    ) -> tuple[Sequence[Sequence[Any]], int]:
        """Execute the statement; return its rows, and the number of rows it wrote."""
        result: Any = connection.execute(self._clause, values)
        return (result.all(), 0) if fetch else ((), result.rowcount)

    def convert(self, row: Any) -> Any:
        """Return the row as it is: SQLAlchemy has converted it."""
        return row


def _same(value: Any) -> Any:
    return value


def _attempts(
    engine: Engine,
    compiled: _Compiled | _Plain,
    values: Mapping[str, Any],
    *,
    fetch: bool,
    may_exist: bool = False,
) -> tuple[Sequence[Sequence[Any]], int]:
    guard = breaker()
    # An open transaction has entered it.
    with nullcontext() if in_transaction() else guard:
        return _guarded_attempts(guard, engine, compiled, values, fetch=fetch, may_exist=may_exist)


def _guarded_attempts(
    guard: CircuitBreaker,
    engine: Engine,
    compiled: _Compiled | _Plain,
    values: Mapping[str, Any],
    *,
    fetch: bool,
    may_exist: bool,
) -> tuple[Sequence[Sequence[Any]], int]:
    parameters = compiled.parameters(values) if isinstance(compiled, _Compiled) else ()
    deadline = time.monotonic() + DEADLINE_SECONDS
    rolled_back, has_waited = 0, False
    for attempt in itertools.count(1):
        try:
            if isinstance(compiled, _Plain):
                with engine.connect() as connection:
                    result = compiled.run(connection, values, fetch=fetch)
            else:
                result = _execute(engine, compiled, parameters, fetch=fetch)
        except (engine.dialect.loaded_dbapi.Error, DBAPIError, PoolTimeout) as error:
            if may_exist and is_duplicate_key(error):
                return (), 0
            if attempt > 1 and not fetch and is_duplicate_key(error):
                return (), 1
            if not fetch and not has_waited and is_missing_parent(error):
                has_waited = True
                _wait_for_other_nodes(engine)
                continue
            error_class = classify_error(error)
            if error_class is ErrorClass.FINAL:
                raise _as_sqlalchemy_error(engine, compiled, error) from error
            if error_class is ErrorClass.RECONNECT:
                _discard_thread_connection(engine)
            rolled_back += error_class is ErrorClass.RETRY
            pause = _jitter.uniform(0, 0.01 * 2 ** min(attempt, 6))
            is_over = rolled_back == MAX_ATTEMPTS or time.monotonic() + pause > deadline
            if is_over or error_class is ErrorClass.REFUSED or guard.is_open:
                metrics.recorder.count(metrics.FAILURES)
                raise Unavailable from error
            metrics.recorder.count(metrics.RETRIES, retry_reason(error))
            time.sleep(pause)
        else:
            guard.note_answer()
            return result
    raise Unavailable


def _wait_for_other_nodes(engine: Engine) -> None:
    """Wait until this node of a cluster has applied what the others have committed. Raises Unavailable.

    A single INSERT does not wait, and finds a row missing that it refers to; a read waits (``database_engine``).
    """
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
    except (DBAPIError, PoolTimeout) as error:
        raise Unavailable from error


def _as_sqlalchemy_error(engine: Engine, compiled: _Compiled | _Plain, error: Exception) -> Exception:
    """Return a driver's error in the class that SQLAlchemy would raise, without the statement's values."""
    dbapi_error = engine.dialect.loaded_dbapi.Error
    if not isinstance(error, dbapi_error) or isinstance(compiled, _Plain):
        return error
    return DBAPIError.instance(
        compiled.sql, None, error, dbapi_error, hide_parameters=True, dialect=engine.dialect
    )


def _execute(
    engine: Engine, compiled: _Compiled, parameters: tuple[Any, ...], *, fetch: bool
) -> tuple[Sequence[Sequence[Any]], int]:
    # SQLAlchemy's connection would begin and roll back around the statement, a round trip for nothing.
    try:
        if fetch:
            return _run(_thread_connection(engine), compiled, parameters, fetch=True)
        with turn_to_write():
            return _run(_thread_connection(engine), compiled, parameters, fetch=False)
    except engine.dialect.loaded_dbapi.Error as error:
        if must_leave_node(error):
            leave_node()
        if engine.dialect.is_disconnect(error, None, None):
            _discard_thread_connection(engine)
            # A restart of the database has ended the connections of the pool as well.
            engine.dispose()
        raise


def _run(
    driver: Any, compiled: _Compiled, parameters: tuple[Any, ...], *, fetch: bool, waits: bool = False
) -> tuple[Sequence[Sequence[Any]], int]:
    if tracing.query is None:
        return _run_untraced(driver, compiled, parameters, fetch=fetch, waits=waits)
    with tracing.query(compiled.sql):
        return _run_untraced(driver, compiled, parameters, fetch=fetch, waits=waits)


def _run_untraced(
    driver: Any, compiled: _Compiled, parameters: tuple[Any, ...], *, fetch: bool, waits: bool
) -> tuple[Sequence[Sequence[Any]], int]:
    if compiled.is_sqlite:
        cursor = driver.execute(compiled.sql, parameters)
        return (cursor.fetchall(), 0) if fetch else ((), cursor.rowcount)
    statement = (compiled.sql % parameters).encode("ascii")
    if waits:
        driver.execute_later(statement)
        return (), 1
    driver.query(statement)
    if not fetch:
        return (), int(driver.affected_rows())
    return driver.store_result().fetch_row(0, 0), 0


class _ThreadConnections(threading.local):
    """Each engine's connection of the current thread, when it was opened and last used (monotonic seconds)."""

    def __init__(self) -> None:
        self.by_engine: dict[Engine, tuple[PoolProxiedConnection, float, float]] = {}
        self.opened = 0


_thread_connections = _ThreadConnections()


def connection_number() -> tuple[int, int]:
    """Return a value that changes when the current thread opens another connection."""
    return threading.get_ident(), _thread_connections.opened


def _thread_connection(engine: Engine) -> Any:
    """Return the driver's connection of the current thread. Raises the driver's error when it cannot connect."""
    tick = time.monotonic()
    entry = _thread_connections.by_engine.get(engine)
    if entry is not None and engine.dialect.name != "sqlite" and is_outdated(entry[1]):
        _discard_thread_connection(engine)
        entry = None
    if entry is None:
        connection, opened_at = engine.raw_connection(), tick
        connection.detach()
        _thread_connections.opened += 1
    else:
        connection, opened_at, used_at = entry
        # A firewall may have dropped an idle connection without telling either side.
        if tick - used_at > IDLE_SECONDS and engine.dialect.name != "sqlite":
            _ping(engine, connection)
    _thread_connections.by_engine[engine] = (connection, opened_at, tick)
    return connection.dbapi_connection


def _discard_thread_connection(engine: Engine) -> None:
    """Close the current thread's connection; the next query opens another."""
    entry = _thread_connections.by_engine.pop(engine, None)
    if entry is not None:
        entry[0].close()


def _ping(engine: Engine, connection: PoolProxiedConnection) -> None:
    driver: Any = connection.dbapi_connection
    try:
        driver.ping()
    except engine.dialect.loaded_dbapi.Error:
        _discard_thread_connection(engine)
        raise
