"""The rows of a database: what a request changed in them, and how to put them back."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any

from app.models import Base
from tests.support.cut_connections import Cuts
from tests.support.databases import Database

# By table, then by primary key.
State = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]
# By table: how many rows were added and deleted, and how often each set of columns was changed.
Change = dict[str, Counter[str]]


class StateKeeper:
    """Reads the rows of a database before requests and puts them back, and both only after something was written.

    All that writes must do so on the connections of ``cuts``.
    """

    def __init__(self, database: Database, cuts: Cuts) -> None:
        self._database, self._cuts = database, cuts
        self._kept: State = {}
        self._latest: State = {}
        self._writes = -1

    def latest(self) -> State:
        """Return every row. Only the tables that were written since the last time are read."""
        if self._writes != self._cuts.writes:
            written, self._cuts.written = self._cuts.written, set()
            is_known = self._writes != -1 and None not in written
            # No foreign key changes the rows of another table.
            names = [name for name in _ALL if name in written] if is_known else _ALL
            self._writes = self._cuts.writes
            self._latest = self._latest | read_state(self._database, names)
        return self._latest

    def read(self) -> State:
        """Return every row, to be restored by ``put_back``."""
        self._kept = self.latest()
        return self._kept

    def put_back(self) -> State:
        """Restore what ``read`` returned; return what was there instead."""
        after = self.latest()
        if after is not self._kept:
            put_back(self._database, self._kept, after)
            self._latest = self._kept
        return after


_ALL = tuple(Base.metadata.tables)


def read_state(database: Database, names: Sequence[str] = _ALL) -> State:
    """Return every row of the tables."""
    found = database.query_each([_select(name, database.engine) for name in names]) if names else []
    return {
        name: {_key_of(name)(row): tuple(row) for row in rows}
        for name, rows in zip(names, found, strict=True)
    }


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
                columns = _columns(name, database.engine)
                marks = ", ".join([database.mark] * len(rows[0]))
                cursor.executemany(f"INSERT INTO {name} ({columns}) VALUES ({marks})", rows)
        cursor.execute("COMMIT")


@functools.cache
def _columns(name: str, engine: str) -> str:
    quote = "`" if engine == "mariadb" else '"'
    return ", ".join(f"{quote}{column.name}{quote}" for column in Base.metadata.tables[name].columns)


@functools.cache
def _select(name: str, engine: str) -> str:
    return f"SELECT {_columns(name, engine)} FROM {name}"


@functools.cache
def _key_of(name: str) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what finds the primary key in a row of the table."""
    table = Base.metadata.tables[name]
    names = table.columns.keys()
    places = [names.index(column.name) for column in table.primary_key]
    return itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
