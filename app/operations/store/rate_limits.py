"""Rate limits, counted in the database so that they hold for all workers and survive a restart.

An attempt is written and committed before it is counted, and withdrawn if the password was right. Of a thousand
concurrent attempts, each is therefore checked against a count that includes the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from uuid import UUID

from msgspec import Struct
from sqlalchemy import and_, bindparam, delete, func, insert, or_, select

from app.fast_path.compiled_query import CompiledQuery, ListQuery, list_parameters, list_values
from app.models.session import Attempt
from app.operations.store import clock
from app.operations.store.transactions import current_unit_of_work, transaction_part
from app.rules.errors import TooManyRequests
from app.rules.identifiers import new_id
from app.rules.sign_in.passwords import Lockout, networks_of


class Limit(Struct, frozen=True):
    """A counter and how many failures it allows."""

    bucket: bytes
    lockout: Lockout


class AttemptResult(Struct, frozen=True):
    """The decision whether an attempt may be made.

    ``retry_after`` is 0, or the seconds to wait first. ``attempts_left`` counts those left after this one, and
    ``next_wait`` is how many seconds have to pass before the next one.
    ``excess_failures`` counts the failures beyond the maximum of the fullest limit, ``exceeded`` are the limits that
    require the wait, and ``attempts`` are the rows to withdraw if the attempt does not count.
    """

    retry_after: int
    attempts_left: int
    next_wait: int = 0
    excess_failures: int = 0
    exceeded: tuple[Limit, ...] = ()
    attempts: tuple[UUID, ...] = ()


def bucket_key(*parts: str) -> bytes:
    """Return the digest under which attempts are counted. The organization is a separate column."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()


def network_limits(lockout: Lockout, ip_address: str | None, *parts: str) -> tuple[Limit, ...]:
    """Return one limit for each network of the IP address, the narrowest first (``rules.sign_in.passwords``)."""
    return tuple(
        Limit(bucket_key(*parts, network), lockout.with_max_failures(lockout.max_failures * times))
        for network, times in networks_of(ip_address)
    )


def record_attempt(organization_id: str, *limits: Limit) -> AttemptResult:
    """Count the attempt under each limit, unless one of them requires a wait. A rejected attempt is not counted.

    Call this outside a transaction: other transactions must see the attempt before it is checked.
    """
    result = _check(organization_id, limits, ())
    if result.retry_after:
        return result
    ids = _append(organization_id, limits)
    result = _check(organization_id, limits, ids)
    if result.retry_after:
        withdraw_attempts(organization_id, ids)
    return result


def require_attempt_allowed(organization_id: str, message: str, *limits: Limit) -> AttemptResult:
    """Record the attempt as ``record_attempt`` does. Raises TooManyRequests with ``message`` if a wait is required."""
    result = record_attempt(organization_id, *limits)
    if result.retry_after:
        raise TooManyRequests(message, retry_after=result.retry_after)
    return result


@transaction_part
def withdraw_attempts(organization_id: str, attempts: Iterable[UUID]) -> None:
    """Delete these attempts, so that they no longer count."""
    ids = list(attempts)
    if ids:
        _DELETE.write_later(ids, organization_id=organization_id)


@transaction_part
def clear_attempts(organization_id: str, *buckets: bytes, attempts: Iterable[UUID] = ()) -> None:
    """Reset the counts of the buckets, because a caller who knew the password was no attacker.

    Other ``attempts`` are withdrawn with them.
    """
    found = _find_query(len(buckets)).rows(organization_id=organization_id, **list_values("bucket", buckets))
    # All at once and by id, as others withdraw theirs: in another order of locks one of two would deadlock.
    withdraw_attempts(organization_id, {*attempts, *(attempt_id for (attempt_id,) in found)})


@transaction_part
def consume_quota(organization_id: str, bucket: bytes, limit: int, window: timedelta) -> bool:
    """Count one use and return True if the bucket has fewer than ``limit`` uses within the window.

    This is part of the current transaction, so a rolled back use does not count. Concurrent transactions do not see
    each other and a few more than ``limit`` may pass. Never use this to limit guesses.
    """
    now = clock.now()
    counted = count_uses(organization_id, bucket, window)
    if counted >= limit:
        return False
    attempt_id = current_unit_of_work().stable_value(f"attempt {bucket.hex()} {counted}", new_id)
    _insert_query(1).write_later(
        organization_id=organization_id, at=now, id_0=attempt_id, bucket_0=bucket, expires_at_0=now + window
    )
    return True


