"""The database's clock, which decides whether stored rows have expired (CK-1).

A worker whose own clock is wrong must not accept an expired code. The offset between the two clocks is measured every
half minute and added to the process's clock, so that reading the time costs no query.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from sqlalchemy import literal_column, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.database import engines
from app.models.base import UtcDateTime

MEASURE_INTERVAL_SECONDS = 30.0

_offset = timedelta()
_measured_at: float | None = None


def now() -> datetime:
    """Return the database's time in UTC."""
    global _measured_at
    tick = time.monotonic()
    if _measured_at is None:
        # No caller gets a time before the first measurement, not even while another thread measures.
        _measure()
        _measured_at = tick
    elif tick - _measured_at > MEASURE_INTERVAL_SECONDS:
        _measured_at = tick
        _measure()
    return datetime.now(UTC) + _offset


def offset() -> timedelta:
    """Return how far the database's clock is ahead of this process's clock."""
    now()
    return _offset


def _measure() -> None:
    global _offset
    engine = engines()[1]
    if engine.dialect.name == "sqlite":
        _offset = timedelta()
        return
    statement = select(literal_column("UTC_TIMESTAMP(6)", UtcDateTime))
    try:
        with engine.connect() as connection:
            before = datetime.now(UTC)
            database_time = connection.execute(statement).scalar_one()
            _offset = database_time - (before + (datetime.now(UTC) - before) / 2)
    except (DBAPIError, PoolTimeout):
        # The previous offset is good enough, and the caller will meet the database error itself.
        return
