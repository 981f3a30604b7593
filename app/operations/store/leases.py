"""Leases: a job that one process at a time may do, elected by a compare-and-set on one row.

Correct on every engine and cluster: no lock and no isolation level is trusted, only the number of rows changed. A
holder that dies is succeeded when its lease ends.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import or_, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.event import Lease
from app.operations.store import clock
from app.operations.store.transactions import count_changed, transaction


def acquire(name: str, holder: str, seconds: int) -> bool:
    """Whether ``holder`` now has the lease, for so many seconds; again for who has it already."""
    if renew_or_take_over(name, holder, seconds):
        return True
    try:
        return _begin(name, holder, seconds)
    except IntegrityError:
        # It stands and is somebody else's, or another was first to begin it.
        return False


@transaction
def renew_or_take_over(name: str, holder: str, seconds: int) -> bool:
    """Whether the lease was the holder's own or had ended, and now is the holder's."""
    now = clock.now()
    changed = count_changed(
        update(Lease)
        .where(Lease.name == name, or_(Lease.holder == holder, Lease.expires_at < now))
        .values(holder=holder, expires_at=now + timedelta(seconds=seconds))
    )
    return changed == 1


@transaction
def renew(name: str, holder: str, seconds: int) -> bool:
    """Whether the lease is still the holder's own; part of each batch, so that nobody works past losing it."""
    changed = count_changed(
        update(Lease)
        .where(Lease.name == name, Lease.holder == holder)
        .values(expires_at=clock.now() + timedelta(seconds=seconds))
    )
    return changed == 1


@transaction
def release(name: str, holder: str) -> None:
    """The lease, if it is the holder's, is free at once."""
    db.session.execute(
        update(Lease)
        .where(Lease.name == name, Lease.holder == holder)
        .values(expires_at=clock.now() - timedelta(seconds=1))
        .execution_options(synchronize_session=False)
    )


@transaction
def _begin(name: str, holder: str, seconds: int) -> bool:
    db.session.add(Lease(name=name, holder=holder, expires_at=clock.now() + timedelta(seconds=seconds)))
    db.session.flush()
    return True
