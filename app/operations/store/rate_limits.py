"""Failed attempts: counted in the database, so that limits hold for all workers and survive a restart.

An attempt is written, and committed, before it is counted, and taken back when the password was right: so of a
thousand attempts at once each is judged by a count of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import and_, delete, func, or_, select

from app.extensions import db
from app.models.session import Attempt
from app.operations.store import clock
from app.operations.store.transactions import current_unit_of_work, read, transaction
from app.rules.errors import TooManyRequests
from app.rules.identifiers import new_id
from app.rules.sign_in.lockout import Lockout, networks_of


@dataclass(frozen=True, slots=True)
class Limit:
    """What is counted, and how much of it is let through."""

    bucket: bytes
    lockout: Lockout


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The answer to somebody who wants to try: ``wait`` seconds first, or now, with so many tries left after it.

    ``blocked`` are the limits that ask for the wait; ``surplus`` counts the failures beyond the bound of the
    fullest limit; ``attempts`` are the rows to take back when the try was none.
    """

    wait: int
    attempts_left: int
    surplus: int = 0
    blocked: tuple[Limit, ...] = ()
    attempts: tuple[UUID, ...] = ()


def bucket_key(*parts: str) -> bytes:
    """The digest under which attempts at one thing are counted; the organization is a column of its own."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()


def network_limits(lockout: Lockout, address: str | None, *what: str) -> tuple[Limit, ...]:
    """The limits of ``what`` for each network of the address, the nearest first (``rules.sign_in.lockout``)."""
    return tuple(
        Limit(bucket_key(*what, network), lockout.from_failure(lockout.max_failures * times))
        for network, times in networks_of(address)
    )


def record_attempt(organization_id: str, *limits: Limit) -> AttemptResult:
    """The attempt is counted under each limit, unless one has to wait; those refused do not prolong the wait.

    Call it outside a transaction: the attempt has to be seen by others before it is judged.
    """
    claim = _judge(organization_id, limits, ())
    if claim.retry_after:
        return claim
    ids = _append(organization_id, limits)
    claim = _judge(organization_id, limits, ids)
    if claim.retry_after:
        withdraw_attempts(organization_id, ids)
    return claim


def require_attempt_allowed(organization_id: str, words: str, *limits: Limit) -> AttemptResult:
    """As ``claim_attempt``; raises TooManyRequests with the words where one has to wait."""
    claim = record_attempt(organization_id, *limits)
    if claim.retry_after:
        raise TooManyRequests(words, retry_after=claim.retry_after)
    return claim


@transaction
def withdraw_attempts(organization_id: str, attempts: Iterable[UUID]) -> None:
    """These attempts count no more."""
    db.session.execute(
        delete(Attempt).where(Attempt.organization_id == organization_id, Attempt.id.in_(list(attempts)))
    )


@transaction
def clear_attempts(organization_id: str, bucket: bytes) -> None:
    """The count starts again: whoever knew the password was no attacker."""
    db.session.execute(
        delete(Attempt).where(Attempt.organization_id == organization_id, Attempt.bucket == bucket)
    )


@transaction
def consume_quota(organization_id: str, bucket: bytes, most: int, window: timedelta) -> bool:
    """Whether fewer than ``most`` were counted in the bucket within the window; this one is counted then.

    Part of a unit, so that what was rolled back did not count. Units at the same moment do not see each other: a few
    more than ``most`` may pass, which is why no guess may be judged by it.
    """
    now = clock.now()
    counted = db.session.scalar(
        select(func.count()).where(
            Attempt.organization_id == organization_id, Attempt.bucket == bucket, Attempt.at > now - window
        )
    )
    if (counted or 0) >= most:
        return False
    attempt_id = current_unit_of_work().stable_value(f"attempt {bucket.hex()} {counted}", new_id)
    db.session.add(
        Attempt(
            organization_id=organization_id, id=attempt_id, bucket=bucket, at=now, expires_at=now + window
        )
    )
    return True


@transaction
def _append(organization_id: str, limits: tuple[Limit, ...]) -> tuple[UUID, ...]:
    now = clock.now()
    ids: list[UUID] = [
        current_unit_of_work().stable_value(f"attempt {number}", new_id) for number in range(len(limits))
    ]
    db.session.add_all(
        Attempt(
            organization_id=organization_id,
            id=attempt_id,
            bucket=limit.bucket,
            at=now,
            expires_at=now + limit.lockout.window,
        )
        for attempt_id, limit in zip(ids, limits, strict=True)
    )
    return tuple(ids)


@read
def _judge(organization_id: str, limits: tuple[Limit, ...], own: tuple[UUID, ...]) -> AttemptResult:
    """What the attempts of others say, and their number with one more."""
    now = clock.now()
    found: dict[bytes, tuple[int, datetime]] = {
        bucket: (failures, last)
        for bucket, failures, last in db.session.execute(
            select(Attempt.bucket, func.count(), func.max(Attempt.at))
            .where(
                Attempt.organization_id == organization_id,
                or_(
                    *(
                        and_(Attempt.bucket == limit.bucket, Attempt.at > now - limit.lockout.window)
                        for limit in limits
                    )
                ),
                Attempt.id.not_in(own),
            )
            .group_by(Attempt.bucket)
        )
    }
    waits, left, surplus = {}, [], 0
    for limit in limits:
        failures, last = found.get(limit.bucket, (0, None))
        waits[limit] = limit.lockout.seconds_to_wait(failures, last, now)
        left.append(limit.lockout.attempts_left(failures + 1))
        surplus = max(surplus, failures + 1 - limit.lockout.max_failures)
    blocked = tuple(limit for limit, wait in waits.items() if wait)
    if blocked:
        return AttemptResult(max(waits.values()), 0, surplus, blocked)
    return AttemptResult(0, min(left), surplus, attempts=own)
