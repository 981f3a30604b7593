"""What a process remembers of organizations: by the organization first, bounded, never forgotten all at once.

Every key begins with the organization's id (TN-9): what is remembered of one can never be met by another, whatever
else the keys hold. What belongs to the instance is a short list with reasons in the architecture tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from app.config import current

K = TypeVar("K")
V = TypeVar("V")


def remember(kept: dict[K, V], key: K, value: V, *, most: int) -> None:
    """The value is the youngest of at most ``most``; past them the oldest tenth goes."""
    kept.pop(key, None)
    if len(kept) >= most:
        for old in list(itertools.islice(kept, max(1, most // 10))):
            kept.pop(old, None)
    kept[key] = value


class Kept(Generic[V]):
    """Values by organization and whatever else tells them apart; past ``most`` the oldest tenth goes.

    The database is part of each key: a process may serve one after another, as tests do.
    """

    __slots__ = ("_most", "_values")

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[tuple[Hashable, ...], V] = {}

    def __iter__(self) -> Iterator[tuple[Hashable, ...]]:
        return iter(self._values)

    def get(self, organization_id: str, *rest: Hashable) -> V | None:
        """What is remembered, or None."""
        return self._values.get((organization_id, current().database_url, *rest))

    def put(self, organization_id: str, *rest: Hashable, value: V) -> None:
        """The value is the youngest of at most ``most``."""
        remember(self._values, (organization_id, current().database_url, *rest), value, most=self._most)

    def forget(self, organization_id: str, *rest: Hashable) -> None:
        """It is not remembered any more."""
        self._values.pop((organization_id, current().database_url, *rest), None)

    def clear(self) -> None:
        """Nothing is remembered."""
        self._values.clear()
