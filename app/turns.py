"""A semaphore that serves in the order of arrival.

Python's semaphores, and connection pools, let a newcomer overtake the threads that wait, some of them until their time
is over.
"""

from __future__ import annotations

import threading
from collections import deque


class _Waiter:
    __slots__ = ("called", "is_served")

    def __init__(self) -> None:
        self.called, self.is_served = threading.Event(), False


class Turns:
    """So many turns at once, the next one to whoever has waited for longest."""

    def __init__(self, free: int) -> None:
        self.count = self._free = free
        self._waiting: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    def take(self, seconds: float) -> bool:
        """Wait for a turn. Return whether it came within so many seconds and before ``dismiss``."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            waiter = _Waiter()
            self._waiting.append(waiter)
        if not waiter.called.wait(seconds):
            with self._lock:
                # The call may have come meanwhile.
                if not waiter.called.is_set():
                    self._waiting.remove(waiter)
        return waiter.is_served

    def give_back(self) -> None:
        """End a turn: it is the next thread's."""
        with self._lock:
            if self._waiting:
                waiter = self._waiting.popleft()
                waiter.is_served = True
                waiter.called.set()
            else:
                self._free += 1

    def dismiss(self) -> None:
        """Send every waiting thread away without a turn."""
        with self._lock:
            while self._waiting:
                self._waiting.popleft().called.set()

    @property
    def taken(self) -> int:
        """Return how many turns are taken."""
        return self.count - self._free

    @property
    def waiting(self) -> int:
        """Return how many threads wait."""
        return len(self._waiting)
