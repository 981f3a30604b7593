"""Queue of rejected requests and samples of successful ones, which a background thread writes to the log."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from uuid import UUID

from flask import Flask

from app.config import application
from app.operations.audit.failed_requests import LoggedRequest, RejectedRequest, store_rejected_requests
from app.operations.audit.sampled_requests import store_samples
from app.rules.actor import Actor

MAX_QUEUED = 1_000
MAX_BATCH = 100
# Anyone who knows a client_id can cause entries, so they are limited per cause and in total.
MAX_PER_CAUSE_PER_HOUR = 100
MAX_PER_ORGANIZATION_PER_HOUR = 1_000
# Samples of successful requests. The first one of a client in an hour is always taken.
MAX_SAMPLES_PER_CLIENT = 5
MAX_SAMPLES_PER_MINUTE = 120
_HOUR_SECONDS = 3600.0
_MINUTE_SECONDS = 60.0
_PAUSE_SECONDS = 0.5
_log = logging.getLogger("gatehouse.failed_requests")


class FailedRequests:
    """The queue of this process. Beyond its limits entries are dropped; the request log has them anyway."""

    def __init__(self) -> None:
        self._waiting: deque[RejectedRequest] = deque(maxlen=MAX_QUEUED)
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._counting_since = time.monotonic()
        self._samples: deque[LoggedRequest] = deque(maxlen=MAX_QUEUED)
        self._sampled: Counter[tuple[str, UUID]] = Counter()
        self._sampled_in_all = 0
        self._sampling_since = self._sampling_hour_since = time.monotonic()
        self._seen: set[tuple[str, UUID]] = set()
        self._something = threading.Event()

    def add(self, refused: RejectedRequest) -> None:
        """Add an entry; the oldest one is dropped when the queue is full. Never fails, never blocks."""
        self._waiting.append(refused)
        self._something.set()

    def add_sample(self, sample: LoggedRequest) -> None:
        """Add a sample of a successful request. Never fails, never blocks."""
        self._samples.append(sample)
        self._something.set()

    def write_waiting(self) -> int:
        """Write all queued entries and return their number. Raises the database's errors."""
        written = 0
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
            written += store_rejected_requests(Actor.system("", "failed requests"), taken)
        while self._samples:
            samples = [self._samples.popleft() for _ in range(min(len(self._samples), MAX_BATCH))]
            written += store_samples(Actor.system("", "requests"), samples)
        return written

    def wait(self) -> None:
        """Block until there is an entry, and a moment longer, so that a burst is written in one transaction."""
        self._something.wait()
        time.sleep(_PAUSE_SECONDS)
        self._something.clear()

    def forget(self) -> None:
        """Clear the queue and the counters."""
        self._waiting.clear()
        self._counts.clear()
        self._samples.clear()
        self._sampled.clear()
        self._seen.clear()
        self._sampled_in_all = 0

    def has_room_for_sample(self, client: tuple[str, UUID]) -> bool:
        """Count one more sample and return whether the client is still below this minute's limits."""
        tick = time.monotonic()
        if tick - self._sampling_since > _MINUTE_SECONDS:
            self._sampled.clear()
            self._sampled_in_all, self._sampling_since = 0, tick
            if tick - self._sampling_hour_since > _HOUR_SECONDS or len(self._seen) > MAX_QUEUED * 20:
                self._seen.clear()
                self._sampling_hour_since = tick
        if self._sampled[client] >= MAX_SAMPLES_PER_CLIENT:
            return False
        if client in self._seen and self._sampled_in_all >= MAX_SAMPLES_PER_MINUTE:
            return False
        self._seen.add(client)
        self._sampled[client] += 1
        self._sampled_in_all += 1
        return True

    def has_room(self, client: tuple[str, UUID], cause: str) -> bool:
        """Count one more entry and return whether the client and cause are still below this hour's limits."""
        tick = time.monotonic()
        if tick - self._counting_since > _HOUR_SECONDS or len(self._counts) > MAX_QUEUED * 20:
            self._counts.clear()
            self._counting_since = tick
        organization_id, client_id = client
        kind, all_of_it = (organization_id, str(client_id), cause), (organization_id,)
        if (
            self._counts[kind] >= MAX_PER_CAUSE_PER_HOUR
            or self._counts[all_of_it] >= MAX_PER_ORGANIZATION_PER_HOUR
        ):
            return False
        self._counts[kind] += 1
        self._counts[all_of_it] += 1
        return True


def register(app: Flask) -> None:
    """Create the application's queue."""
    app.extensions["failed_requests"] = FailedRequests()


def write_for_ever(app: Flask) -> None:
    """Write queued entries until the process ends; the body of a background thread."""
    waiting: FailedRequests = app.extensions["failed_requests"]
    while True:
        waiting.wait()
        with app.app_context():
            try:
                waiting.write_waiting()
            except Exception:  # noqa: BLE001 - these entries are lost, but the thread must continue
                _log.warning("failed requests could not be written", exc_info=True)


def failed_requests() -> FailedRequests:
    """Return the queue of the current application."""
    found: FailedRequests = application().extensions["failed_requests"]
    return found
