"""Migrations on MariaDB and MySQL that go on where an earlier run was interrupted.

These databases commit each change of the schema at once. A migration that was killed, or could not get a lock, has done
some of its changes and is not recorded as done. What it has made is left out when it runs again.
"""

from __future__ import annotations

from typing import Any

from alembic.ddl.mysql import MySQLImpl
from sqlalchemy import Column, Constraint, ForeignKeyConstraint, Index, Table, inspect, select
from sqlalchemy.engine.reflection import Inspector


class RepeatableMySQL(MySQLImpl):
    """The operations of migrations, without those that were done before. Alembic uses it for its dialect."""

    __dialect__ = "mysql"

    def create_table(self, table: Table, **options: Any) -> None:
        """Create the table, unless it exists with the same columns and without rows.

        Another one was not made by an interrupted run. It is left of a database that a backup was restored over, and
        creating it fails.
        """
        look = self._look()
        is_made = look.has_table(table.name) and {each["name"] for each in look.get_columns(table.name)} == {
            column.name for column in table.columns
        }
        if not is_made or self._has_rows(table):
            super().create_table(table, **options)

    def add_column(self, table_name: str, column: Column[Any], **options: Any) -> None:
        """Add the column, unless the table has it."""
        if not self._has_column(table_name, column):
            super().add_column(table_name, column, **options)

    def drop_table(self, table: Table, **options: Any) -> None:
        """Drop the table, if it exists."""
        if self._look().has_table(table.name):
            super().drop_table(table, **options)

    def drop_column(self, table_name: str, column: Column[Any], **options: Any) -> None:
        """Drop the column, if the table has it."""
        if self._has_column(table_name, column):
            super().drop_column(table_name, column, **options)

    def create_index(self, index: Index, **options: Any) -> None:
        """Create the index, unless the table has it."""
        if not self._has_index(index):
            super().create_index(index, **options)

    def drop_index(self, index: Index, **options: Any) -> None:
        """Drop the index, if the table has it."""
        if self._has_index(index):
            super().drop_index(index, **options)

    def add_constraint(self, const: Any, **options: Any) -> None:
        """Add the constraint; a foreign key or a unique one unless the table has it."""
        look, table = self._look(), const.table.name
        known = {key["name"] for key in [*look.get_foreign_keys(table), *look.get_unique_constraints(table)]}
        if const.name not in known:
            super().add_constraint(const, **options)

    def drop_constraint(self, const: Constraint, **options: Any) -> None:
        """Drop the constraint; a foreign key only if the table has it."""
        is_done = isinstance(const, ForeignKeyConstraint) and const.name not in {
            key["name"] for key in self._look().get_foreign_keys(const.table.name)
        }
        if not is_done:
            super().drop_constraint(const, **options)

    def _look(self) -> Inspector:
        """Return an inspector that has cached nothing."""
        found: Inspector = inspect(self._connection())
        return found

    def _has_column(self, table_name: str, column: Column[Any]) -> bool:
        return column.name in {each["name"] for each in self._look().get_columns(table_name)}

    def _has_index(self, index: Index) -> bool:
        table = index.table
        return table is not None and index.name in {
            each["name"] for each in self._look().get_indexes(table.name)
        }

    def _has_rows(self, table: Table) -> bool:
        first = select(*table.primary_key).limit(1).execution_options(across_organizations=True)
        return self._connection().execute(first).first() is not None

    def _connection(self) -> Any:
        if self.connection is None:
            raise RuntimeError("migrations run against a database")
        return self.connection
