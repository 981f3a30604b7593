"""Figures of an organization and its clients: tokens, requests, failures, sign-ins and active users by hour or day.

They come from ``usage_counters``, never from the rows that were counted, and are a few seconds old, large numbers of
active users up to a minute. Hours and days are those of UTC. Who may see only their own clients (``clients:read:own``)
gets the sums of these, without the figures that no client has. Before ``RETENTION`` nothing is known, and what happened
before the installation counted was not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Select, func, select

from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.models.audit import UsageCounter
from app.models.client import DELETED, Client
from app.operations.clients.client_records import get_client_record
from app.operations.clients.credential_rows import CredentialRecord
from app.operations.clients.credentials import list_credentials_of
from app.operations.grants.grant_lists import restrict_to_own_clients
from app.operations.store import clock
from app.operations.store.replica import read_figures
from app.operations.store.transactions import read
from app.operations.store.usage_counters import (
    DAY,
    FAILED,
    HOUR,
    NONE,
    REQUESTS,
    SIGN_INS,
    SPANS,
    TOKENS,
    USERS,
    start_of,
)
from app.rules.actor import Actor
from app.rules.audit.usage import FAMILIES, REFRESH, SERVICE, SIGN_IN, SUCCEEDED
from app.rules.audit.usage import TOKEN_EXCHANGE as EXCHANGE
from app.rules.identifiers import parse_client_id

MAX_HOURS_IN_HOURS = 48
"""A longer period is shown in days."""
MAX_CLIENTS = 500
MAX_USER_ROWS = 50_000
_TRAFFIC = (TOKENS, FAILED, REQUESTS, SIGN_INS)


class Bucket(Struct, frozen=True):
    """The figures of one hour or day. ``sign_ins`` are sessions; for clients, codes and device codes redeemed."""

    start: datetime
    sign_in: int = 0
    refresh: int = 0
    service: int = 0
    exchange: int = 0
    failed: int = 0
    sign_ins: int = 0

    @property
    def tokens(self) -> int:
        """Every token response of any grant."""
        return self.sign_in + self.refresh + self.service + self.exchange


class Totals(Struct, frozen=True):
    """The sums of a period. ``requests`` are those of authenticated clients that succeeded.

    ``active_users`` signed in at least once, None if not known: for single clients. ``has_more_users``: there are more.
    """

    sign_ins: int = 0
    tokens: int = 0
    failed: int = 0
    requests: int = 0
    active_users: int | None = None
    has_more_users: bool = False

    @property
    def error_rate(self) -> float | None:
        """The part of all requests that failed, from 0 to 1, None without requests."""
        return error_rate(self.requests, self.failed)


class CauseCount(Struct, frozen=True):
    """How many requests failed for a cause of ``rules/audit/failed_requests``."""

    cause: str
    count: int


class Traffic(Struct, frozen=True):
    """A period until now. ``interval`` is "hour" or "day", the length of each bucket; the last one is under way.

    ``previous`` are the totals of as long a period, as far into it, immediately before.
    """

    interval: str
    since: datetime
    buckets: tuple[Bucket, ...]
    totals: Totals
    previous: Totals
    causes: tuple[CauseCount, ...]


class ClientTraffic(Struct, frozen=True):
    """The last days of one client, each a bucket."""

    client_id: str
    days: tuple[Bucket, ...]
    totals: Totals
    last_used_at: datetime | None

    @property
    def error_rate(self) -> float | None:
        """The part of its requests that failed, from 0 to 1, None without requests."""
        return self.totals.error_rate


class CredentialHours(Struct, frozen=True):
    """How often a secret authenticated the client in each hour, successful or not.

    Without ``credential_id`` these are the requests without a secret: signed with the client's keys.
    """

    credential_id: str | None
    name: str
    counts: tuple[int, ...]
    failed: int
    last_used_at: datetime | None
    last_used_address: str | None

    @property
    def total(self) -> int:
        """All requests of the period."""
        return sum(self.counts)


class CredentialTraffic(Struct, frozen=True):
    """The hours of a period, and the use of each secret in them: the newest secret first.

    ``secrets`` are all secrets of the client that are listed, used or not.
    """

    hours: tuple[datetime, ...]
    credentials: tuple[CredentialHours, ...]
    secrets: tuple[CredentialRecord, ...]


_past_totals: BoundedCache[Totals] = BoundedCache(1_000)
# Reading this many rows of users takes longer than the rest of a page: they are counted at most once a minute.
_MANY_USER_ROWS = 2_000
_many_users: BoundedCache[tuple[int, bool]] = BoundedCache(1_000)


def error_rate(requests: int, failed: int) -> float | None:
    """Return the part of requests that failed, or None without requests."""
    return failed / (requests + failed) if requests + failed else None


@read
def get_traffic(actor: Actor, *, hours: int, client_id: str | None = None) -> Traffic:
    """Return the figures of the last hours, of one client or of all that the actor may see.

    Up to 48 hours in hours, more in whole days of UTC. Raises NotFound, Forbidden.
    """
    actor.require_for_own("clients:read")
    clients = clients_of(actor) if client_id is None else [get_client_record(actor, client_id).id]
    now = clock.now()
    interval = HOUR if hours <= MAX_HOURS_IN_HOURS else DAY
    starts = _starts(interval, hours if interval == HOUR else -(-hours // 24), now)
    since, length = starts[0], SPANS[interval] * len(starts)
    rows = read_counters(actor, clients, interval, since, _TRAFFIC)
    totals = _sum(rows, of_clients=NONE not in clients)
    # As far into the period before: to the end of the same hour.
    until = start_of(HOUR, now) + SPANS[HOUR] - length
    return Traffic(
        interval=interval,
        since=since,
        buckets=_fill(starts, rows, of_clients=NONE not in clients),
        totals=_with_users(actor, clients, totals, interval, since, now),
        previous=_get_previous_totals(actor, clients, interval, since - length, until),
        causes=_count_causes(rows),
    )


@read
def get_clients_traffic(
    actor: Actor, client_ids: Sequence[str], *, days: int = 7
) -> dict[str, ClientTraffic]:
    """Return the last days of UTC of each of these clients, of those that the actor may see. Raises Forbidden."""
    actor.require_for_own("clients:read")
    parsed = (parse_client_id(client_id) for client_id in client_ids)
    wanted = [one[1] for one in parsed if one is not None and one[0] == actor.organization_id]
    rows = db.session.execute(visible_clients(actor).where(Client.id.in_(wanted))).all() if wanted else []
    starts = _starts(DAY, days, clock.now())
    found = read_counters(
        actor, [row.id for row in rows], DAY, starts[0], (TOKENS, FAILED, REQUESTS), by_client=True
    )
    of_client: dict[UUID, list[Any]] = defaultdict(list)
    for row in found:
        of_client[row.client_id].append(row)
    traffic = {}
    for row in rows:
        own = of_client[row.id]
        traffic[row.id] = (_fill(starts, own), _sum(own, of_clients=True), row.last_used_at)
    shown = {parse_client_id(client_id): client_id for client_id in client_ids}
    return {
        client_id: ClientTraffic(client_id, *traffic[key[1]])
        for key, client_id in shown.items()
        if key is not None and key[1] in traffic
    }


@read
def get_credential_use(actor: Actor, client_id: str) -> CredentialTraffic:
    """Return how often each secret of the client was used in each of the last 48 hours.

    Every request that the secret authenticated counts: at any endpoint, also one that was rejected afterwards, and
    revocations. Secrets are listed if they are active or were used. Raises NotFound, Forbidden.
    """
    client = get_client_record(actor, client_id)
    actor.require("credentials:read", owner_id=client.owner_id)
    listed = list_credentials_of(actor, client)
    starts = _starts(HOUR, MAX_HOURS_IN_HOURS, clock.now())
    place = {start: index for index, start in enumerate(starts)}
    counts: dict[UUID, list[int]] = defaultdict(lambda: [0] * len(starts))
    failed: dict[UUID, int] = defaultdict(int)
    for row in read_counters(actor, [client.id], HOUR, starts[0], (REQUESTS,), by_subject=True):
        if row.starts_at in place:
            counts[row.subject_id][place[row.starts_at]] += int(row.total)
        if not row.detail.endswith(SUCCEEDED):
            failed[row.subject_id] += int(row.total)
    credentials = [
        CredentialHours(
            credential_id=secret.public_id,
            name=secret.name,
            counts=tuple(counts[secret.id]),
            failed=failed[secret.id],
            last_used_at=secret.last_used_at,
            last_used_address=secret.last_used_address,
        )
        for secret in listed
        if secret.is_live or secret.id in counts
    ]
    if NONE in counts:
        unnamed = CredentialHours(None, "", tuple(counts[NONE]), failed[NONE], client.last_used_at, None)
        credentials.append(unnamed)
    return CredentialTraffic(tuple(starts), tuple(credentials), tuple(listed))


def _starts(interval: str, count: int, now: datetime) -> list[datetime]:
    last = start_of(interval, now)
    return [last - SPANS[interval] * back for back in range(count - 1, -1, -1)]


def visible_clients(actor: Actor) -> Select[Any]:
    """Select the clients that the actor may see: id and last use. Raises Forbidden."""
    columns: tuple[Any, ...] = (Client.id, Client.last_used_at)
    statement = select(*columns).where(
        Client.organization_id == actor.organization_id, Client.status != DELETED
    )
    return restrict_to_own_clients(actor, statement, "clients:read")


def clients_of(actor: Actor) -> list[UUID]:
    """Return whose counters add up to what the actor may see."""
    if actor.has_permission("clients:read"):
        return [NONE]
    return recently_used_clients(actor)


def recently_used_clients(actor: Actor) -> list[UUID]:
    """Return the clients that the actor may see and that were used last, at most ``MAX_CLIENTS``."""
    order = (Client.last_used_at.desc(), Client.id.desc())
    return [row.id for row in db.session.execute(visible_clients(actor).order_by(*order).limit(MAX_CLIENTS))]


def read_counters(
    actor: Actor,
    clients: Collection[UUID],
    span: str,
    since: datetime,
    metrics: Collection[str],
    *,
    until: datetime | None = None,
    by_detail: bool = True,
    by_client: bool = False,
    by_subject: bool = False,
    in_total: bool = False,
    limit: int | None = None,
) -> Sequence[Any]:
    """Sum the counters by metric and time, or in total, and by what else is wanted."""
    if not clients or not metrics:
        return []
    by: list[Any] = [UsageCounter.metric, *[UsageCounter.detail] * by_detail]
    by += [] if in_total else [UsageCounter.starts_at]
    by += [UsageCounter.client_id] * by_client + [UsageCounter.subject_id] * by_subject
    statement = (
        select(*by, func.sum(UsageCounter.count).label("total"))
        .where(
            UsageCounter.organization_id == actor.organization_id,
            UsageCounter.client_id.in_(clients),
            UsageCounter.span == span,
            UsageCounter.metric.in_(metrics),
            UsageCounter.starts_at >= since,
        )
        .group_by(*by)
        .limit(limit)
    )
    if until is not None:
        statement = statement.where(UsageCounter.starts_at < until)
    return read_figures(statement)


def _count_causes(rows: Iterable[Any]) -> tuple[CauseCount, ...]:
    causes: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.metric == FAILED:
            causes[row.detail] += int(row.total)
    ordered = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(CauseCount(cause, count) for cause, count in ordered)


def _get_previous_totals(
    actor: Actor, clients: Sequence[UUID], interval: str, since: datetime, until: datetime
) -> Totals:
    """Return the totals of a period that ended a day ago or earlier, whose counters do not change any more."""
    if len(clients) != 1:
        return _read_totals(actor, clients, interval, since, until)
    key = (clients[0], interval, since, until)
    totals = _past_totals.get(actor.organization_id, *key)
    if totals is None:
        totals = _read_totals(actor, clients, interval, since, until)
        _past_totals.put(actor.organization_id, *key, value=totals)
    return totals


def _read_totals(
    actor: Actor, clients: Collection[UUID], interval: str, since: datetime, until: datetime
) -> Totals:
    # Whole days, and the hours of the last one, which may have to end earlier.
    last_day = start_of(DAY, until) if interval == DAY else since
    rows = [*read_counters(actor, clients, HOUR, last_day, _TRAFFIC, until=until, in_total=True)]
    if interval == DAY:
        rows += read_counters(actor, clients, DAY, since, _TRAFFIC, until=last_day, in_total=True)
    totals = _sum(rows, of_clients=NONE not in clients)
    return _with_users(actor, clients, totals, interval, since, until)


def _with_users(
    actor: Actor, clients: Collection[UUID], totals: Totals, interval: str, since: datetime, until: datetime
) -> Totals:
    if NONE not in clients:
        return totals
    users, has_more = _count_users(actor, since, start_of(DAY, until) if interval == DAY else since, until)
    return replace(totals, active_users=users, has_more_users=has_more)


def _count_users(actor: Actor, since: datetime, last_day: datetime, until: datetime) -> tuple[int, bool]:
    """Return how many users signed in, and whether the reading stopped before all were counted.

    The days before the last one are read as a whole. A large number may be a minute old.
    """
    key = (since, last_day, until.replace(second=0, microsecond=0))
    cached = _many_users.get(actor.organization_id, *key)
    if cached is not None:
        return cached
    days = user_rows(actor, DAY, since, last_day, UsageCounter.subject_id)
    hours = user_rows(actor, HOUR, last_day, until, UsageCounter.subject_id)
    read_rows = days.union_all(hours).limit(MAX_USER_ROWS).subquery()
    (users, rows), *_ = read_figures(select(func.count(read_rows.c.subject_id.distinct()), func.count()))
    counted = int(users), int(rows) == MAX_USER_ROWS
    if rows >= _MANY_USER_ROWS:
        _many_users.put(actor.organization_id, *key, value=counted)
    return counted


def user_rows(actor: Actor, span: str, since: datetime, until: datetime, *columns: Any) -> Select[Any]:
    """Select the columns of the counters of users who signed in."""
    return select(*columns).where(
        UsageCounter.organization_id == actor.organization_id,
        UsageCounter.client_id == NONE,
        UsageCounter.span == span,
        UsageCounter.metric == USERS,
        UsageCounter.starts_at >= since,
        UsageCounter.starts_at < until,
    )


def _fill(starts: list[datetime], rows: Iterable[Any], *, of_clients: bool = True) -> tuple[Bucket, ...]:
    figures: dict[datetime, dict[str, int]] = {start: defaultdict(int) for start in starts}
    for row in rows:
        if row.starts_at in figures:
            bucket, total = figures[row.starts_at], int(row.total)
            if row.metric == TOKENS:
                bucket[FAMILIES.get(row.detail, EXCHANGE)] += total
            bucket[row.metric] += total
    return tuple(
        Bucket(
            start=start,
            sign_in=found[SIGN_IN],
            refresh=found[REFRESH],
            service=found[SERVICE],
            exchange=found[EXCHANGE],
            failed=found[FAILED],
            sign_ins=found[SIGN_IN] if of_clients else found[SIGN_INS],
        )
        for start, found in figures.items()
    )


def _sum(rows: Iterable[Any], *, of_clients: bool) -> Totals:
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        total = int(row.total)
        if row.metric != REQUESTS or row.detail.endswith(SUCCEEDED):
            sums[row.metric] += total
        if row.metric == TOKENS and FAMILIES.get(row.detail) == SIGN_IN:
            sums[SIGN_IN] += total
    return Totals(
        sign_ins=sums[SIGN_IN] if of_clients else sums[SIGN_INS],
        tokens=sums[TOKENS],
        failed=sums[FAILED],
        requests=sums[REQUESTS],
    )
