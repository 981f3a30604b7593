"""Password hashing within bounds: one hash per core at a time, a short queue, and never in a transaction.

Each hash takes 19 MiB and 18 ms. Without the bounds a storm of sign-ins would take every core and every thread of
the process, and the token endpoints would starve (PW-6).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from app.rules.errors import InvalidInput, Unavailable
from app.rules.people import passwords

LONGEST_WAIT_SECONDS = 2.0
MOST_WAITING = 4
"""Threads that may wait for a place. With the hashing ones they stay below the eight of a process."""

_hashing = threading.BoundedSemaphore(os.cpu_count() or 1)
_queue = threading.BoundedSemaphore((os.cpu_count() or 1) + MOST_WAITING)


@contextmanager
def _place_to_hash() -> Iterator[None]:
    if not _queue.acquire(blocking=False):
        raise _too_many()
    try:
        if not _hashing.acquire(timeout=LONGEST_WAIT_SECONDS):
            raise _too_many()
        try:
            yield
        finally:
            _hashing.release()
    finally:
        _queue.release()


def _too_many() -> Unavailable:
    return Unavailable(
        "Too many people are signing in at this moment. Try again in a few seconds.", retry_after=3
    )


def verify_password(stored_hash: str | None, password: str) -> tuple[bool, str | None]:
    """(whether it is right, the hash to store from now on when the old one's parameters are outdated).

    Takes as long for nobody's password as for somebody's. Raises Unavailable when too many wait, or for two seconds.
    """
    with _place_to_hash():
        is_right = passwords.is_password(stored_hash, password)
        renewed = None
        if is_right and stored_hash is not None and passwords.needs_rehash(stored_hash):
            renewed = passwords.hash_password(password)
    return is_right, renewed


def new_password_hash(
    settings: Mapping[str, Any], password: str, *, personal: Iterable[str] = (), field: str = "password"
) -> str:
    """The hash of a new password that the organization's settings accept.

    ``personal`` are names and addresses that it must not consist of. Raises InvalidInput naming ``field``, and
    Unavailable after waiting two seconds. Call it before the transaction that stores the hash.
    """
    errors = passwords.find_password_errors(
        password, settings["authentication"]["password"], personal=personal, field=field
    )
    if errors:
        raise InvalidInput(errors[0].message, errors=errors)
    with _place_to_hash():
        return passwords.hash_password(password)
