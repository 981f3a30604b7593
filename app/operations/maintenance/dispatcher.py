"""Dispatcher: the threads of a worker that deliver outbox messages.

One thread looks for the next message while the others deliver, so that polling costs one query every few seconds,
however many threads there are. A receiver has only one delivery of this worker at a time, and no organization uses all
threads. External servers never use all threads either, so that email need not wait for them (P2).
"""

from __future__ import annotations

import random
import threading
from collections import Counter

from app.fast_path.cache_invalidation import is_lead
from app.operations.store import outbox
from app.operations.store.outbox import Message

THREADS = 3
MAX_THREADS_PER_ORGANIZATION = 2
# Messages of other machines and retries are found after this time at the latest.
POLL_INTERVAL_SECONDS = 4.0


class Dispatcher:
    """State shared by the threads. Each thread calls ``deliver_next`` repeatedly."""

    def __init__(self) -> None:
        self._poll_lock = threading.Lock()
        self._lock = threading.Lock()
        self._receivers: set[tuple[str, str]] = set()
        self._organizations: Counter[str] = Counter()
        self._external = 0

    def deliver_next(self) -> bool:
        """Deliver one message and return True, or wait for a while and return False if none is due."""
        with self._poll_lock:
            outbox.messages_available.clear()
            message = self._claim()
            if message is None:
                # Spread the polling of machines that started together. One worker of each is enough.
                interval = POLL_INTERVAL_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311 - jitter is no secret
                while not outbox.messages_available.wait(interval) and not is_lead():
                    pass
                return False
        try:
            outbox.deliver(message)
        finally:
            self._release(message)
        return True

    def _claim(self) -> Message | None:
        with self._lock:
            receivers = set(self._receivers)
            full = {
                name for name, busy in self._organizations.items() if busy >= MAX_THREADS_PER_ORGANIZATION
            }
            no_external_slot = self._external >= THREADS - 1
        message = outbox.claim_due_message(
            busy_receivers=receivers, full_organizations=full, skip_external_servers=no_external_slot
        )
        if message is not None:
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
