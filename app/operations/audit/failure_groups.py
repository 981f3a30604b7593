"""Recent failed requests of an organization, grouped by cause, and their number.

Both look at no more than the newest MAX_COUNTED entries of the period, through an index that has all they need.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Integer, bindparam, case, func, select

from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.fast_path.compiled_query import CompiledQuery
from app.models.audit import FailedRequest, UsageCounter
from app.models.client import Client
from app.operations.audit.failed_requests import PREFIX, can_read_failed_requests, kept_since
from app.operations.audit.usage import MAX_HOURS_IN_HOURS
from app.operations.grants.grant_lists import restrict_to_own_clients
from app.operations.store import clock
from app.operations.store.replica import read_figures
from app.operations.store.rows import count_query
from app.operations.store.transactions import read
from app.operations.store.usage_counters import DAY, FAILED_USERS, HOUR, NONE, start_of
from app.rules.actor import Actor
from app.rules.audit.failed_requests import CAUSES, Explanation
from app.rules.audit.request_fixes import FIXES
from app.rules.identifiers import format_client_id, parse_client_id, public_id

MAX_COUNTED = 5_000
MAX_BADGE = 99
TREND_BARS = 24
# With MAX_COUNTED entries, where one more makes no difference, groups are read at most this often.
_MANY_SECONDS = 15
_PERIOD = {"organization_id", "since", "limit"}


class FailureGroup(Struct, frozen=True):
    """The failed requests of one cause in a period.

    ``clients`` are ids and names, those with most failures first. ``example_id`` is the public id of the last entry.
    ``trend`` has the counts of TREND_BARS equal parts of the period, the oldest first. ``users`` is the number of users
    whose requests are known to have failed, if it was asked for. ``has_fix``: the page of the entry offers a change
    that would let the request succeed, if the reader may make it.
    """

    cause: str
    count: int
    clients: tuple[tuple[str, str], ...]
    first_at: datetime
    last_at: datetime
    example_id: str
    trend: tuple[int, ...]
    users: int | None = None

    @property
    def explanation(self) -> Explanation:
        """Return the explanation of the cause."""
        return CAUSES.get(self.cause, CAUSES["refused"])

    @property
    def title(self) -> str:
        """Return the cause as a sentence."""
        return self.explanation.what

    @property
    def has_fix(self) -> bool:
        """Return whether a change in the portal can solve the cause."""
        return self.cause in FIXES


@read
def list_failure_groups(
    actor: Actor,
    *,
    client_id: str | None = None,
    cause: str | None = None,
    hours: int = 24,
    limit: int = 5,
    with_users: bool = False,
) -> tuple[FailureGroup, ...]:
    """Return the causes of the failures in the last ``hours``, the most frequent first.

    With ``logs:read:own`` only clients that the actor owns count. An unknown ``client_id`` has no groups.
    Raises Forbidden.
    """
    actor.require_for_own("logs:read")
    now = clock.now()
    since = max(now - timedelta(hours=hours), kept_since(actor, now))
    given: dict[str, Any] = {"organization_id": actor.organization_id, "since": since, "limit": MAX_COUNTED}
    if client_id is not None:
        parsed = parse_client_id(client_id)
        if parsed is None or parsed[0] != actor.organization_id:
            return ()
        given["client_id"] = parsed[1]
    if cause is not None:
        given["cause"] = cause
    if not actor.has_permission("logs:read"):
        # Only users register clients, so a client with ``:own`` sees nothing.
        if actor.user_id is None:
            return ()
        given["user_id"] = actor.user_id
    groups = _read_groups(given, now, hours)[:limit]
    if with_users and groups:
        users = _count_users(actor, since, now, client_id)
        # The counters have whole hours or days, so that they may know of users before the period.
        groups = [replace(group, users=min(users.get(group.cause, 0), group.count)) for group in groups]
    return tuple(groups)


# By what is given besides the organization, the period, and the time when it was read.
_many_failures: BoundedCache[tuple[FailureGroup, ...]] = BoundedCache(1_000)


def _read_groups(given: Mapping[str, Any], now: datetime, hours: int) -> Sequence[FailureGroup]:
    """Return the groups of the period, the most frequent cause first; those of MAX_COUNTED entries may be older."""
    organization_id, since = given["organization_id"], given["since"]
    asked = frozenset((name, value) for name, value in given.items() if name not in _PERIOD)
    key = (asked, hours, int(now.timestamp()) // _MANY_SECONDS)
    cached = _many_failures.get(organization_id, *key)
    if cached is not None:
        return cached
    step = (now - since) / TREND_BARS
    bars = {f"bar_{number}": since + number * step for number in range(1, TREND_BARS)}
    rows = _groups_query(frozenset(given)).rows(**given, **bars)
    groups = [
        _group(organization_id, cause, list(of_cause))
        for cause, of_cause in groupby(rows, key=lambda row: row.cause)
    ]
    groups.sort(key=lambda group: (-group.count, group.cause))
    if sum(group.count for group in groups) >= MAX_COUNTED:
        _many_failures.put(organization_id, *key, value=tuple(groups))
    return groups


@functools.cache
def _groups_query(given: frozenset[str]) -> CompiledQuery:
    """Return the query of failures by cause, client and bar, with the conditions whose values are given."""
    conditions = [
        FailedRequest.organization_id == bindparam("organization_id"),
        FailedRequest.at > bindparam("since", type_=FailedRequest.at.type),
    ]
    if "client_id" in given:
        conditions.append(FailedRequest.client_id == bindparam("client_id"))
    if "cause" in given:
        conditions.append(FailedRequest.cause == bindparam("cause"))
    newest = (
        select(FailedRequest.client_id, FailedRequest.cause, FailedRequest.at, FailedRequest.id)
        .where(*conditions)
        .order_by(FailedRequest.at.desc())
        .limit(bindparam("limit", type_=Integer))
        .subquery()
    )
    # The last bar first: when requests fail by the thousand, most failed just now.
    bar = case(
        *(
            (newest.c.at >= bindparam(f"bar_{number}", type_=FailedRequest.at.type), number)
            for number in range(TREND_BARS - 1, 0, -1)
        ),
        else_=0,
    ).label("bar")
    counted = (
        select(
            newest.c.cause,
            newest.c.client_id,
            bar,
            func.count().label("failures"),
            func.min(newest.c.at).label("first_at"),
            func.max(newest.c.at).label("last_at"),
            func.max(newest.c.id).label("last_id"),
        )
        .group_by(newest.c.cause, newest.c.client_id, bar)
        .subquery()
    )
    clients = (Client.organization_id == bindparam("organization_id")) & (Client.id == counted.c.client_id)
    found = select(counted, Client.name).join(Client, clients).order_by(counted.c.cause)
    if "user_id" in given:
        found = found.where(Client.owner_id == bindparam("user_id"))
    return CompiledQuery(found)


def _count_users(actor: Actor, since: datetime, now: datetime, client_id: str | None) -> dict[str, int]:
    """Return the number of users by cause, from the newest MAX_COUNTED counters of the period."""
    span = HOUR if now - since <= timedelta(hours=MAX_HOURS_IN_HOURS) else DAY
    named = parse_client_id(client_id) if client_id is not None else None
    clients: Any = (NONE,)
    if named is not None:
        # There are groups, so the actor may see it.
        clients = (named[1],)
    elif not actor.has_permission("logs:read"):
        of_organization = select(Client.id).where(Client.organization_id == actor.organization_id)
        clients = restrict_to_own_clients(actor, of_organization, "logs:read")
    newest = (
        select(UsageCounter.detail, UsageCounter.subject_id)
        .where(
            UsageCounter.organization_id == actor.organization_id,
            UsageCounter.client_id.in_(clients),
            UsageCounter.span == span,
            UsageCounter.metric == FAILED_USERS,
            UsageCounter.starts_at >= start_of(span, since),
        )
        .order_by(UsageCounter.starts_at.desc())
        .limit(MAX_COUNTED)
        .subquery()
    )
    counts = select(newest.c.detail, func.count(newest.c.subject_id.distinct())).group_by(newest.c.detail)
    return {cause: int(users) for cause, users in read_figures(counts)}


def count_recent_failures(actor: Actor) -> int:
    """Return how many requests failed in the last 24 hours; MAX_BADGE + 1 means more than MAX_BADGE.

    The count is 0 without ``logs:read``. With ``logs:read:own`` it has only clients that the actor owns.
    """
    if not can_read_failed_requests(actor):
        return 0
    now = clock.now()
    since = max(now - timedelta(days=1), kept_since(actor, now))
    if actor.has_permission("logs:read"):
        return int(
            _COUNT_RECENT.first(organization_id=actor.organization_id, since=since, limit=MAX_BADGE + 1)[0]
        )
    return _count_own_recent(actor, since)


# Every page of the portal counts them.
_COUNT_RECENT = count_query(
    select(FailedRequest.at)
    .where(
        FailedRequest.organization_id == bindparam("organization_id"),
        FailedRequest.at > bindparam("since", type_=FailedRequest.at.type),
    )
    .limit(bindparam("limit", type_=Integer))
)


@read
def _count_own_recent(actor: Actor, since: datetime) -> int:
    newest = (
        select(FailedRequest.client_id)
        .where(FailedRequest.organization_id == actor.organization_id, FailedRequest.at > since)
        .order_by(FailedRequest.at.desc())
        .limit(MAX_COUNTED)
        .subquery()
    )
    by_client = (
        select(newest.c.client_id, func.count().label("failures")).group_by(newest.c.client_id).subquery()
    )
    clients = (Client.organization_id == actor.organization_id) & (Client.id == by_client.c.client_id)
    of_all = select(func.sum(by_client.c.failures)).join(Client, clients)
    total = db.session.scalar(restrict_to_own_clients(actor, of_all, "logs:read"))
    return min(int(total or 0), MAX_BADGE + 1)


def _group(organization_id: str, cause: str, rows: list[Any]) -> FailureGroup:
    trend = [0] * TREND_BARS
    by_client: dict[UUID, int] = {}
    names: dict[UUID, str] = {}
    for row in rows:
        trend[row.bar] += row.failures
        by_client[row.client_id] = by_client.get(row.client_id, 0) + row.failures
        names[row.client_id] = row.name
    ordered = sorted(by_client, key=lambda one: (-by_client[one], names[one]))
    return FailureGroup(
        cause=cause,
        count=sum(trend),
        clients=tuple((format_client_id(organization_id, one), names[one]) for one in ordered),
        first_at=min(row.first_at for row in rows),
        last_at=max(row.last_at for row in rows),
        example_id=public_id(PREFIX, max(row.last_id for row in rows)),
        trend=tuple(trend),
    )
