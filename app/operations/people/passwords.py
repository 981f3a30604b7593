"""Password hashing within bounds: one hash per core at a time, a short queue, and never in a transaction.

Each hash takes 19 MiB and 18 ms. Without the bounds a storm of sign-ins would take every core and every thread of
the process, and the token endpoints would starve (PW-6). Of the queue no organization and no network holds more
than half, so that a storm at one does not keep the people of another out (TN-14).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from app.operations.people.users import password_schemes
from app.rules.errors import InvalidInput, Unavailable
from app.rules.people import foreign_passwords, passwords
from app.rules.people.networks import network_of

LONGEST_WAIT_SECONDS = 2.0
MOST_WAITING = 4
"""Threads that may wait for a place. With the hashing ones they stay below the eight of a process."""


class _Queue:
    """Places of those who hash or wait for it; no holder has more than half of them."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._most_each = max(1, places // 2)
        self._held: Counter[tuple[str, str]] = Counter()
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, holders: Iterable[tuple[str, str]]) -> bool:
        """A place is taken for all the holders, unless none is left for one of them."""
        with self._lock:
            if self._taken >= self.places or any(self._held[one] >= self._most_each for one in holders):
                return False
            self._taken += 1
            self._held.update(holders)
            return True

    def leave(self, holders: Iterable[tuple[str, str]]) -> None:
        """The place is free."""
        with self._lock:
            self._taken -= 1
            self._held.subtract(holders)
            self._held = +self._held


_hashing = threading.BoundedSemaphore(os.cpu_count() or 1)
_queue = _Queue((os.cpu_count() or 1) + MOST_WAITING)


@contextmanager
def _place_to_hash(organization_id: str | None = None, address: str | None = None) -> Iterator[None]:
    holders = [(organization_id, "")] if organization_id else []
    if address:
        # A network's storm is one storm, at however many organizations it knocks: it has one share of the places.
        holders.append(("", network_of(address)))
    queue = _queue
    if not queue.take(holders):
        raise _too_many()
    try:
        if not _hashing.acquire(timeout=LONGEST_WAIT_SECONDS):
            raise _too_many()
        try:
            yield
        finally:
            _hashing.release()
    finally:
        queue.leave(holders)


def _too_many() -> Unavailable:
    return Unavailable(
        "Too many people are signing in at this moment. Try again in a few seconds.", retry_after=3
    )


def verify_password(
    stored_hash: str | None, password: str, *, organization_id: str | None = None, address: str | None = None
) -> tuple[bool, str | None]:
    """(whether it is right, the hash to store from now on when the old one's parameters are outdated).

    Takes as long for nobody's password as for somebody's: where an organization has taken over hashes of other
    systems, a wrong password costs one hash of each kind that it still has, ours and every other, whosever it was.
    ``organization_id`` and ``address`` say whose place in the queue it takes. Raises Unavailable when too many wait,
    or for two seconds. Call it outside of a transaction.
    """
    with _place_to_hash(organization_id, address):
        is_right = passwords.is_password(stored_hash, password)
        if not is_right and len(password) <= passwords.LONGEST:
            _spend_the_rest(organization_id, stored_hash, password)
        renewed = None
        if is_right and stored_hash is not None and passwords.needs_rehash(stored_hash):
            renewed = passwords.hash_password(password)
    return is_right, renewed


def _spend_the_rest(organization_id: str | None, stored_hash: str | None, password: str) -> None:
    """The hashes are made that a wrong password costs in the organization, without the one that was made (EN-1)."""
    schemes = password_schemes(organization_id) if organization_id else ()
    spent = foreign_passwords.scheme_of(stored_hash) if stored_hash else None
    if spent in schemes:
        passwords.is_password(None, password)
    for scheme in schemes:
        if scheme != spent:
            foreign_passwords.is_password(foreign_passwords.dummy(scheme), password)


def new_password_hash(
    settings: Mapping[str, Any],
    password: str,
    *,
    personal: Iterable[str] = (),
    field: str = "password",
    organization_id: str | None = None,
    address: str | None = None,
) -> str:
    """The hash of a new password that the organization's settings accept.

    ``personal`` are names and addresses that it must not consist of; ``organization_id`` and ``address`` say whose
    place in the queue it takes. Raises InvalidInput naming ``field``, and Unavailable as ``verify_password`` does.
    Call it before the transaction that stores the hash.
    """
    errors = passwords.find_password_errors(
        password, settings["authentication"]["password"], personal=personal, field=field
    )
    if errors:
        raise InvalidInput(errors[0].message, errors=errors)
    with _place_to_hash(organization_id, address):
        return passwords.hash_password(password)
