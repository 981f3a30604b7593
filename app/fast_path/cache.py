"""Caches of one process: bounded, keyed by organization, and optionally valid only until something changes.

Every key begins with the organization's id (TN-9), so that an entry of one organization can never be returned for
another, whatever else the keys hold. Caches of the whole instance are listed with reasons in the architecture tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from app.config import current
from app.extensions import in_transaction
from app.fast_path.cache_invalidation import CacheStamp

K = TypeVar("K")
V = TypeVar("V")

_MAX_ENTRIES = 5_000


def put(entries: dict[K, V], key: K, value: V, *, max_entries: int) -> None:
    """Store the value as the newest entry; when the cache is full, drop the oldest tenth first."""
    entries.pop(key, None)
    if len(entries) >= max_entries:
        for old in list(itertools.islice(entries, max(1, max_entries // 10))):
            entries.pop(old, None)
    entries[key] = value


class BoundedCache(Generic[V]):
    """Values by organization and further key parts; a full cache drops its oldest tenth.

    The database URL is part of each key, because a process may serve several databases in turn, as tests do.
    """

    __slots__ = ("_max_entries", "_values")

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._values: dict[tuple[Hashable, ...], V] = {}

    def __iter__(self) -> Iterator[tuple[Hashable, ...]]:
        return iter(self._values)

    def get(self, organization_id: str, *rest: Hashable) -> V | None:
        """Return the cached value, or None."""
        return self._values.get((organization_id, current().database_url, *rest))

    def put(self, organization_id: str, *rest: Hashable, value: V) -> None:
        """Store the value as the newest entry."""
        key = (organization_id, current().database_url, *rest)
        put(self._values, key, value, max_entries=self._max_entries)

    def remove(self, organization_id: str, *rest: Hashable) -> None:
        """Remove the entry if there is one."""
        self._values.pop((organization_id, current().database_url, *rest), None)

    def clear(self) -> None:
        """Remove every entry."""
        self._values.clear()


class ValidatedCache(Generic[V]):
    """Values of one kind, each valid until something in its organization changes."""

    def __init__(self) -> None:
        self._entries: BoundedCache[tuple[V, CacheStamp]] = BoundedCache(_MAX_ENTRIES)

    def get(self, organization_id: str, *rest: Hashable) -> V | None:
        """Return the cached value if it is still valid, or None."""
        entry = self._entries.get(organization_id, *rest)
        return entry[0] if entry is not None and entry[1].is_current else None

    def load(self, organization_id: str, *rest: Hashable, load: Callable[[], V | None]) -> V | None:
        """Read the value from the database now and cache it; None when there is nothing."""
        # The stamp is taken first, so that a change during the read makes the entry stale instead of going unnoticed.
        stamp = CacheStamp(organization_id)
        value = load()
        if value is None:
            self._entries.remove(organization_id, *rest)
        elif not in_transaction() and "caches" not in current().disabled_fast_paths:
            # A value read in a transaction may be uncommitted. Even a read-only transaction may see the past: on SQLite
            # the state at its first statement, which can be older than the stamp.
            self._entries.put(organization_id, *rest, value=(value, stamp))
        return value

    def clear(self) -> None:
        """Remove every entry."""
        self._entries.clear()
