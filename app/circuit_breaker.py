"""Circuit breaker: a database that does not answer fails requests at once, and never takes every thread of a process.

It opens when the database has answered nothing in this process for half a second, and then no new connection for
1.5 seconds either. One dead connection, a node that failed over, a restart, a lock or a slow statement therefore do not
open it. While it is open, a thread of the process tries a new connection again and again; the first answer closes it.

Threads that were already waiting are not interrupted: their statement may still succeed, until
``GATEHOUSE_DATABASE_TIMEOUT`` is over. Because only some threads may use the database at the same time, the server's
others remain free for requests that need no database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType

from app.database_errors import DATABASE_ERRORS
from app.rules.errors import Unavailable

# A serving process asks the database for changes every 0.4 seconds, so a longer silence is suspicious.
SILENCE_SECONDS = 0.5
# How long no new connection may be answered. SILENCE_SECONDS have passed before. An overloaded machine needs a second.
PATIENCE_SECONDS = 1.5
# A connection that fails sooner was refused.
_REFUSAL_SECONDS = 0.4
# A server that refuses connections keeps no thread waiting, and may be back in a moment: requests that it has failed
# try again for so long.
REFUSED_SECONDS = 2.5
_CHECK_SECONDS = 0.1
# While no slot is free: if no request has finished for so long, a later one need not wait either.
_STALL_SECONDS = 1.0
_MAX_WAIT_SECONDS = 2.0
_log = logging.getLogger("gatehouse.database")


class CircuitBreaker:
    """State of one database in one process, and a context manager around each use of it.

    Entering it takes one of the slots, and raises Unavailable while the breaker is open or no slot becomes free.
    ``is_reachable`` opens a new connection and returns whether the server answered.
    """

    def __init__(self, slots: int, is_reachable: Callable[[], bool]) -> None:
        self._is_reachable = is_reachable
        self._count, self._free = slots, SimpleQueue[None]()
        for _ in range(slots):
            self._free.put(None)
        self._answered_at = self._reached_at = self._returned_at = time.monotonic()
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
        if self._free.qsize() == self._count:
            self._returned_at = time.monotonic()
        try:
            self._free.get_nowait()
        except Empty:
            self._wait_for_slot()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, (Unavailable, *DATABASE_ERRORS)):
            self._returned_at = time.monotonic()
        self._free.put(None)

    def watch(self) -> None:
        """Open and close the breaker, for ever."""
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
        if self.is_open and not self._is_logged:
            self._is_logged = True
            _log.warning("the database does not answer: requests that need it get 503")

    def _close(self) -> None:
        self._unreachable_since, self._patience = None, PATIENCE_SECONDS
        if self._is_logged:
            self._is_logged = False
            _log.warning("the database answers again")

    def _wait_for_slot(self) -> None:
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while True:
            tick = time.monotonic()
            if self.is_open or tick > deadline or tick - self._returned_at > _STALL_SECONDS:
                raise Unavailable
            try:
                self._free.get(timeout=_CHECK_SECONDS)
            except Empty:
                continue
            return
