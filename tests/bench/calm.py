"""A database at rest: what was written in bulk a moment ago is not measured as the cost of what comes now."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from tests.support.mariadb import MariaDB

_MOST_SECONDS = 600.0


def settle(database: MariaDB) -> None:
    """Every page lies on disk, old versions of rows are gone, and plans are made of today's figures.

    A million rows leave half a gigabyte of changed pages. They are written while requests come, at many times the rate
    of what the requests change. Raises TimeoutError after ten minutes.
    """
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE engine = 'InnoDB'"
        )
        for schema, table in cursor.fetchall():
            if schema != "mysql":
                cursor.execute(f"ANALYZE TABLE `{schema}`.`{table}`")
                cursor.fetchall()
        cursor.execute("SELECT @@GLOBAL.innodb_max_dirty_pages_pct")
        usual = cursor.fetchone()[0]
        cursor.execute("SET GLOBAL innodb_max_dirty_pages_pct = 0")
        try:
            deadline = time.monotonic() + _MOST_SECONDS
            while not _is_calm(cursor):
                if time.monotonic() > deadline:
                    raise TimeoutError("the database does not come to rest")
                time.sleep(0.5)
        finally:
            cursor.execute(f"SET GLOBAL innodb_max_dirty_pages_pct = {usual}")


def _is_calm(cursor: Any) -> bool:
    most = {"Innodb_buffer_pool_pages_dirty": 200, "Innodb_history_list_length": 1000}
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb%'")
    return all(int(value) <= most[name] for name, value in cursor.fetchall() if name in most)
