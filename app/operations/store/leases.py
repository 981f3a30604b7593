"""Leases: elect one process for a job with a compare-and-set on one row.

This is correct on every database engine and cluster: it relies on no lock and no isolation level, only on the number of
changed rows. If a holder dies, another process takes over when its lease expires.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import or_, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.audit import Lease
from app.operations.store import clock
from app.operations.store.transactions import count_changed, transaction


def acquire(name: str, holder: str, seconds: int) -> bool:
    """Return whether ``holder`` now has the lease for this many seconds. A holder may acquire it again."""
    if renew_or_take_over(name, holder, seconds):
        return True
    try:
        return _create(name, holder, seconds)
    except IntegrityError:
        # Another process holds the lease, or created it first.
        return False


@transaction
def renew_or_take_over(name: str, holder: str, seconds: int) -> bool:
    """Extend the holder's own lease or take over an expired one, and return whether that succeeded."""
    now = clock.now()
    changed = count_changed(
        update(Lease)
        .where(Lease.name == name, or_(Lease.holder == holder, Lease.expires_at < now))
        .values(holder=holder, expires_at=now + timedelta(seconds=seconds))
    )
    return changed == 1


@transaction
def renew(name: str, holder: str, seconds: int) -> bool:
    """Extend the lease and return whether ``holder`` still has it.

    Call it in the transaction of each batch, so that no process continues after losing the lease.
    """
    changed = count_changed(
        update(Lease)
        .where(Lease.name == name, Lease.holder == holder)
        .values(expires_at=clock.now() + timedelta(seconds=seconds))
    )
    return changed == 1


@transaction
def release(name: str, holder: str) -> None:
    """Release the lease immediately, if it is the holder's."""
    db.session.execute(
        update(Lease)
        .where(Lease.name == name, Lease.holder == holder)
        .values(expires_at=clock.now() - timedelta(seconds=1))
        .execution_options(synchronize_session=False)
    )


@transaction
def _create(name: str, holder: str, seconds: int) -> bool:
    db.session.add(Lease(name=name, holder=holder, expires_at=clock.now() + timedelta(seconds=seconds)))
    db.session.flush()
    return True
