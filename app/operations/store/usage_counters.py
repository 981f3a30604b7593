"""Counters of what happened, by hour and day, for an organization and for each of its clients.

A request adds to a dict in memory, after its commit, and a background thread writes what was added every few seconds.
So a token costs no statement more. A crash loses what was not written yet; nothing else does: what cannot be written
is kept and written once the database is back, and a batch whose COMMIT got no reply is not counted twice.

Metrics and their details:

- ``tokens``: responses with an access token, by grant type.
- ``requests``: requests of authenticated clients, by endpoint and outcome (``token:succeeded``), and by secret.
- ``failed``: what the log of failed requests takes, by cause, also of clients that could not authenticate.
- ``sign_ins``: sessions started, by the first method.
- ``users``: who started a session or signed in to a client; the subject is the user.
- ``failed_users``: whose requests the log of failed requests has, by cause; the subject is the user.

Hours and days are those of UTC and of the moment of writing, at most ``FLUSH_SECONDS`` after the fact.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.audit import UsageCounter, UsedIdentifier
from app.models.base import Base
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.errors import Unavailable
from app.rules.identifiers import new_id

FLUSH_SECONDS = 5.0
RETENTION = timedelta(days=90)
MAX_FACTS = 20_000
MAX_WAITING = 100_000
BATCH = 500
TOKENS, REQUESTS, FAILED, SIGN_INS, USERS = "tokens", "requests", "failed", "sign_ins", "users"
FAILED_USERS = "failed_users"
HOUR, DAY = "hour", "day"
SPANS = {HOUR: timedelta(hours=1), DAY: timedelta(days=1)}
NONE = UUID(int=0)
"""As a client: the whole organization. As a subject: none."""
# A batch has counters of several.
_NO_ORGANIZATION = ""
# How long a batch is recognized if the reply to its COMMIT was lost.
_BATCH_LIFETIME = timedelta(days=2)
_TABLE = Base.metadata.tables[UsageCounter.__tablename__]
_log = logging.getLogger("gatehouse.usage")

Metrics = tuple[tuple[str, str], ...]
"""Pairs of a metric and its detail."""
ACTIVE_USER: Metrics = ((USERS, ""),)
Fact = tuple[str, Metrics, UUID | None, UUID | None]
"""Organization, metrics, client and subject."""
_Key = tuple[str, UUID, str, str, datetime, str, UUID]


class UsageCounters:
    """The counters of this process that are not written yet."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str, Metrics, int | None, int | None], int] = {}
        self._dropped = 0
        self._lock = threading.Lock()
        # Only the thread that flushes uses the rest.
        self._flushing = threading.Lock()
        self._waiting: dict[_Key, int] = {}
        self._batch: tuple[UUID, list[tuple[_Key, int]]] | None = None

    def add(
        self,
        organization_id: str,
        metrics: Metrics,
        client_id: UUID | None = None,
        subject_id: UUID | None = None,
    ) -> None:
        """Count one fact in each metric. Never fails, never waits for the database."""
        # Hashing a UUID runs Python code, and this runs at every request.
        client = None if client_id is None else client_id.int
        fact = (organization_id, metrics, client, None if subject_id is None else subject_id.int)
        with self._lock:
            if fact in self._facts:
                self._facts[fact] += 1
            elif len(self._facts) < MAX_FACTS:
                self._facts[fact] = 1
            else:
                self._dropped += 1

    def flush(self) -> int:
        """Write what was counted and return the number of rows. Raises Unavailable; nothing is lost then."""
        with self._flushing:
            self._collect()
            written = self._write_batch()
            # Every process locks rows in the same order, so that none waits for another in a circle.
            keys = sorted(self._waiting)
            for first in range(0, len(keys), BATCH):
                counts = [(key, self._waiting.pop(key)) for key in keys[first : first + BATCH]]
                self._batch = (new_id(), counts)
                written += self._write_batch()
            return written

    def forget(self) -> None:
        """Drop what was not written."""
        self._facts, self._waiting, self._batch = {}, {}, None
        self._lock, self._flushing = threading.Lock(), threading.Lock()

    def _write_batch(self) -> int:
        """Write the batch, also one that an earlier attempt may have written. It is kept until the result is known."""
        if self._batch is None:
            return 0
        try:
            _write(*self._batch)
        except IntegrityError:
            # An earlier attempt was committed at this moment: the next one finds its mark.
            raise Unavailable from None
        written, self._batch = len(self._batch[1]), None
        return written

    def _collect(self) -> None:
        """Turn facts into rows, those of this hour and day."""
        if not self._facts:
            return
        with self._lock:
            facts, self._facts = self._facts, {}
            dropped, self._dropped = self._dropped, 0
        now = clock.now()
        for (organization_id, metrics, client, subject), count in facts.items():
            fact = (organization_id, metrics, _to_id(client), _to_id(subject))
            for key in _rows_of(fact, now):
                if key in self._waiting:
                    self._waiting[key] += count
                elif len(self._waiting) < MAX_WAITING:
                    self._waiting[key] = count
                else:
                    dropped += count
        if dropped:
            _log.warning("%d events were not counted: there are too many counters to keep", dropped)


