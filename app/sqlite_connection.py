"""Connections to SQLite: private files, a write-ahead log, and transactions that lock first."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from typing import Any

from sqlalchemy.engine import Connection


def make_file_private(_dialect: Any, _record: Any, arguments: Any, _parameters: Any) -> None:
    """Create the database with mode 0600, and take away what others may do with an older one.

    SQLite gives the files beside it the mode of the database, and would create that with the process's umask. The file
    is not opened here: to close it would release the locks of this process's connections, another process would take
    itself for the last one and delete the write-ahead log, and this one would go on with the deleted one.
    """
    for name in (arguments[0], f"{arguments[0]}-wal", f"{arguments[0]}-shm"):
        try:
            if name == arguments[0] and not os.path.exists(name):
                os.mknod(name, stat.S_IFREG | 0o600)
            if os.stat(name).st_mode & 0o077:
                os.chmod(name, 0o600)
        except OSError:
            # It does not exist, which connecting reports, or belongs to another user, who decides about it.
            continue


def prepare(connection: Any, _record: Any) -> None:
    """Set what a new connection needs."""
    # The driver's own implicit BEGIN is deferred and cannot lock first.
    connection.isolation_level = None
    cursor = connection.cursor()
    _use_write_ahead_log(cursor)
    # NORMAL may forget the last commits at a power loss, and with them that a code was used.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def begin(connection: Connection) -> None:
    """Begin a transaction of an engine."""
    # A deferred transaction that reads and then writes fails at once when another wrote between.
    reads = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _use_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """Set the journal mode, which only changes something in a new database.

    Of several processes that open a new database together one changes it, and SQLite refuses the others at once instead
    of waiting as long as it waits for other locks.
    """
    (milliseconds,) = cursor.execute("PRAGMA busy_timeout").fetchone()
    deadline = time.monotonic() + milliseconds / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # The lowest byte of an extended code is the code.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
