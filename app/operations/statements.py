"""Statements compiled once: what the token endpoints run on.

Building and compiling a statement for each request costs more than MariaDB needs to answer it. A ``Statement`` is
compiled at its first use for the database at hand; after that a request is one driver call and one round trip. Alone
it is its own transaction; inside a unit of work it is part of the unit.
"""

from __future__ import annotations

import random
import time
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, insert
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql import ClauseElement, Executable, Insert

from app.database import FENCE, engines
from app.models.base import Base
from app.operations.mysql_literals import literal_of, reader_of
from app.operations.store.transactions import (
    ErrorClass,
    classify_error,
    current_unit_of_work,
    is_duplicate_key,
    is_in_transaction,
)
from app.operations.thread_connections import discard, driver_connection
from app.rules.errors import Unavailable

MOST_ATTEMPTS = 5
DEADLINE_SECONDS = 2.5
_jitter = random.SystemRandom()


def insert_into(model: type[Base]) -> Insert:
    """One row of the model's table; columns that may be empty are so unless they are given."""
    table = Base.metadata.tables[model.__tablename__]
    return insert(table).values(
        {
            column.name: bindparam(column.name, None, required=False)
            if column.nullable
            else bindparam(column.name)
            for column in table.columns
        }
    )


class Statement:
    """One Core statement with bound parameters; result columns come back in Python's types."""

    def __init__(self, clause: Executable, *, across_organizations: bool = False) -> None:
        self._clause = clause
        self._is_fenced = not across_organizations
        self._compiled: dict[str, _Compiled] = {}

    def first(self, **values: Any) -> Any:
        """The first row, its values in the order of the SELECT and by their columns' names, or None."""
        rows = self.rows(**values)
        return rows[0] if rows else None

    def rows(self, **values: Any) -> Sequence[Any]:
        """Every row; inside a unit of work they are read by it, so that it sees what it has written."""
        if is_in_transaction():
            compiled, found, _ = self._in_unit(values, fetch=True)
            return [compiled.convert(row) for row in found]
        compiled, engine = self._for_engine(engines()[1])
        return [compiled.convert(row) for row in _attempts(engine, compiled, values, fetch=True)[0]]

    def write(self, **values: Any) -> int:
        """Part of the unit of work under way; returns how many rows it wrote or changed: what decides who won."""
        return self._in_unit(values, fetch=False)[2]

    def insert(self, **values: Any) -> int:
        """The number of rows written, committed. A duplicate met on a second attempt is the first one's own row."""
        compiled, engine = self._for_engine(engines()[1])
        return _attempts(engine, compiled, values, fetch=False)[1]

    def insert_if_new(self, **values: Any) -> bool:
        """Whether the row was written, committed; False when there is one with its key."""
        compiled, engine = self._for_engine(engines()[1])
        return _attempts(engine, compiled, values, fetch=False, may_exist=True)[1] == 1

    def _in_unit(
        self, values: Mapping[str, Any], *, fetch: bool
    ) -> tuple[_Compiled, Sequence[Sequence[Any]], int]:
        connection = current_unit_of_work().use_connection()
        compiled, engine = self._for_engine(connection.engine)
        parameters = compiled.parameters(values)
        try:
            return compiled, *_run(connection.connection.dbapi_connection, compiled, parameters, fetch=fetch)
        except engine.dialect.loaded_dbapi.Error as error:
            if engine.dialect.is_disconnect(error, None, None):
                connection.invalidate(error)
            raise _as_sqlalchemy_has_it(engine, compiled, error) from error

    def _for_engine(self, engine: Engine) -> tuple[_Compiled, Engine]:
        name = engine.dialect.name
        compiled = self._compiled.get(name)
        if compiled is None:
            compiled = _Compiled(self._clause, engine)
            if self._is_fenced:
                FENCE.require(compiled.sql)
            self._compiled[name] = compiled
        return compiled, engine


class _Compiled:
    """The SQL text, with the converters that its types ask for."""

    def __init__(self, clause: Executable, engine: Engine) -> None:
        dialect = engine.dialect
        if not isinstance(clause, ClauseElement):
            raise TypeError("a Core statement is wanted")
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
        self._defaults = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}
        columns = getattr(clause, "selected_columns", ())
        # Rows have names, as those of SQLAlchemy do; of two columns of one name the second is known by its place.
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
        """The values in the order of their places: as the driver wants them, or as literals."""
        if self._defaults:
            values = {**self._defaults, **values}
        return tuple([bind(values[name]) for name, bind in self._binders])

    def convert(self, row: Sequence[Any]) -> Any:
        """A driver's row in Python's types, by place and by name."""
        return self._row(
            [
                value if convert is None else convert(value)
                for value, convert in zip(row, self._converters, strict=True)
            ]
        )


def _same(value: Any) -> Any:
    return value


def _attempts(
    engine: Engine,
    compiled: _Compiled,
    values: Mapping[str, Any],
    *,
    fetch: bool,
    may_exist: bool = False,
) -> tuple[Sequence[Sequence[Any]], int]:
    parameters = compiled.parameters(values)
    deadline = time.monotonic() + DEADLINE_SECONDS
    for attempt in range(1, MOST_ATTEMPTS + 1):
        try:
            return _execute(engine, compiled, parameters, fetch=fetch)
        except (engine.dialect.loaded_dbapi.Error, PoolTimeout) as error:
            if may_exist and is_duplicate_key(error):
                return (), 0
            if attempt > 1 and not fetch and is_duplicate_key(error):
                return (), 1
            pause = _jitter.uniform(0, 0.01 * 2**attempt)
            if classify_error(error) is ErrorClass.FINAL:
                raise _as_sqlalchemy_has_it(engine, compiled, error) from error
            if attempt == MOST_ATTEMPTS or time.monotonic() + pause > deadline:
                raise Unavailable from error
            time.sleep(pause)
    raise Unavailable


def _as_sqlalchemy_has_it(engine: Engine, compiled: _Compiled, error: Exception) -> Exception:
    """A driver's error in the class that the same statement inside a unit of work would raise, without its values."""
    dbapi_error = engine.dialect.loaded_dbapi.Error
    if not isinstance(error, dbapi_error):
        return error
    return DBAPIError.instance(
        compiled.sql, None, error, dbapi_error, hide_parameters=True, dialect=engine.dialect
    )


def _execute(
    engine: Engine, compiled: _Compiled, parameters: tuple[Any, ...], *, fetch: bool
) -> tuple[Sequence[Sequence[Any]], int]:
    # The driver's own connection: SQLAlchemy's would begin and roll back around it, a round trip for nothing.
    try:
        return _run(driver_connection(engine), compiled, parameters, fetch=fetch)
    except engine.dialect.loaded_dbapi.Error as error:
        if engine.dialect.is_disconnect(error, None, None):
            discard(engine)
        raise


def _run(
    driver: Any, compiled: _Compiled, parameters: tuple[Any, ...], *, fetch: bool
) -> tuple[Sequence[Sequence[Any]], int]:
    if compiled.is_sqlite:
        cursor = driver.execute(compiled.sql, parameters)
        return (cursor.fetchall(), 0) if fetch else ((), cursor.rowcount)
    driver.query((compiled.sql % parameters).encode("ascii"))
    if not fetch:
        return (), int(driver.affected_rows())
    return driver.store_result().fetch_row(0, 0), 0
