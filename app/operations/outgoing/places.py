"""How many threads may wait for servers of strangers: a slow one must not keep the service busy (SF-4)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from app.operations.outgoing.failure import OutgoingFailed


class Places:
    """At most so many at a time, so many for one organization, and so many of it for one host.

    Whoever finds none is refused and does not queue. One organization's servers never hold every place.
    """

    def __init__(self, *, most: int, most_of_one_organization: int, most_of_one_host: int) -> None:
        self._most = most
        self._most_of_one_organization = most_of_one_organization
        self._most_of_one_host = most_of_one_host
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, ...]] = Counter()
        self._in_all = 0

    @contextmanager
    def taken(self, organization_id: str, host: str) -> Iterator[None]:
        """A place is held inside. Raises OutgoingFailed when there is none."""
        held = ((organization_id,), (organization_id, host))
        with self._lock:
            if (
                self._in_all >= self._most
                or self._taken[held[0]] >= self._most_of_one_organization
                or self._taken[held[1]] >= self._most_of_one_host
            ):
                raise OutgoingFailed("Too many requests to servers of others are under way.")
            self._in_all += 1
            self._taken.update(held)
        try:
            yield
        finally:
            with self._lock:
                self._in_all -= 1
                self._taken.subtract(held)
                self._taken = +self._taken
