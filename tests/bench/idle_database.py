"""Wait until the database is idle, so that the cost of earlier bulk writes is not measured."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from tests.support.mariadb import MariaDB

_MAX_SECONDS = 600.0


def wait_until_idle(database: MariaDB) -> None:
    """Wait until all pages are written and old row versions are purged, and update the statistics.

    A million rows leave half a gigabyte of dirty pages, which are written while requests are measured. Raises
    TimeoutError after ten minutes.
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
            deadline = time.monotonic() + _MAX_SECONDS
            while not _is_idle(cursor):
                if time.monotonic() > deadline:
                    raise TimeoutError("the database did not become idle")
                time.sleep(0.5)
        finally:
            cursor.execute(f"SET GLOBAL innodb_max_dirty_pages_pct = {usual}")


def _is_idle(cursor: Any) -> bool:
    most = {"Innodb_buffer_pool_pages_dirty": 200, "Innodb_history_list_length": 1000}
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb%'")
    return all(int(value) <= most[name] for name, value in cursor.fetchall() if name in most)
