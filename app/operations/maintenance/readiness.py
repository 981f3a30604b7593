"""Readiness: whether the database can serve this release."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.config import current
from app.database import why_not_writable
from app.extensions import db
from app.models.organization import Organization
from app.operations.maintenance.database_checks import list_missing_columns
from app.operations.store.transactions import read
from app.rules.errors import Unavailable

_RETRY_SECONDS = 5
# Less than this is left for a database file: the next writes would fail.
_MIN_FREE_BYTES = 4 << 20
# URLs of the databases that lack nothing.
_compared: set[str] = set()


def require_database_ready() -> None:
    """Raise Unavailable unless the database has the tables of this release, can be read and accepts writes.

    A ping succeeds on a partitioned node, reading does not. Nothing is written: a replica says that it is one, and of a
    database file the file system is asked.
    """
    try:
        _read_one_row()
        if (reason := _why_not_writable_file() or why_not_writable()) is not None:
            raise Unavailable(
                "The database cannot be written.", retry_after=_RETRY_SECONDS
            ) from RuntimeError(reason)
        if (difference := _find_schema_difference()) is not None:
            # The log names it; a stranger need not know.
            raise Unavailable("The database needs a migration.", retry_after=_RETRY_SECONDS) from ValueError(
                difference
            )
    except (DBAPIError, PoolTimeout) as error:
        # A load balancer need not tell a missing migration, permission or file apart.
        raise Unavailable("The database cannot be read.", retry_after=_RETRY_SECONDS) from error


@read
def _read_one_row() -> None:
    db.session.execute(select(Organization.id).limit(1)).first()


def _why_not_writable_file() -> str | None:
    """Return why the database file cannot be written, or None if it can or if the database is a server."""
    config = current()
    if not config.is_sqlite:
        return None
    file = Path(config.database_url.removeprefix("sqlite:///"))
    if not os.access(file, os.W_OK):
        return "the database file is read-only"
    return None if shutil.disk_usage(file.parent).free >= _MIN_FREE_BYTES else "the disk is full"


def _find_schema_difference() -> str | None:
    """Return a description of what the database lacks, or None. Stops comparing once nothing is missing."""
    url = current().database_url
    if url in _compared:
        return None
    missing = list_missing_columns()
    if not missing:
        _compared.add(url)
        return None
    shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    return f"The database lacks {shown}."
