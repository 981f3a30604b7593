"""Run migrations: one process at a time, with short lock waits, and on SQLite with foreign keys off before BEGIN and
checked afterwards.

Alembic's batch mode rebuilds a table by copying it; with foreign keys on SQLite then deletes the children and
reports success. A statement that cannot get its lock in seconds gives up instead of queueing all traffic behind it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from alembic import context
from flask import current_app
from MySQLdb.constants import ER
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from app.config import UnsafeConfiguration, command_line
from app.database import migration_engine
from app.operations.maintenance.doctor import require_database
from migrations import repeatable  # noqa: F401 - Alembic uses it from now on

database = current_app.extensions["migrate"].db
LOCK_SECONDS = 3600


def run(connection: Connection) -> None:
    """All pending migrations, each in its own transaction where the database can."""
    context.configure(
        connection=connection,
        target_metadata=database.metadata,
        render_as_batch=True,
        transaction_per_migration=True,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


@contextlib.contextmanager
def alone(connection: Connection) -> Iterator[None]:
    """Hold the only lock for migrations of this database, which ends with the process at the latest."""
    if connection.dialect.name == "sqlite":
        file = connection.engine.url.database
        with open(f"{file}.migration", "w", opener=partial(os.open, mode=0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    name = (
        f"gatehouse migration {hashlib.sha256(str(connection.engine.url.database).encode()).hexdigest()[:32]}"
    )
    deadline = time.monotonic() + LOCK_SECONDS
    while connection.exec_driver_sql("SELECT GET_LOCK(%s, 1)", (name,)).scalar() != 1:
        connection.commit()
        if time.monotonic() > deadline:
            raise SystemExit(
                f"Another process has been migrating this database for {LOCK_SECONDS} s. Try again later."
            )
    connection.commit()
    try:
        yield
    finally:
        connection.exec_driver_sql("SELECT RELEASE_LOCK(%s)", (name,))
        connection.commit()


def run_online() -> None:
    """On the configured database."""
    try:
        require_database()
    except UnsafeConfiguration as refusal:
        raise SystemExit(str(refusal)) from None
    with migration_engine(current_app.config["GATEHOUSE"]).connect() as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        if is_sqlite:
            connection.connection.dbapi_connection.execute("PRAGMA foreign_keys = OFF")
        else:
            connection.exec_driver_sql("SET SESSION lock_wait_timeout = 10, innodb_lock_wait_timeout = 10")
            connection.commit()
        # Machines that start together: the first migrates, the others wait and find nothing left to do.
        try:
            with alone(connection):
                run(connection)
                connection.commit()
        except OperationalError as error:
            code = None if error.orig is None else error.orig.args[0]
            if code == ER.LOCK_WAIT_TIMEOUT:
                raise SystemExit(
                    f"A long transaction locks a table: {error.orig}. Type the same command again: the "
                    "migrations go on where they stopped."
                ) from None
            if code != ER.TABLEACCESS_DENIED_ERROR:
                raise
            raise SystemExit(
                f"The schema is not up to date, and the account of DATABASE_URL may not change it: {error.orig}. Type "
                f"this with an account that may: {command_line('db upgrade')}"
            ) from None
        if is_sqlite:
            broken = connection.connection.dbapi_connection.execute("PRAGMA foreign_key_check").fetchall()
            connection.connection.dbapi_connection.execute("PRAGMA foreign_keys = ON")
            if broken:
                raise RuntimeError(f"the migration left {len(broken)} rows whose parent is missing")
        connection.invalidate()


if context.is_offline_mode():
    raise SystemExit("Migrations run against a database: flask --app wsgi db upgrade")
run_online()
