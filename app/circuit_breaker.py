"""Circuit breaker: a database that does not answer fails requests at once, and never takes every thread of a process.

It opens when the database has answered nothing in this process for half a second, although a thread waits, and then no
new connection for 1.5 seconds either. One dead connection, a node that failed over, a restart, a lock or a slow
statement therefore do not open it. While it is open, a thread of the process tries a new connection again and again;
the first answer closes it.

Threads that wait for a reply are not interrupted: their statement may still succeed, until
``GATEHOUSE_DATABASE_TIMEOUT`` is over. Because only some threads may use the database at the same time, the server's
others remain free for requests that need no database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable
from types import TracebackType

from app.rules.errors import Unavailable

_MAX_HOLDERS = 1_000


class _Waiter:
    __slots__ = ("called", "holders", "is_served")

    def __init__(self, holders: Collection[Hashable]) -> None:
        self.called, self.holders, self.is_served = threading.Event(), holders, False


class Turns:
    """A semaphore that serves in the order of arrival, or one holder after the other.

    Python's semaphores, and connection pools, let a newcomer overtake the threads that wait, some of them until their
    time is over. Turns for a holder, such as an organization, are served after those of all who have waited longer for
    theirs, so that many long turns of one do not keep others waiting.
    """

    def __init__(self, free: int) -> None:
        self.count = self._free = free
        self._waiting: deque[_Waiter] = deque()
        self._lock = threading.Lock()
        self._turns = 0
        # The number of each holder's latest turn, in this order.
        self._latest: dict[Hashable, int] = {}

    def take(self, seconds: float, holders: Collection[Hashable] = ()) -> bool:
        """Wait for a turn. Return False after this many seconds, or after ``dismiss``."""
        with self._lock:
            if self._free:
                self._free -= 1
                self._note_turn(holders)
                return True
            waiter = _Waiter(holders)
            self._waiting.append(waiter)
        if not waiter.called.wait(seconds):
            with self._lock:
                # It may have been called in between.
                if not waiter.called.is_set():
                    self._waiting.remove(waiter)
        return waiter.is_served

    def give_back(self) -> None:
        """End a turn: it is the next thread's."""
        with self._lock:
            if self._waiting:
                # The first of those whose holders' turns are longest ago.
                waiter = min(self._waiting, key=self._latest_turn) if self._latest else self._waiting[0]
                self._waiting.remove(waiter)
                self._note_turn(waiter.holders)
                waiter.is_served = True
                waiter.called.set()
            else:
                self._free += 1

    def dismiss(self) -> None:
        """Let every waiting thread continue without a turn."""
        with self._lock:
            while self._waiting:
                self._waiting.popleft().called.set()

    def _latest_turn(self, waiter: _Waiter) -> int:
        return max((self._latest.get(holder, 0) for holder in waiter.holders), default=0)

    def _note_turn(self, holders: Collection[Hashable]) -> None:
        self._turns += 1
        for holder in holders:
            self._latest.pop(holder, None)
            self._latest[holder] = self._turns
        while len(self._latest) > _MAX_HOLDERS:
            del self._latest[next(iter(self._latest))]

    @property
    def taken(self) -> int:
        """Return how many turns are taken."""
        return self.count - self._free

    @property
    def waiting(self) -> int:
        """Return how many threads wait."""
        return len(self._waiting)


# A busy process gets answers all the time, so a longer silence is suspicious.
SILENCE_SECONDS = 0.5
# How long no new connection may be answered. SILENCE_SECONDS have passed before. An overloaded machine needs a second.
PATIENCE_SECONDS = 1.5
# A connection that fails sooner was refused.
_REFUSAL_SECONDS = 0.4
# A server that refuses connections keeps no thread waiting, and may be back in a moment: requests that it has failed
# try again for so long.
REFUSED_SECONDS = 2.5
_CHECK_SECONDS = 0.1
# How long a request waits for a slot of a database that answers, but too slowly for its load.
_MAX_WAIT_SECONDS = 3.0
_log = logging.getLogger("gatehouse.database")


class CircuitBreaker:
    """State of one database in one process, and a context manager around each use of it.

    Entering it takes one of the slots, and raises Unavailable while the breaker is open or no slot becomes free.
    ``is_reachable`` opens a new connection and returns whether the server answered.
    """

    def __init__(self, slots: int, is_reachable: Callable[[], bool]) -> None:
        self._is_reachable = is_reachable
        self.slots = Turns(slots)
        self._answered_at = self._reached_at = time.monotonic()
        # Since when a new connection has not been answered.
        self._unreachable_since: float | None = None
        self._patience = PATIENCE_SECONDS
        self._is_logged = False

    @property
    def is_open(self) -> bool:
        """Return whether the database does not answer."""
        since = self._unreachable_since
        return since is not None and time.monotonic() - max(since, self._answered_at) > self._patience

    def note_answer(self) -> None:
        """Note that the database has answered a statement just now."""
        self._answered_at = time.monotonic()

    def __enter__(self) -> None:
        if self.is_open:
            raise Unavailable
        if not self.slots.take(_MAX_WAIT_SECONDS):
            raise Unavailable

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.slots.give_back()

    def watch(self) -> None:
        """Check the database until the process ends, and open and close the breaker."""
        pause = threading.Event()
        while True:
            try:
                self.check()
            except Exception:  # noqa: BLE001 - a breaker that nothing watches must not stay open
                self._unreachable_since = None
                _log.warning("whether the database answers could not be checked", exc_info=True)
            pause.wait(_CHECK_SECONDS)

    def check(self) -> None:
        """Try a new connection if the database has been silent; return once that was answered or has failed."""
        tick = time.monotonic()
        if self._unreachable_since is None and not self.slots.taken:
            # Nobody waits for an answer.
            self._reached_at = tick
            return
        if tick - max(self._answered_at, self._reached_at) < SILENCE_SECONDS:
            self._close()
            return
        if self._unreachable_since is None:
            self._unreachable_since = tick
        if self._is_reachable():
            self._reached_at = time.monotonic()
            self._close()
            return
        is_refused = time.monotonic() - tick < _REFUSAL_SECONDS
        self._patience = REFUSED_SECONDS if is_refused else PATIENCE_SECONDS
        if not self.is_open:
            return
        self.slots.dismiss()
        if not self._is_logged:
            self._is_logged = True
            _log.warning("the database does not answer: requests that need it get 503")

    def _close(self) -> None:
        self._unreachable_since, self._patience = None, PATIENCE_SECONDS
        if self._is_logged:
            self._is_logged = False
            _log.warning("the database answers again")
