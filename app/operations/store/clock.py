"""The database's clock, which decides whether stored rows have expired (CK-1).

A process reads the time from ``uptime``, which is never set, and adds how far the database's clock is ahead of it. So
no step of this machine's clock is noticed, and reading the time costs no query: the difference is measured every few
seconds by a thread of one serving process (``app/web/background.py``), which tells the others of its machine, and in
other processes every half minute.

The time never goes backwards. If the database's clock does, the time goes on a little slower until it has caught up.
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from sqlalchemy import literal_column, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.database import engines
from app.fast_path.cache_invalidation import CLOCK, is_lead, read_machine_record, write_machine_record
from app.models.base import UtcDateTime
from app.uptime import uptime

MEASURE_INTERVAL_SECONDS = 30.0
MAX_ERROR = timedelta(seconds=5)
"""By how much two processes measure the database's time differently at most."""
# How long what the lead of this machine measured is as good as a measurement.
_RECORD_SECONDS = 10.0
# How much slower the time goes while it is ahead of the database's. A code of 60 seconds is then valid for 63 at most.
SLOWDOWN = 0.05
# How fast two undisturbed clocks may drift apart.
_DRIFT = 0.0005
_STEP_SECONDS = 1.0
_log = logging.getLogger("gatehouse.clock")


class Difference(Struct, frozen=True):
    """How far the database's clock is ahead of ``uptime``, in seconds, as measured at ``at`` within ``error``.

    ``excess`` is how much further ahead the time of this process was then.
    """

    at: float
    seconds: float
    error: float
    excess: float = 0.0

    def seconds_at(self, tick: float) -> float:
        """Return what to add to ``tick``. It falls more slowly than ``tick`` rises."""
        if self.excess == 0.0:
            return self.seconds
        return self.seconds + max(0.0, self.excess - SLOWDOWN * (tick - self.at))

    def adjusted_to(self, measured: Difference, tick: float) -> Difference:
        """Return the difference to use from ``tick`` on, after another measurement."""
        error = self._error_at(measured.at)
        # A measurement that took long says less than an older one that did not.
        seconds, error = (
            (measured.seconds, measured.error)
            if self.is_set_before(measured) or measured.error <= error
            else (self.seconds, error)
        )
        return Difference(tick, seconds, error, max(0.0, self.seconds_at(tick) - seconds))

    def is_set_before(self, measured: Difference) -> bool:
        """Return whether the database's clock was set before the measurement, because both cannot be right."""
        return abs(measured.seconds - self.seconds) > self._error_at(measured.at) + measured.error

    def _error_at(self, tick: float) -> float:
        # The lead may have measured it before.
        return self.error + _DRIFT * max(0.0, tick - self.at)


_difference: Difference | None = None
_measured_at = float("-inf")
_measuring = threading.Lock()


def now() -> datetime:
    """Return the database's time in UTC."""
    difference, tick = _current_difference()
    return datetime.fromtimestamp(tick + difference.seconds_at(tick), UTC)


def measured_now() -> datetime:
    """Return the database's time as every process measures it, which goes backwards if that clock was set back."""
    difference, tick = _current_difference()
    return datetime.fromtimestamp(tick + difference.seconds, UTC)


def _current_difference() -> tuple[Difference, float]:
    """Return the last difference, at most half a minute old, and the tick to add it to."""
    tick = uptime()
    if tick - _measured_at > MEASURE_INTERVAL_SECONDS:
        measure()
        tick = uptime()
    return _difference or _machine_difference(), tick


def offset() -> timedelta:
    """Return how far the database's clock is ahead of this machine's."""
    return now() - datetime.now(UTC)


def measure() -> None:
    """Compare the database's clock with ``uptime``.

    If the database does not answer, the last difference remains in use, at first that of this machine's clock: the
    caller will meet the database's error itself.
    """
    global _difference, _measured_at
    # While another thread measures, this one uses the last difference, and waits if there is none.
    if not _measuring.acquire(blocking=_difference is None):
        return
    try:
        measured = _ask()
        if measured is not None:
            before = _difference or measured
            _difference = before.adjusted_to(measured, uptime())
            step = measured.seconds - before.seconds
            if abs(step) > _STEP_SECONDS and before.is_set_before(measured):
                _log.warning("the database's clock was set by %+.1f seconds", step)
    finally:
        _measured_at = uptime()
        _measuring.release()


def _ask() -> Difference | None:
    engine = engines()[1]
    if engine.dialect.name == "sqlite":
        return _machine_difference()
    recorded = read_machine_record(CLOCK)
    if recorded is not None and 0 <= uptime() - recorded[0] < _RECORD_SECONDS and not is_lead():
        return Difference(*recorded)
    statement = select(literal_column("UTC_TIMESTAMP(6)", UtcDateTime))
    try:
        with engine.connect() as connection:
            before = uptime()
            database_time: datetime = connection.execute(statement).scalar_one()
            after = uptime()
    except (DBAPIError, PoolTimeout):
        return None
    error = (after - before) / 2
    seconds = database_time.timestamp() - (before + error)
    write_machine_record(CLOCK, after, seconds, error)
    return Difference(after, seconds, error)


def _machine_difference() -> Difference:
    """SQLite has no clock of its own."""
    tick = uptime()
    return Difference(tick, datetime.now(UTC).timestamp() - tick, 0.001)
