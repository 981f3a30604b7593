"""One database of a test worker, migrated once and emptied before each test."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.mariadb import MariaDB

_KEPT = "alembic_version"

# The rows of each table that is not empty.
Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Contents:
    """The statements that create the tables of a database, and the rows."""

    statements: list[str]
    rows: Rows


class Database(ABC):
    """A test database: engine name, URL and contents."""

    engine: str
    url: str

    @property
    def kind(self) -> str:
        """Name the databases that understand each other's statements."""
        return self.engine

    def __init__(self) -> None:
        self._tables: list[str] = []
        self._seed: Rows = {}

    @abstractmethod
    def connect(self) -> Any:
        """Return a raw autocommitting connection."""

    def close(self) -> None:  # noqa: B027 - only SQLite keeps a connection
        """Close what ``clean`` keeps open."""

    @abstractmethod
    def dump(self) -> bytes:
        """Return the contents of the database as bytes, binary columns unencoded."""

    @abstractmethod
    def back_up(self, file: Path) -> None:
        """Write a backup as docs/deployment.md says."""

    @abstractmethod
    def restore(self, file: Path) -> None:
        """Replace the contents by those of the backup."""

    def remember(self) -> None:
        """Record the rows that migrations inserted as the state that ``clean`` restores."""
        self._tables = [row[0] for row in self.query(self._list_tables) if row[0] != _KEPT]
        self._seed = self.rows()

    def rows(self) -> Rows:
        """Return the current rows, to be restored by ``clean``."""
        rows: Rows = {}
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            for table in self._filled(cursor):
                cursor.execute(f"SELECT * FROM {table}")
                rows[table] = list(cursor.fetchall())
        return rows

    @abstractmethod
    def drop(self) -> None:
        """Remove all tables; nothing else may be connected."""

    def is_empty(self) -> bool:
        """Return whether the database has no tables."""
        return not self.query(self._list_tables)

    def contents(self) -> Contents:
        """Return the schema, and the rows that migrations inserted: call ``remember`` first."""
        return Contents(self._statements(), self._seed | {_KEPT: self.query(f"SELECT * FROM {_KEPT}")})

    def fill(self, contents: Contents) -> None:
        """Create these tables in an empty database."""
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(self.no_foreign_keys)
            cursor.execute("BEGIN")
            for statement in contents.statements:
                cursor.execute(statement)
            self._insert(cursor, contents.rows)
            cursor.execute("COMMIT")

    @abstractmethod
    def _statements(self) -> list[str]:
        """Return the statements that create the tables."""

    def _insert(self, cursor: Any, rows: Rows) -> None:
        for table, each in rows.items():
            marks = ", ".join([self.mark] * len(each[0]))
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", each)

    def clean(self, to: Rows | None = None) -> None:
        """Delete every row added after the migrations; with ``to``, restore those rows."""
        with self._resetting() as connection:
            cursor = connection.cursor()
            filled, wanted = self._filled(cursor), self._seed if to is None else to
            if not filled and not wanted:
                return
            cursor.execute(self.no_foreign_keys)
            cursor.execute("BEGIN")
            for table in filled:
                cursor.execute(f"DELETE FROM {table}")
            self._insert(cursor, wanted)
            cursor.execute("COMMIT")

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a raw statement."""
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement, values)
            return list(cursor.fetchall())

    @abstractmethod
    def query_each(self, statements: Sequence[str]) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each raw statement."""

    def count(self, table: str) -> int:
        """Return the number of rows in the table."""
        return int(self.query(f"SELECT COUNT(*) FROM {table}")[0][0])

    _list_tables: str
    no_foreign_keys: str
    mark: str

    @contextlib.contextmanager
    def _resetting(self) -> Iterator[Any]:
        """Yield a connection that reads, deletes and restores rows."""
        with contextlib.closing(self.connect()) as connection:
            yield connection

    def _filled(self, cursor: Any) -> list[str]:
        if not self._tables:
            return []
        probes = (f"SELECT '{table}' FROM (SELECT 1 FROM {table} LIMIT 1) AS one" for table in self._tables)
        cursor.execute(" UNION ALL ".join(probes))
        return [row[0] for row in cursor.fetchall()]


class MariaDBDatabase(Database):
    """A database of the run's private MariaDB."""

    engine = "mariadb"
    _list_tables = "SHOW TABLES"
    no_foreign_keys = "SET foreign_key_checks=0"
    mark = "%s"

    def __init__(self, server: MariaDB, name: str) -> None:
        super().__init__()
        self.server, self.name = server, name
        self.url = server.create_database(name)

    @property
    def kind(self) -> str:
        return self.server.mysql or self.engine

    def connect(self) -> Any:
        return self.server.connect(self.name)

    def drop(self) -> None:
        self.server.create_database(self.name)

    def query_each(self, statements: Sequence[str]) -> list[list[tuple[Any, ...]]]:
        # All in one packet.
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("; ".join(statements))
            found = [list(cursor.fetchall())]
            while cursor.nextset():
                found.append(list(cursor.fetchall()))
            return found

    def _statements(self) -> list[str]:
        shown = (self.query(f"SHOW CREATE TABLE {table}")[0][1] for table in [*self._tables, _KEPT])
        # MySQL names the character set of a column beside its collation only if the statement did.
        return [statement.replace(" CHARACTER SET utf8mb4 COLLATE", " COLLATE") for statement in shown]

    def dump(self) -> bytes:
        return self.server.dump(self.name)

    def back_up(self, file: Path) -> None:
        file.write_bytes(
            self.server.dump(self.name, "--single-transaction", "--routines=false", "--hex-blob")
        )

    def restore(self, file: Path) -> None:
        self.server.load(self.name, file)


class SQLiteDatabase(Database):
    """A SQLite file."""

    engine = "sqlite"
    _list_tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    no_foreign_keys = "PRAGMA foreign_keys=OFF"
    mark = "?"

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.url = f"sqlite:///{file}"
        self._kept: sqlite3.Connection | None = None

    def connect(self) -> Any:
        return sqlite3.connect(self.file, isolation_level=None, timeout=60)

    def drop(self) -> None:
        self.close()
        self._kept = None
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.file}{suffix}").unlink(missing_ok=True)

    def fill(self, contents: Contents) -> None:
        self.query("PRAGMA journal_mode = WAL")
        super().fill(contents)

    def query_each(self, statements: Sequence[str]) -> list[list[tuple[Any, ...]]]:
        with self._resetting() as connection:
            return [connection.execute(statement).fetchall() for statement in statements]

    def _statements(self) -> list[str]:
        # Indexes after their tables.
        found = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type = 'index', rowid"
        return [row[0] for row in self.query(found)]

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()

    @contextlib.contextmanager
    def _resetting(self) -> Iterator[Any]:
        # Kept open until something fails, because each new connection reads the whole schema.
        kept, self._kept = self._kept or self.connect(), None
        try:
            yield kept
        except BaseException:
            kept.close()
            raise
        self._kept = kept

    def dump(self) -> bytes:
        files = [f"{self.file}{suffix}" for suffix in ("", "-wal") if Path(f"{self.file}{suffix}").exists()]
        # Read by another process: closing the file here would drop every lock that SQLite holds on it in this one, and
        # the next process to open the database would replay a log that is still being written.
        return subprocess.run(["cat", *files], check=True, capture_output=True).stdout

    def back_up(self, file: Path) -> None:
        _copy_sqlite(self.file, file)

    def restore(self, file: Path) -> None:
        _copy_sqlite(file, self.file)


def _copy_sqlite(source: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(source)) as old,
        contextlib.closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
