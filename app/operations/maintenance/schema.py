"""Compare the tables of the database with those that this release needs.

The number of the last migration does not prove them: a database of an edited migration has the same number.
"""

from __future__ import annotations

from sqlalchemy import text

from app.config import current
from app.extensions import db
from app.models.base import Base
from app.operations.store.transactions import read

_COLUMNS = {
    "mysql": text(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
    ),
    "sqlite": text(
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns "
        "WHERE tables.type = 'table'"
    ),
}
_compared: set[str] = set()


@read
def list_missing_columns() -> tuple[str, ...]:
    """List what the database lacks, ``table`` or ``table.column``. A newer schema with more columns lacks nothing."""
    connection = db.session.connection()
    kind = "sqlite" if connection.dialect.name == "sqlite" else "mysql"
    found = {(str(table), str(column)) for table, column in connection.execute(_COLUMNS[kind])}
    tables = {table for table, _ in found}
    missing = []
    for table in Base.metadata.sorted_tables:
        if table.name not in tables:
            missing.append(table.name)
        else:
            missing += [
                f"{table.name}.{column.name}" for column in table.c if (table.name, column.name) not in found
            ]
    return tuple(missing)


def find_schema_difference() -> str | None:
    """Return what the database lacks, in words, or None. Compared until it lacks nothing, then never again."""
    url = current().database_url
    if url in _compared:
        return None
    missing = list_missing_columns()
    if not missing:
        _compared.add(url)
        return None
    shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    return f"The database lacks {shown}."
