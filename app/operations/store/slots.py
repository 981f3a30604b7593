"""Slots of this process for work that keeps a thread for long: each organization leaves room for others (P2)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from app.rules.errors import DomainError


class Slots:
    """So many ``slots``, of which one organization can take ``per_organization``, and ``per_host`` for one host.

    ``refuse`` returns the error for those who get none: they do not wait.
    """

    def __init__(
        self,
        slots: int,
        per_organization: int,
        refuse: Callable[[], DomainError],
        *,
        per_host: int | None = None,
    ) -> None:
        self.slots, self.per_organization = slots, per_organization
        self._per_host, self._refuse = per_host or per_organization, refuse
        self._taken: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def take(self, organization_id: str, host: str = "") -> ExitStack:
        """Take a slot, which closing the stack frees. Raises what ``refuse`` returns while there is none."""
        key = (organization_id, host)
        with self._lock:
            own = sum(count for (owner, _), count in self._taken.items() if owner == organization_id)
            # A second one only while half of the slots are free, so that a few organizations cannot hold all.
            if (
                self._taken.total() >= (self.slots // 2 if own else self.slots)
                or own >= self.per_organization
                or self._taken[key] >= self._per_host
            ):
                raise self._refuse()
            self._taken[key] += 1
        slot = ExitStack()
        slot.callback(self._free, key)
        return slot

    def count_taken(self) -> int:
        """Return how many are taken now."""
        with self._lock:
            return self._taken.total()

    def _free(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._taken[key] -= 1
            # Without those of which none is taken.
            self._taken = +self._taken