def count_uses(organization_id: str, bucket: bytes, window: timedelta) -> int:
    """Return how many uses of the bucket were counted within the window."""
    since = clock.now() - window
    (counted,) = _COUNT_USES.first(organization_id=organization_id, bucket=bucket, since=since)
    return int(counted)


def _append(organization_id: str, limits: tuple[Limit, ...]) -> tuple[UUID, ...]:
    """Store the attempt under each limit with one statement, which is its own transaction."""
    now = clock.now()
    ids = tuple(new_id() for _ in limits)
    _insert_query(len(limits)).insert(
        organization_id=organization_id,
        at=now,
        **list_values("id", ids),
        **list_values("bucket", [limit.bucket for limit in limits]),
        **list_values("expires_at", [now + limit.lockout.window for limit in limits]),
    )
    return ids


def _check(organization_id: str, limits: tuple[Limit, ...], own_attempts: tuple[UUID, ...]) -> AttemptResult:
    """Check the limits against the attempts of others plus this one."""
    now = clock.now()
    found: dict[bytes, tuple[int, datetime]] = {
        bucket: (failures, last)
        for bucket, failures, last in _count_query(len(limits), len(own_attempts)).rows(
            organization_id=organization_id,
            **list_values("bucket", [limit.bucket for limit in limits]),
            **list_values("since", [now - limit.lockout.window for limit in limits]),
            **list_values("id", own_attempts),
        )
    }
    waits, attempts_left, next_wait, excess = {}, [], 0, 0
    for limit in limits:
        failures, last = found.get(limit.bucket, (0, None))
        waits[limit] = limit.lockout.seconds_to_wait(failures, last, now)
        attempts_left.append(limit.lockout.attempts_left(failures + 1))
        next_wait = max(next_wait, limit.lockout.seconds_to_wait(failures + 1, now, now))
        excess = max(excess, failures + 1 - limit.lockout.max_failures)
    exceeded = tuple(limit for limit, wait in waits.items() if wait)
    if exceeded:
        return AttemptResult(max(waits.values()), 0, excess_failures=excess, exceeded=exceeded)
    return AttemptResult(0, min(attempts_left), next_wait, excess, attempts=own_attempts)


# Statements for a number of limits or attempts. Their parameters are numbered: bucket_0, bucket_1, …


@cache
def _count_query(limits: int, own_attempts: int) -> CompiledQuery:
    buckets, since = (
        list_parameters("bucket", Attempt.bucket, limits),
        list_parameters("since", Attempt.at, limits),
    )
    counted = (
        select(Attempt.bucket, func.count(), func.max(Attempt.at))
        .where(
            _OF_ORGANIZATION,
            or_(
                *(
                    and_(Attempt.bucket == bucket, Attempt.at > start)
                    for bucket, start in zip(buckets, since, strict=True)
                )
            ),
        )
        .group_by(Attempt.bucket)
    )
    if own_attempts:
        counted = counted.where(Attempt.id.not_in(list_parameters("id", Attempt.id, own_attempts)))
    return CompiledQuery(counted)


@cache
def _insert_query(rows: int) -> CompiledQuery:
    columns = {
        name: list_parameters(name, getattr(Attempt, name), rows) for name in ("id", "bucket", "expires_at")
    }
    shared = {
        "organization_id": bindparam("organization_id", type_=Attempt.organization_id.type),
        "at": bindparam("at", type_=Attempt.at.type),
    }
    return CompiledQuery(
        insert(Attempt).values(
            [shared | {name: of_rows[row] for name, of_rows in columns.items()} for row in range(rows)]
        )
    )


@cache
def _find_query(buckets: int) -> CompiledQuery:
    named = Attempt.bucket.in_(list_parameters("bucket", Attempt.bucket, buckets))
    return CompiledQuery(select(Attempt.id).where(_OF_ORGANIZATION, named))


_OF_ORGANIZATION = Attempt.organization_id == bindparam("organization_id")
_DELETE = ListQuery(delete(Attempt).where(_OF_ORGANIZATION), Attempt.id)
_COUNT_USES = CompiledQuery(
    select(func.count()).where(
        _OF_ORGANIZATION,
        Attempt.bucket == bindparam("bucket"),
        Attempt.at > bindparam("since", type_=Attempt.at.type),
    )
)
