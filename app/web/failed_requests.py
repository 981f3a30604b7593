"""Refused requests on their way to the log: taken in at once, written by a thread of their own, never waited for."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from uuid import UUID

from flask import Flask

from app.config import application
from app.operations.audit.failed_requests import RejectedRequest, store_rejected_requests
from app.rules.actor import Actor

MOST_WAITING = 1_000
MOST_AT_ONCE = 100
# What anybody who knows a client_id can have written: so much of one cause, and so much in all.
MOST_OF_A_CAUSE_PER_HOUR = 100
MOST_OF_AN_ORGANIZATION_PER_HOUR = 1_000
_HOUR_SECONDS = 3600.0
_PAUSE_SECONDS = 0.5
_log = logging.getLogger("gatehouse.failed_requests")


class FailedRequests:
    """What waits in this process. Past its bounds a refusal is dropped: the request log has its line anyway."""

    def __init__(self) -> None:
        self._waiting: deque[RejectedRequest] = deque(maxlen=MOST_WAITING)
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._counting_since = time.monotonic()
        self._something = threading.Event()

    def add(self, refused: RejectedRequest) -> None:
        """It waits to be written; what waited longest goes when there is too much. Never fails, never blocks."""
        self._waiting.append(refused)
        self._something.set()

    def write_waiting(self) -> int:
        """What waits is written; returns how many entries. Raises what the database raises."""
        written = 0
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE))]
            written += store_rejected_requests(Actor.system("", "failed requests"), taken)
        return written

    def wait(self) -> None:
        """Something waits to be written, and whatever came with it: a burst is one transaction and not a hundred."""
        self._something.wait()
        time.sleep(_PAUSE_SECONDS)
        self._something.clear()

    def forget(self) -> None:
        """Nothing waits, nothing was counted."""
        self._waiting.clear()
        self._counts.clear()

    def has_room(self, client: tuple[str, UUID], cause: str) -> bool:
        """Whether one more of the client and cause is kept within this hour; it is counted."""
        tick = time.monotonic()
        if tick - self._counting_since > _HOUR_SECONDS or len(self._counts) > MOST_WAITING * 20:
            self._counts.clear()
            self._counting_since = tick
        organization_id, client_id = client
        kind, all_of_it = (organization_id, str(client_id), cause), (organization_id,)
        if (
            self._counts[kind] >= MOST_OF_A_CAUSE_PER_HOUR
            or self._counts[all_of_it] >= MOST_OF_AN_ORGANIZATION_PER_HOUR
        ):
            return False
        self._counts[kind] += 1
        self._counts[all_of_it] += 1
        return True


def register(app: Flask) -> None:
    """Faces have a place to hand refusals to."""
    app.extensions["failed_requests"] = FailedRequests()


def write_for_ever(app: Flask) -> None:
    """What refusals leave is written as it comes; the work of a thread that ends with the process."""
    waiting: FailedRequests = app.extensions["failed_requests"]
    while True:
        waiting.wait()
        with app.app_context():
            try:
                waiting.write_waiting()
            except Exception:  # noqa: BLE001 - what was taken is lost, and the thread must be there for the next
                _log.warning("failed requests could not be kept", exc_info=True)


def failed_requests() -> FailedRequests:
    """The application's own."""
    found: FailedRequests = application().extensions["failed_requests"]
    return found
