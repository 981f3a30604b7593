"""The database's clock: what decides whether stored things have ended (CK-1).

A worker whose own clock is minutes off must not accept an ended code. The offset between the two clocks is measured
every half minute and added to the process's clock, so that asking the time costs no query.
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
    """The database's time, aware, in UTC."""
    global _measured_at
    tick = time.monotonic()
    if _measured_at is None:
        # Nobody is told a time before the first measurement, whoever asks while it is under way.
        _measure()
        _measured_at = tick
    elif tick - _measured_at > MEASURE_INTERVAL_SECONDS:
        _measured_at = tick
        _measure()
    return datetime.now(UTC) + _offset


def offset() -> timedelta:
    """How far the database's clock is ahead of this process's."""
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
            theirs = connection.execute(statement).scalar_one()
            _offset = theirs - (before + (datetime.now(UTC) - before) / 2)
    except (DBAPIError, PoolTimeout):
        # The offset of half a minute ago is as good; whoever asked meets the database's fault itself.
        return
