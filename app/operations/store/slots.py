"""Slots of this process for work that keeps a thread for long: each organization leaves room for others (P2)."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack

from app.rules.errors import TooManyRequests


class Slots:
    """So many ``slots``, of which one organization can take ``per_organization``.

    ``refusal`` and ``retry_after``, in seconds, are told to those who get none.
    """

    def __init__(self, slots: int, per_organization: int, refusal: str, *, retry_after: int) -> None:
        self.slots, self.per_organization = slots, per_organization
        self._refusal, self._retry_after = refusal, retry_after
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, organization_id: str) -> ExitStack:
        """Take a slot, which closing the stack frees. Raises TooManyRequests while there is none."""
        with self._lock:
            taken, own = self._taken.total(), self._taken[organization_id]
            # A second one only while half of the slots are free, so that a few organizations cannot hold all.
            if taken >= (self.slots // 2 if own else self.slots) or own >= self.per_organization:
                raise TooManyRequests(self._refusal, retry_after=self._retry_after)
            self._taken[organization_id] += 1
        slot = ExitStack()
        slot.callback(self._free, organization_id)
        return slot

    def count_taken(self) -> int:
        """Return how many are taken now."""
        with self._lock:
            return self._taken.total()

    def _free(self, organization_id: str) -> None:
        with self._lock:
            self._taken[organization_id] -= 1
            if not self._taken[organization_id]:
                del self._taken[organization_id]