def add_past(facts: Iterable[tuple[datetime, Fact, int]]) -> None:
    """Add facts of earlier times, each with when it happened and how often, for sample data."""
    rows: dict[_Key, int] = defaultdict(int)
    for at, fact, count in facts:
        for key in _rows_of(fact, at):
            rows[key] += count
    keys = sorted(rows)
    for first in range(0, len(keys), BATCH):
        _write(new_id(), [(key, rows[key]) for key in keys[first : first + BATCH]])


counters = UsageCounters()
# Two processes must not write the same counts.
os.register_at_fork(after_in_child=counters.forget)


def start_of(span: str, at: datetime) -> datetime:
    """Return when the hour or day began."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour if span == HOUR else hour.replace(hour=0)


def _to_id(number: int | None) -> UUID | None:
    return None if number is None else UUID(int=number)


def _rows_of(fact: Fact, now: datetime) -> list[_Key]:
    organization_id, metrics, client_id, subject_id = fact
    rows: list[_Key] = []
    for metric, detail in metrics:
        has_subject = metric in {USERS, FAILED_USERS, REQUESTS} and subject_id is not None
        subject = subject_id if has_subject and subject_id is not None else NONE
        for span in SPANS:
            starts_at = start_of(span, now)
            if client_id is not None:
                rows.append((organization_id, client_id, span, metric, starts_at, detail, subject))
            whole = NONE if metric == REQUESTS else subject
            rows.append((organization_id, NONE, span, metric, starts_at, detail, whole))
    return rows


@transaction
def _write(batch_id: UUID, counts: list[tuple[_Key, int]]) -> None:
    """Add the counts to their rows, once: the batch leaves a mark."""
    mark = hashlib.sha256(f"usage counters\0{batch_id}".encode()).digest()
    found = select(UsedIdentifier.attempt).where(
        UsedIdentifier.organization_id == _NO_ORGANIZATION, UsedIdentifier.digest == mark
    )
    if db.session.execute(found).first() is not None:
        return
    until = clock.now() + _BATCH_LIFETIME
    used = {"digest": mark, "attempt": batch_id, "expires_at": until}
    db.session.execute(insert(UsedIdentifier).values(organization_id=_NO_ORGANIZATION, **used))
    columns = [column.name for column in _TABLE.primary_key.columns]
    rows = [{**dict(zip(columns, key, strict=True)), "count": count} for key, count in counts]
    db.session.execute(_upsert(db.session.connection().dialect.name), rows)


def _upsert(dialect: str) -> Any:
    if dialect == "sqlite":
        lite = sqlite.insert(_TABLE)
        added = {"count": _TABLE.c.count + lite.excluded.count}
        return lite.on_conflict_do_update(index_elements=list(_TABLE.primary_key.columns), set_=added)
    statement = mysql.insert(_TABLE)
    return statement.on_duplicate_key_update(count=_TABLE.c.count + statement.inserted.count)
