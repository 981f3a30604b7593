"""Reads that may be a few seconds old, from the replica that ``DATABASE_REPLICA_URL`` names.

Two kinds of reads may: figures, which are a few seconds old anyway, and rows of an append-only log that were written
at least ``SETTLED`` ago, which a replica in use has too. So everybody finds at once what they have just done. Tokens,
codes, sessions, revocations, permissions and settings are always read from the database that is written.

The heartbeat that a worker writes every two seconds (``outages``) tells how far the replica is behind. Beyond
``MAX_LAG``, or if it does not answer, everything is read from the database that is written. Its time is compared with
the measured one: the ``now`` of a process may still be ahead of a clock that was set back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Select, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.database import replica_engine
from app.extensions import db
from app.models.audit import InstanceFact
from app.operations.store import clock
from app.operations.store.outages import HEARTBEAT
from app.operations.store.transactions import current_unit_of_work
from app.rules.identifiers import first_id_at

MAX_LAG = timedelta(seconds=10)
# More than the lag, and the time that a transaction takes from the id of its row to its commit.
SETTLED = timedelta(minutes=1)
_CHECK_SECONDS = 2.0
_log = logging.getLogger("gatehouse.replica")


class Replica:
    """What is known of the replica of one process: whether it may be read, as of the last check."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checked_at = float("-inf")
        self._trouble: str | None = "it has not been asked yet"

    def is_usable(self, engine: Engine) -> bool:
        """Return whether the replica answers and is less than ``MAX_LAG`` behind, which is asked every two seconds.

        While one thread asks, the others do without the replica if it could not be used before.
        """
        if time.monotonic() - self._checked_at > _CHECK_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._set(_find_trouble(engine))
            finally:
                self._lock.release()
        return self._trouble is None

    def leave(self, error: Exception) -> None:
        """Do without the replica until the next check, because it has failed a read."""
        self._set(f"a read failed ({type(error).__name__})")

    def _set(self, trouble: str | None) -> None:
        if (trouble is None) != (self._trouble is None):
            _log.warning("the replica is not used: %s", trouble) if trouble else _log.info(
                "the replica is used"
            )
        self._trouble, self._checked_at = trouble, time.monotonic()


replica = Replica()


def read_figures(statement: Select[*tuple[Any, ...]]) -> Sequence[Any]:
    """Return the rows as they are now or were a few seconds ago. Call it in an operation that only reads."""
    rows = _read_replica(statement)
    return db.session.execute(statement).all() if rows is None else rows


def read_log(statement: Select[Any], before: UUID | None = None, rows: int | None = None) -> Sequence[Any]:
    """Return the rows of an append-only log, exactly as the database that is written has them.

    All rows have ids below ``before``, or the statement wants the oldest ``rows``. Call it in an operation that only
    reads.
    """
    settled = first_id_at(clock.measured_now() - SETTLED)
    if before is None or before < settled:
        found = _read_replica(statement)
        if found is not None and (before is not None or (len(found) == rows and found[-1].id < settled)):
            return found
    return db.session.execute(statement).all()


def _read_replica(statement: Select[Any]) -> Sequence[Any] | None:
    """Return the rows, or None if there is no replica that may be read."""
    engine = replica_engine()
    # A transaction sees what it has written itself.
    if engine is None or not current_unit_of_work().read_only or not replica.is_usable(engine):
        return None
    try:
        with engine.connect() as connection:
            return connection.execute(statement).all()
    except (DBAPIError, PoolTimeout) as error:
        replica.leave(error)
        return None


def _find_trouble(engine: Engine) -> str | None:
    """Return why the replica should not be read, or None if it may."""
    heartbeat = select(InstanceFact.updated_at).where(InstanceFact.name == HEARTBEAT)
    try:
        with engine.connect() as connection:
            reported = connection.execute(heartbeat).scalar()
    except (DBAPIError, PoolTimeout) as error:
        return f"it does not answer ({type(error).__name__})"
    if reported is None:
        return "it has no heartbeat of this installation"
    lag = clock.measured_now() - reported
    # One in the future was written before the database's clock was set back, and the replica has received none since.
    return None if abs(lag) < MAX_LAG else f"it is {abs(lag).total_seconds():.0f} seconds behind"
