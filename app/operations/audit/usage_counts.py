"""Counters of an organization and its clients by hour or day, as the API returns them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import func, select

from app.models.audit import UsageCounter
from app.operations.audit.usage import (
    MAX_HOURS_IN_HOURS,
    clients_of,
    read_counters,
    recently_used_clients,
    user_rows,
)
from app.operations.clients.client_records import get_client_record
from app.operations.sign_in.actor_access import enter_organization
from app.operations.store import clock
from app.operations.store.replica import read_figures
from app.operations.store.text_search import SEARCHES
from app.operations.store.transactions import read
from app.operations.store.usage_counters import (
    DAY,
    FAILED,
    HOUR,
    NONE,
    REQUESTS,
    RETENTION,
    SIGN_INS,
    SPANS,
    TOKENS,
    start_of,
)
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.rules.fields import FieldProblem, ValidationErrors
from app.rules.filters import (
    LENGTHS,
    MAX_LENGTH,
    OF_CLIENT,
    Filter,
    Filters,
    choice_filter,
    read_filters,
    time_filter,
)
from app.rules.identifiers import format_client_id, public_id
from app.rules.shapes import Rule

MAX_COUNTS = 10_000
# The database counts the rows, one for each user and hour or day, which takes about a second.
MAX_USER_ROWS = 1_000_000
MAX_HOURLY_DAYS = 31
DEFAULT_DAYS = 7
INTERVALS = (HOUR, DAY)
ACTIVE_USERS = "active_users"
METRICS = (TOKENS, REQUESTS, FAILED, SIGN_INS, ACTIVE_USERS)
DETAIL, CLIENT_ID, CREDENTIAL_ID = "detail", "client_id", "credential_id"
GROUPS = (DETAIL, CLIENT_ID, CREDENTIAL_ID)


def _groups_problem(value: str) -> FieldProblem | None:
    if len(value) <= MAX_LENGTH and _groups(value) <= set(GROUPS):
        return None
    return FieldProblem("not_allowed", f"Enter {', '.join(GROUPS)}, or several of them with commas.")


def _groups(value: str) -> frozenset[str]:
    return frozenset(value.split(","))


FILTERS: Filters = {
    "since": time_filter("At or after this time (RFC 3339), by default seven days before `until`."),
    "until": time_filter("Before this time (RFC 3339), by default now."),
    "interval": choice_filter(INTERVALS, "By default `hour` for up to 48 hours, otherwise `day`."),
    "metric": choice_filter(METRICS, "Only this metric."),
    "client_id": OF_CLIENT,
    "group_by": Filter(
        Rule(_groups_problem, LENGTHS),
        "`detail`, `client_id` or `credential_id`, or several of them with commas.",
        lambda actor, value: _groups(value),
    ),
}


class UsageCount(Struct, frozen=True):
    """One sum. ``detail``, ``client_id`` and ``credential_id`` are None unless it was asked to be grouped by them."""

    start: datetime
    metric: str
    count: int
    detail: str | None = None
    client_id: str | None = None
    credential_id: str | None = None


class Usage(Struct, frozen=True):
    """Sums by hour or day from ``since`` until before ``until``, both at the start of one. Zeros are left out."""

    interval: str
    since: datetime
    until: datetime
    counts: tuple[UsageCount, ...]


@read
def get_usage(actor: Actor, slug: str, filters: Mapping[str, str]) -> Usage:
    """Return the counters of an organization, or of those of its clients that the actor may see, by hour or day.

    ``filters`` are of FILTERS. Raises NotFound, Forbidden, InvalidInput, and TooManyRequests while the organization
    takes all its slots for searches, because active users are counted row by row.
    """
    inside, _ = enter_organization(actor, slug)
    inside.require_for_own("clients:read")
    asked = _parse(inside, filters, clock.now())
    is_for_all = asked.client_id is None and CLIENT_ID not in asked.group_by
    if asked.client_id is not None:
        clients = [get_client_record(inside, asked.client_id).id]
    elif is_for_all:
        clients = clients_of(inside)
    else:
        clients = recently_used_clients(inside)
    counted = [metric for metric in asked.metrics if metric != ACTIVE_USERS]
    rows = read_counters(
        inside,
        clients,
        asked.interval,
        asked.since,
        counted,
        until=asked.until,
        by_detail=DETAIL in asked.group_by,
        by_client=CLIENT_ID in asked.group_by,
        by_subject=CREDENTIAL_ID in asked.group_by,
        limit=MAX_COUNTS + 1,
    )
    if len(rows) > MAX_COUNTS:
        raise _too_many()
    counts = [_to_count(inside.organization_id, row, asked.group_by) for row in rows]
    if ACTIVE_USERS in asked.metrics and NONE in clients:
        counts += _count_active_users(inside, asked)
    counts.sort(key=_order)
    return Usage(asked.interval, asked.since, asked.until, tuple(counts))


class _Asked(Struct, frozen=True):
    interval: str
    since: datetime
    until: datetime
    metrics: tuple[str, ...]
    group_by: frozenset[str]
    client_id: str | None


def _parse(actor: Actor, filters: Mapping[str, str], now: datetime) -> _Asked:
    values = read_filters(actor, FILTERS, filters)
    until = values.get("until", now)
    since = values.get("since", until - timedelta(days=DEFAULT_DAYS))
    chosen = HOUR if until - since <= timedelta(hours=MAX_HOURS_IN_HOURS) else DAY
    interval = values.get("interval", chosen)
    errors = ValidationErrors()
    group_by = values.get("group_by", frozenset())
    if CREDENTIAL_ID in group_by and ("client_id" not in filters or filters.get("metric") != REQUESTS):
        errors.add(
            "group_by", "not_allowed", "Send client_id and metric=requests: only those are counted by secret."
        )
    if since >= until:
        errors.add("since", "out_of_range", "This must be before until.")
    longest = MAX_HOURLY_DAYS if interval == HOUR else RETENTION.days
    if until - since > timedelta(days=longest):
        errors.add("since", "out_of_range", f"Ask for at most {longest} days by {interval}.")
    errors.raise_if_any()
    last = start_of(interval, until - timedelta(microseconds=1))
    return _Asked(
        interval,
        start_of(interval, since),
        last + SPANS[interval],
        (filters["metric"],) if "metric" in filters else METRICS,
        group_by,
        filters.get("client_id"),
    )


def _to_count(organization_id: str, row: Any, group_by: Collection[str]) -> UsageCount:
    return UsageCount(
        start=row.starts_at,
        metric=row.metric,
        count=int(row.total),
        detail=row.detail if DETAIL in group_by else None,
        client_id=format_client_id(organization_id, row.client_id) if CLIENT_ID in group_by else None,
        credential_id=(
            public_id("sec", row.subject_id) if CREDENTIAL_ID in group_by and row.subject_id != NONE else None
        ),
    )


def _order(count: UsageCount) -> tuple[Any, ...]:
    return (
        count.start,
        count.metric,
        *(part or "" for part in (count.detail, count.client_id, count.credential_id)),
    )


def _count_active_users(actor: Actor, asked: _Asked) -> list[UsageCount]:
    rows = user_rows(actor, asked.interval, asked.since, asked.until, UsageCounter.starts_at)
    bounded = rows.limit(MAX_USER_ROWS).subquery()
    # Each user has one row for each hour or day.
    counts = select(bounded.c.starts_at, func.count().label("users")).group_by(bounded.c.starts_at)
    with SEARCHES.take(actor.organization_id):
        found = [UsageCount(row.starts_at, ACTIVE_USERS, int(row.users)) for row in read_figures(counts)]
    if sum(one.count for one in found) == MAX_USER_ROWS:
        raise _too_many()
    return found


def _too_many() -> InvalidInput:
    return InvalidInput(
        "There are too many counts for one response. Ask for a shorter time, for days, or for one metric.",
        field="since",
        code="too_many",
    )
