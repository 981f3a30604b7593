"""Views kept in this process: each until something of its organization changes, bounded in number and age."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from app.operations.bounded import remember
from app.operations.transaction import is_under_way
from app.operations.view_changes import Seen

V = TypeVar("V")

_MOST_KEPT = 5_000


class KeptViews(Generic[V]):
    """Views of one kind by key."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[V, Seen]] = {}

    def get(self, key: Hashable) -> V | None:
        """The view, if there is one that still counts."""
        kept = self._kept.get(key)
        return kept[0] if kept is not None and kept[1].is_current else None

    def read(self, key: Hashable, organization_id: str, read: Callable[[], V | None]) -> V | None:
        """What ``read`` finds in the database now, kept; None when it finds nothing."""
        # The moment comes first: what changes during the reading makes the view stale, never the other way round.
        seen = Seen(organization_id)
        value = read()
        if value is None:
            self._kept.pop(key, None)
        elif not is_under_way():
            # What a unit has not committed yet is nobody else's view, and one that only reads may look at the past:
            # on SQLite at that of its first statement, before the change that this moment knows of.
            remember(self._kept, key, (value, seen), most=_MOST_KEPT)
        return value

    def clear(self) -> None:
        """Nothing is kept."""
        self._kept.clear()
