"""Dispatcher: the threads of a worker that deliver outbox messages.

One thread looks for the next message while the others deliver, so that polling costs one query every few seconds,
however many threads there are. A receiver has only one delivery of this worker at a time, and no organization uses all
threads. External servers never use all threads either, so that email need not wait for them (P2).

Whoever looks skips the messages of receivers that are busy, which may be hundreds of thousands. After each delivery to
such a receiver its next message is found immediately. The thread that waits beside it would find nothing again, and
does not search.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from msgspec import Struct

from app.fast_path.cache_invalidation import is_lead
from app.operations.store import outbox
from app.operations.store.outbox import Message

THREADS = 3
MAX_THREADS_PER_ORGANIZATION = 2
# Messages of other machines and retries are found after this time at the latest.
POLL_INTERVAL_SECONDS = 4.0


class _Search(Struct, frozen=True):
    """A search for due messages and what it skips.

    ``busy`` are the receivers, with their organization, that have a delivery under way, and ``full`` the organizations
    that have as many as they may. ``skips_external`` leaves the last thread to email. ``commits`` is the number of
    messages that this process had committed before.
    """

    commits: int
    busy: frozenset[tuple[str, str]]
    full: frozenset[str]
    skips_external: bool

    def finds_no_more_than(self, other: _Search) -> bool:
        """Return whether it skips what the other one skipped, and this process committed nothing in between."""
        return (
            self.commits == other.commits
            and self.busy >= other.busy
            and self.full >= other.full
            and self.skips_external >= other.skips_external
        )


class Dispatcher:
    """State shared by the threads. Each thread calls ``deliver_next`` repeatedly."""

    def __init__(self) -> None:
        self._poll_lock = threading.Lock()
        self._lock = threading.Lock()
        self._receivers: set[tuple[str, str]] = set()
        self._organizations: Counter[str] = Counter()
        self._external = 0
        self._fruitless: _Search | None = None
        self._fruitless_until = 0.0

    def deliver_next(self) -> bool:
        """Deliver one message and return True, or wait for a while and return False if none is due."""
        with self._poll_lock:
            outbox.messages_available.clear()
            message = self._claim()
            if message is None:
                # Spread the polling of machines that started together. One worker of each is enough.
                interval = POLL_INTERVAL_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311 - jitter is no secret
                while not outbox.messages_available.wait(interval):
                    if is_lead():
                        # What other machines committed and what became due is found by each poll.
                        self._fruitless = None
                        break
                return False
        try:
            outbox.deliver(message)
        finally:
            self._release(message)
        return True

    def _claim(self) -> Message | None:
        with self._lock:
            search = _Search(
                outbox.messages_available.commits,
                frozenset(self._receivers),
                frozenset(
                    name for name, busy in self._organizations.items() if busy >= MAX_THREADS_PER_ORGANIZATION
                ),
                self._external >= THREADS - 1,
            )
        is_recent = time.monotonic() < self._fruitless_until
        if is_recent and self._fruitless is not None and search.finds_no_more_than(self._fruitless):
            return None
        message = outbox.claim_due_message(
            busy_receivers=search.busy,
            full_organizations=search.full,
            skip_external_servers=search.skips_external,
        )
        if message is None:
            self._fruitless = search
            self._fruitless_until = time.monotonic() + POLL_INTERVAL_SECONDS
        else:
            with self._lock:
                self._external += outbox.is_for_external_server(message)
                self._receivers.add((message.organization_id, message.receiver))
                self._organizations[message.organization_id] += 1
        return message

    def _release(self, message: Message) -> None:
        with self._lock:
            self._external -= outbox.is_for_external_server(message)
            self._receivers.discard((message.organization_id, message.receiver))
            self._organizations[message.organization_id] -= 1
            if not self._organizations[message.organization_id]:
                del self._organizations[message.organization_id]
        # Another message may have waited for this slot.
        outbox.messages_available.set()
