"""Limits on requests per minute, for a client, a network and a whole organization, across all processes and hosts.

Each process counts in memory, so a request costs no statement. Once a second it writes what it counted for whatever
has come near a limit, and reads what others counted. Until then a process knows only its own requests: at most one
second of the others' requests, and a fiftieth of the limit for each process, go through in excess.

The last minute counts by the share of it that lies within 60 seconds, so that a limit holds for any 60 seconds and not
only for those of the clock.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, insert, select, update

from app.extensions import db
from app.models.session import RequestCount
from app.operations.store import clock
from app.operations.store.transactions import count_changed, transaction
from app.rules.errors import TooManyRequests
from app.rules.identifiers import new_id
from app.rules.sign_in.passwords import networks_of

SHARE_EVERY_SECONDS = 1.0
MAX_KEYS = 100_000
_MINUTE = 60
# Below this part of its limit, a process keeps what it counted to itself.
_UNTOLD_PART = 50
_NETWORK = "network"
_LIFETIME = timedelta(minutes=5)
_REFUSALS = {
    "client": "This client sent too many requests. It may send %s in a minute.",
    _NETWORK: "Too many requests came from this network. It may send %s in a minute.",
    "organization": "This organization received too many requests. It may get %s in a minute.",
}
_Key = tuple[str, str, str]
"""Organization, the kind of limit, and whose requests are counted."""


class _Count:
    """Requests of a minute and of the one before, here and in other processes."""

    __slots__ = ("before", "elsewhere", "here", "limit", "minute", "reported")

    def __init__(self, minute: int) -> None:
        self.minute, self.limit = minute, 0
        self.before = self.here = self.elsewhere = self.reported = 0

    def advance(self, minute: int) -> None:
        """Continue with this minute."""
        if minute != self.minute:
            self.before = self.here + self.elsewhere if minute == self.minute + 1 else 0
            self.minute, self.here, self.elsewhere, self.reported = minute, 0, 0, 0

    def seconds_to_wait(self, passed: float) -> int:
        """Return 0 if there is room for one more request ``passed`` seconds into the minute."""
        now = self.here + self.elsewhere
        if now + self.before * (1 - passed / _MINUTE) < self.limit:
            return 0
        if now >= self.limit:
            return ceil(_MINUTE - passed) + 1
        return max(1, ceil(_MINUTE * (1 - (self.limit - now) / self.before) - passed))

    @property
    def is_near_limit(self) -> bool:
        """Return whether other processes should know of it."""
        return self.here >= max(1, self.limit // _UNTOLD_PART)


class _Report(NamedTuple):
    """A count of a process: ``now`` requests in the minute, of which it has reported ``reported`` before."""

    digest: bytes
    counted: _Count
    minute: int
    reported: int
    now: int


class RequestCounts:
    """What this process counted, and knows of others."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start at zero, as another process."""
        self._process_id = new_id()
        self._counts: dict[_Key, _Count] = {}
        self._lock = threading.Lock()

    def take(self, wanted: Iterable[tuple[_Key, int]]) -> tuple[str, int, int] | None:
        """Count a request for each key, or return the kind, limit and seconds to wait of the first without room."""
        minute, passed = divmod(clock.now().timestamp(), _MINUTE)
        found = []
        with self._lock:
            for key, limit in wanted:
                count = self._counts.get(key)
                if count is None:
                    if len(self._counts) >= MAX_KEYS:
                        self._drop_old(int(minute))
                    count = self._counts[key] = _Count(int(minute))
                count.advance(int(minute))
                count.limit = limit
                wait = count.seconds_to_wait(passed)
                if wait:
                    return key[1], limit, wait
                found.append(count)
            for count in found:
                count.here += 1
        return None

    def share(self) -> int:
        """Write what was counted near a limit, read what others counted, and return how many keys that concerned.

        Raises ExceptionGroup if that failed for some organizations, after it was done for all others.
        """
        near: dict[str, list[_Report]] = {}
        with self._lock:
            for key, count in self._counts.items():
                if count.is_near_limit:
                    report = _Report(_digest(key), count, count.minute, count.reported, count.here)
                    near.setdefault(key[0], []).append(report)
        failures = []
        for organization_id, reports in near.items():
            try:
                elsewhere = _exchange(organization_id, self._process_id, reports)
            except Exception as error:  # noqa: BLE001 - one organization must not hide what others did
                failures.append(error)
                continue
            with self._lock:
                for report in reports:
                    if report.counted.minute == report.minute:
                        report.counted.reported = report.now
                        report.counted.elsewhere = elsewhere.get((report.digest, report.minute), 0)
        with self._lock:
            self._drop_old(int(clock.now().timestamp() // _MINUTE))
        if failures:
            raise ExceptionGroup("the counts of some organizations could not be shared", failures)
        return sum(map(len, near.values()))

    def _drop_old(self, minute: int) -> None:
        """Remove keys that were not used in this minute or the last one, and more if there are still too many.

        Anyone can have thousands of networks, so those that sent little go first, and the limits of clients and
        organizations last.
        """
        self._keep(lambda _, count: count.minute >= minute - 1)
        if len(self._counts) < MAX_KEYS:
            return
        keeps: tuple[Callable[[_Key, _Count], bool], ...] = (
            lambda key, count: key[1] != _NETWORK or count.is_near_limit,
            lambda key, _: key[1] != _NETWORK,
            lambda *_: False,
        )
        for keep in keeps:
            self._keep(keep)
            # So much room that the next new keys cost no scan.
            if len(self._counts) <= MAX_KEYS // 2:
                return

    def _keep(self, is_kept: Callable[[_Key, _Count], bool]) -> None:
        self._counts = {key: count for key, count in self._counts.items() if is_kept(key, count)}


counts = RequestCounts()
os.register_at_fork(after_in_child=counts.forget)


def require_request_allowed(
    organization_id: str, limits: Mapping[str, Any], client_id: str | None, ip_address: str | None
) -> None:
    """Count a request of an authenticated client. Raises TooManyRequests if a limit of its organization is reached.

    ``limits`` is that section of the organization's settings. ``client_id`` is None if the request proved nothing, as
    those of public clients: it only counts for its network, so that strangers cannot use up the other limits. A
    rejected request does not count.
    """
    for_client, for_network, for_all = (
        limits["client_requests_per_minute"],
        limits["network_requests_per_minute"],
        limits["organization_requests_per_minute"],
    )
    if for_client is None and for_network is None and for_all is None:
        return
    wanted = []
    if for_client is not None and client_id is not None:
        wanted.append(((organization_id, "client", client_id), for_client))
    if for_network is not None:
        for network, times in _networks(ip_address):
            wanted.append(((organization_id, _NETWORK, network), for_network * times))
    if for_all is not None and client_id is not None:
        wanted.append(((organization_id, "organization", ""), for_all))
    refused = counts.take(wanted)
    if refused is not None:
        kind, limit, wait = refused
        raise TooManyRequests(_REFUSALS[kind] % limit, retry_after=wait).with_cause(
            "request_limit_reached", received=kind, expected=str(limit)
        )


@transaction
def _exchange(organization_id: str, process_id: UUID, reports: list[_Report]) -> dict[tuple[bytes, int], int]:
    """Store this process's counts and return those of all others, by digest and minute."""
    for report in sorted(reports, key=lambda one: one.digest):
        if report.reported == report.now:
            continue
        row: dict[str, Any] = {
            "organization_id": organization_id,
            "bucket": report.digest,
            "starts_at": _start_of(report.minute),
            "process_id": process_id,
        }
        mine = [RequestCount.__table__.c[name] == value for name, value in row.items()]
        # Also if nothing was reported yet, because the answer to the COMMIT of the INSERT may have been lost.
        if not count_changed(update(RequestCount).where(*mine).values(count=report.now)):
            row |= {"count": report.now, "expires_at": row["starts_at"] + _LIFETIME}
            db.session.execute(insert(RequestCount).values(row))
    found = (
        select(RequestCount.bucket, RequestCount.starts_at, func.sum(RequestCount.count))
        .where(
            RequestCount.organization_id == organization_id,
            RequestCount.bucket.in_({report.digest for report in reports}),
            RequestCount.starts_at.in_({_start_of(report.minute) for report in reports}),
            RequestCount.process_id != process_id,
        )
        .group_by(RequestCount.bucket, RequestCount.starts_at)
    )
    return {
        (digest, int(starts_at.timestamp() // _MINUTE)): int(total)
        for digest, starts_at, total in db.session.execute(found)
    }


@lru_cache(maxsize=4096)
def _networks(ip_address: str | None) -> tuple[tuple[str, int], ...]:
    return networks_of(ip_address)


def _start_of(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * _MINUTE, UTC)


def _digest(key: _Key) -> bytes:
    return hashlib.sha256("\0".join(key[1:]).encode("utf-8", "replace")).digest()
