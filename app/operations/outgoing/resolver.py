"""Names to addresses, with an end: the system's resolver knows no deadline."""

from __future__ import annotations

import queue
import socket
import threading
import time

from app.operations.outgoing.failure import OutgoingFailed

# Look-ups that nobody waits for any more live on until the system gives up on them.
_MOST_LOOKUPS = 16
_lookups = threading.BoundedSemaphore(_MOST_LOOKUPS)


def addresses_of(host: str, port: int, deadline: float) -> list[str]:
    """Every IPv4 and IPv6 address of the host, in the system's order, each once.

    ``deadline`` is a time of the monotonic clock in seconds. Raises OutgoingFailed when there is none by then.
    """
    if not _lookups.acquire(blocking=False):
        raise OutgoingFailed("Too many names are being looked up.")
    answer: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()
    threading.Thread(target=_look_up, args=(host, port, answer), name="look-up", daemon=True).start()
    try:
        found = answer.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        raise OutgoingFailed("The server's name was not found in time.") from None
    if isinstance(found, Exception):
        raise OutgoingFailed("The server's name was not found.") from found
    return found


def _look_up(host: str, port: int, answer: queue.SimpleQueue[list[str] | OSError | UnicodeError]) -> None:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        answer.put(list(dict.fromkeys(str(row[4][0]) for row in rows)))
    except (OSError, UnicodeError) as error:
        answer.put(error)
    finally:
        _lookups.release()
