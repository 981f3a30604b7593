"""How many threads may wait for servers of strangers: a slow one must not keep the service busy (SF-4)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from app.operations.outgoing.failure import OutgoingFailed


class Places:
    """At most so many at a time, and so many for one host. Whoever finds none is refused and does not queue."""

    def __init__(self, *, most: int, most_of_one_host: int) -> None:
        self._most = most
        self._most_of_one_host = most_of_one_host
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, host: str) -> Iterator[None]:
        """A place is held inside. Raises OutgoingFailed when there is none."""
        with self._lock:
            if self._taken.total() >= self._most or self._taken[host] >= self._most_of_one_host:
                raise OutgoingFailed("Too many requests to servers of others are under way.")
            self._taken[host] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[host] -= 1
                if not self._taken[host]:
                    del self._taken[host]
