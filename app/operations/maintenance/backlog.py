"""Backlog: what background work has left to do, read from the database for metrics.

Every figure is limited or comes from the end of an index, except the rotation of signing keys, which looks at each
active key and is therefore read seldom.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from app import metrics
from app.operations.audit import chain
from app.operations.grants.key_rotation import next_rotation_at
from app.operations.maintenance.janitor import lags
from app.operations.store import clock, outbox

KEYS_EVERY = timedelta(minutes=10)


class Backlog:
    """The figures, and when the keys were looked at last."""

    def __init__(self) -> None:
        self._keys_read_at: datetime | None = None
        self._rotation_at: datetime | None = None

    def read(self) -> metrics.Samples:
        """Return the samples. Raises Unavailable or the database's error."""
        now = clock.now()
        found: metrics.Samples = {family.name: {} for family in (metrics.OUTBOX, metrics.OUTBOX_AGE)}
        for kind, (count, oldest) in outbox.count_waiting().items():
            found[metrics.OUTBOX.name][(kind,)] = count
            found[metrics.OUTBOX_AGE.name][(kind,)] = _seconds_between(oldest, now)
        through = chain.sealed_through()
        found[metrics.UNSEALED.name] = {(): chain.count_unsealed()}
        # The sealer's own time: this process may still be ahead of a clock that was set back.
        found[metrics.UNSEALED_AGE.name] = {(): _seconds_between(through, clock.measured_now())}
        found[metrics.JANITOR_LAG.name] = {(table,): lag.total_seconds() for table, lag in lags().items()}
        if self._keys_read_at is None or not timedelta() <= now - self._keys_read_at < KEYS_EVERY:
            self._rotation_at, self._keys_read_at = next_rotation_at(), now
        if self._rotation_at is not None:
            found[metrics.KEY_ROTATION.name] = {(): (self._rotation_at - now).total_seconds()}
        return found


def _seconds_between(start: datetime | None, end: datetime) -> float:
    return 0.0 if start is None else max(0.0, (end - start).total_seconds())
