"""Batches of rows that are deleted in one transaction: the first of those that match, or by their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, cast
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    CursorResult,
    Delete,
    Table,
    and_,
    delete,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from app.database import ACROSS
from app.extensions import db
from app.fast_path.literals import literal_of
from app.rules.actor import Actor

Key = tuple[Any, ...]
_OPTIONS = {"synchronize_session": False, **ACROSS}


def delete_first(table: Table, condition: ColumnElement[bool], order: ColumnElement[Any], limit: int) -> int:
    """Delete the first ``limit`` rows by ``order`` that match the condition, and return how many there were.

    ``order`` has an index, which the database reads from its beginning. At READ COMMITTED it locks the rows that it
    deletes, for a moment those that it reads, and no range. By their keys the rows of many organizations would cost it
    several times as much: it plans the access to each organization through each index of the table.
    """
    if db.session.get_bind().dialect.name == "sqlite":
        keys = list(table.primary_key.columns)
        first = select(*keys).where(condition).order_by(order).limit(limit)
        statement = delete(table).where(tuple_(*keys).in_(first))
    else:
        statement = _DeleteFirst(table, order, limit).where(condition)
    return cast(CursorResult[Any], db.session.execute(statement, execution_options=_OPTIONS)).rowcount


class _DeleteFirst(Delete):
    """DELETE … ORDER BY … LIMIT of MySQL and MariaDB."""

    inherit_cache = False

    def __init__(self, table: Table, order: ColumnElement[Any], limit: int) -> None:
        super().__init__(table)
        self.order, self.limit = order, limit


@compiles(_DeleteFirst)
def _compile_delete_first(statement: _DeleteFirst, compiler: SQLCompiler, **options: Any) -> str:
    order = compiler.process(statement.order)
    text: str = compiler.visit_delete(statement, **options)  # type: ignore[no-untyped-call]
    return f"{text} ORDER BY {order} LIMIT {statement.limit:d}"


def delete_by_key(
    table: Table,
    condition: ColumnElement[bool],
    limit: int,
    before: Callable[[Actor, Sequence[UUID]], None] | None = None,
) -> int:
    """Delete at most ``limit`` rows that match the condition, and return how many were found.

    ``before`` is called with the janitor as actor and the ids of an organization's rows that are about to be deleted.
    """
    columns = list(table.primary_key.columns)
    found = select(*columns).where(condition).limit(limit).execution_options(**ACROSS)
    # In the order of the rows on disk.
    keys: list[Key] = sorted(tuple(row) for row in db.session.execute(found))
    groups = [(shared, list(group)) for shared, group in groupby(keys, key=lambda key: key[:-1])]
    for shared, group in groups:
        if before is not None:
            before(Actor.system(shared[0], "janitor"), [key[-1] for key in group])
    if groups:
        # The condition again, because a row may have been renewed since it was found.
        db.session.execute(
            delete(table).where(condition, _is_one_of(columns, groups)),
            # No other statement has these keys, so a cached one would only fill the memory.
            execution_options={"compiled_cache": None, **_OPTIONS},
        )
    return len(keys)


def _is_one_of(
    columns: Sequence[Column[Any]], groups: Sequence[tuple[Key, Sequence[Key]]]
) -> ColumnElement[bool]:
    """Return the condition that a row has one of the keys, grouped by all parts but the last.

    Alternatives, because MariaDB executes (a, b) IN (…) as a full table scan. Literals where there is no driver that
    would rather have values: thousands of parameters would keep the other threads of the process waiting.
    """
    *leading, last = columns
    if db.session.get_bind().dialect.name == "sqlite":
        return or_(
            *(
                and_(
                    *(column == value for column, value in zip(leading, shared, strict=True)),
                    last.in_([key[-1] for key in group]),
                )
                for shared, group in groups
            )
        )
    *writers, write_last = [literal_of(column.type) for column in columns]
    alternatives = []
    for shared, group in groups:
        own = [
            f"{column.name} = {write(value)}"
            for column, write, value in zip(leading, writers, shared, strict=True)
        ]
        own.append(f"{last.name} IN ({', '.join([write_last(key[-1]) for key in group])})")
        alternatives.append(" AND ".join(own))
    # Without a type: MariaDB finds no rows by an index for "(…) = 1", which a typed literal would become.
    return literal_column(f"({' OR '.join(alternatives)})")
