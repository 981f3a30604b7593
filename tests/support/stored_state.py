"""The rows of a database: what a request changed in them, and how to put them back."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection
from typing import Any, Protocol

from sqlalchemy import Table

from app.models import Base
from tests.support.databases import Database

# By table, then by primary key.
State = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]
# By table: how many rows were added and deleted, and how often each set of columns was changed.
Change = dict[str, Counter[str]]


class Writes(Protocol):
    """What counts the statements that may have changed something."""

    writes: int


class StateKeeper:
    """Reads the rows of a database before requests and puts them back, and both only after something was written.

    All that writes must do so on the connections that ``cuts`` counts.
    """

    def __init__(self, database: Database, cuts: Writes) -> None:
        self._database, self._cuts = database, cuts
        self._state: State = {}
        self._writes = -1

    def read(self) -> State:
        """Return every row."""
        if self._writes != self._cuts.writes:
            self._state, self._writes = read_state(self._database), self._cuts.writes
        return self._state

    def put_back(self) -> State:
        """Restore what ``read`` returned; return what was there instead."""
        if self._writes == self._cuts.writes:
            return self._state
        after = read_state(self._database)
        put_back(self._database, self._state, after)
        self._writes = self._cuts.writes
        return after


def read_state(database: Database) -> State:
    """Return every row."""
    tables = Base.metadata.tables.values()
    found = database.query_each([f"SELECT {_columns(table, database)} FROM {table.name}" for table in tables])
    state: State = {}
    for table, rows in zip(tables, found, strict=True):
        names = table.columns.keys()
        keys = [names.index(column.name) for column in table.primary_key]
        state[table.name] = {tuple(row[key] for key in keys): tuple(row) for row in rows}
    return state


def change_between(
    before: State, after: State, *, without: Collection[str] = (), columns: Collection[str] = ()
) -> Change:
    """Return what changed, without the values: they differ between two runs of one request.

    ``without`` and ``columns`` are the tables and the columns to ignore.
    """
    changes: Change = {}
    for name, old in before.items():
        new = after[name]
        if new == old or name in without:
            continue
        names = list(Base.metadata.tables[name].columns.keys())
        found: Counter[str] = Counter()
        for key in old.keys() | new.keys():
            if key not in old:
                found["added"] += 1
            elif key not in new:
                found["deleted"] += 1
            elif old[key] != new[key]:
                pairs = zip(names, old[key], new[key], strict=True)
                changed = [column for column, one, other in pairs if one != other and column not in columns]
                found[" ".join(changed)] += bool(changed)
        if +found:
            changes[name] = +found
    return changes


def put_back(database: Database, before: State, after: State) -> None:
    """Make the changed tables as they were."""
    changed = [name for name in before if before[name] != after[name]]
    if not changed:
        return
    with contextlib.closing(database.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(database.no_foreign_keys)
        cursor.execute("BEGIN")
        for name in changed:
            cursor.execute(f"DELETE FROM {name}")
            rows = list(before[name].values())
            if rows:
                columns = _columns(Base.metadata.tables[name], database)
                marks = ", ".join([database.mark] * len(rows[0]))
                cursor.executemany(f"INSERT INTO {name} ({columns}) VALUES ({marks})", rows)
        cursor.execute("COMMIT")


def _columns(table: Table, database: Database) -> str:
    quote = "`" if database.engine == "mariadb" else '"'
    return ", ".join(f"{quote}{column.name}{quote}" for column in table.columns)
