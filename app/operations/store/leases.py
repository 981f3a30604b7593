"""Leases: elect one process for a job with a compare-and-set on one row.

This is correct on every database engine and cluster: it relies on no lock and no isolation level, only on the number of
changed rows. If a holder dies, another process takes over when its lease expires.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.audit import Lease
from app.operations.store import clock
from app.operations.store.transactions import count_changed, transaction, transaction_part
from app.rules.identifiers import routing_key_bounds

SHARDS = 8
"""Into how many shards of organizations work is divided that several nodes share."""
# By how much a lease may end later than its longest term, before it is taken for one of a clock that was ahead.
_MARGIN = timedelta(minutes=1)
# The holder of a released lease, which can be taken at once even if the database's clock was set back meanwhile.
_RELEASED = ""


class LeaseLost(Exception):
    """Another process has taken over."""


class Shard(Struct, frozen=True):
    """One of the ``SHARDS`` parts of the organizations: a range of their keys."""

    number: int

    @classmethod
    def of(cls, organization_id: str) -> Shard:
        """Return the shard of the organization."""
        parts = range(SHARDS)
        return cls(max(part for part in parts if organization_id >= routing_key_bounds(part, SHARDS)[0]))

    def holds(self, organization_id: Any) -> ColumnElement[bool]:
        """Return the condition that the column's organization is in this shard."""
        low, high = routing_key_bounds(self.number, SHARDS)
        condition: ColumnElement[bool] = organization_id >= low
        return condition if high is None else condition & (organization_id < high)


@contextmanager
def held(name: str, holder: str, seconds: int) -> Iterator[Callable[[], None] | None]:
    """Acquire the lease and release it at the end. Yields None if another process has it.

    Else yields what renews it: call that in the transaction of each batch. It raises LeaseLost.
    """
    if not acquire(name, holder, seconds):
        yield None
        return
    try:
        yield partial(_renew_or_raise, name, holder, seconds)
    finally:
        release(name, holder)


def shuffled(shards: Iterable[Shard]) -> list[Shard]:
    """Return the shards in random order, so that nodes that begin at the same time begin with different ones."""
    chosen = list(shards)
    return random.sample(chosen, k=len(chosen))


def acquire(name: str, holder: str, seconds: int, *, longest: int | None = None) -> bool:
    """Return whether ``holder`` now has the lease for this many seconds. A holder may acquire it again.

    ``longest`` is for how many seconds it is renewed at most, if longer.
    """
    if renew_or_take_over(name, holder, seconds, longest=longest):
        return True
    try:
        return _create(name, holder, seconds)
    except IntegrityError:
        # Another process holds the lease, or created it first.
        return False


@transaction
def renew_or_take_over(name: str, holder: str, seconds: int, *, longest: int | None = None) -> bool:
    """Extend the holder's own lease or take over an expired one, and return whether that succeeded.

    One that expires later than any can was written before the database's clock was set back, and is taken over too.
    """
    now = clock.measured_now()
    latest = now + timedelta(seconds=longest or seconds) + _MARGIN
    changed = count_changed(
        update(Lease)
        .where(
            Lease.name == name,
            Lease.holder.in_((holder, _RELEASED)) | ~Lease.expires_at.between(now, latest),
        )
        .values(holder=holder, expires_at=now + timedelta(seconds=seconds))
    )
    return changed == 1


@transaction_part
def renew(name: str, holder: str, seconds: int) -> bool:
    """Extend the lease and return whether ``holder`` still has it.

    Call it in the transaction of each batch, so that no process continues after losing the lease.
    """
    changed = count_changed(
        update(Lease)
        .where(Lease.name == name, Lease.holder == holder)
        .values(expires_at=clock.measured_now() + timedelta(seconds=seconds))
    )
    return changed == 1


@transaction
def release(name: str, holder: str) -> None:
    """Release the lease immediately, if it is the holder's."""
    count_changed(
        update(Lease)
        .where(Lease.name == name, Lease.holder == holder)
        .values(holder=_RELEASED, expires_at=clock.measured_now() - timedelta(seconds=1))
    )


def _renew_or_raise(name: str, holder: str, seconds: int) -> None:
    if not renew(name, holder, seconds):
        raise LeaseLost


@transaction
def _create(name: str, holder: str, seconds: int) -> bool:
    expires_at = clock.measured_now() + timedelta(seconds=seconds)
    db.session.add(Lease(name=name, holder=holder, expires_at=expires_at))
    db.session.flush()
    return True
