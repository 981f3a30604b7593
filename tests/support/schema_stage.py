"""The schema of any release, for tests of migrations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask_migrate import upgrade
from sqlalchemy import Engine, event, inspect

from app import config, create_app
from app.extensions import db
from tests.support.applications import BASE_URL, environment
from tests.support.databases import Contents, Database


class Stage:
    """One application on a database that each test empties, or puts at the schema of a revision."""

    def __init__(self, database: Database, instance: Path) -> None:
        self.database = database
        self.app = create_app(config.load(environment(database, instance, BASE_URL)))
        self._contents: dict[str, Contents] = {}

    def empty(self) -> None:
        """Remove all tables."""
        for engine in db.engines.values():
            engine.dispose()
        self.database.drop()

    def start_at(self, revision: str) -> None:
        """Make the schema of the revision, as its migrations made it for the first test that asked for it."""
        self.empty()
        if revision in self._contents:
            self.database.fill(self._contents[revision])
            return
        earlier = max((known for known in self._contents if known < revision), default=None)
        if earlier is not None:
            self.database.fill(self._contents[earlier])
        upgrade(revision=revision)
        self.database.remember()
        self._contents[revision] = self.database.contents()


class Killed(BaseException):
    """The process ends before a statement."""


@contextmanager
def killed_after(changes: int) -> Iterator[None]:
    """End what changes the schema after so many statements that do."""
    left = iter(range(changes))

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith(("CREATE", "ALTER", "DROP")) and next(left, None) is None:
            raise Killed

    event.listen(Engine, "before_cursor_execute", count)
    try:
        with pytest.raises(Killed):
            yield
    finally:
        event.remove(Engine, "before_cursor_execute", count)
        db.engine.dispose()


def columns() -> dict[tuple[str, str], bool]:
    """Return each column, and whether an INSERT must give it a value."""
    inspector = inspect(db.engine)
    return {
        (table, column["name"]): not column["nullable"] and column["default"] is None
        for table in inspector.get_table_names()
        for column in inspector.get_columns(table)
    }
