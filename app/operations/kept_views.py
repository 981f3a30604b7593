"""Views kept in this process: each until something of its organization changes, bounded in number and age."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from app.operations.bounded import Kept
from app.operations.store.transactions import is_in_transaction
from app.operations.view_changes import Seen

V = TypeVar("V")

_MOST_KEPT = 5_000


class KeptViews(Generic[V]):
    """Views of one kind by organization and what else tells them apart."""

    def __init__(self) -> None:
        self._kept: Kept[tuple[V, Seen]] = Kept(_MOST_KEPT)

    def get(self, organization_id: str, *rest: Hashable) -> V | None:
        """The view, if there is one that still counts."""
        kept = self._kept.get(organization_id, *rest)
        return kept[0] if kept is not None and kept[1].is_current else None

    def read(self, organization_id: str, *rest: Hashable, read: Callable[[], V | None]) -> V | None:
        """What ``read`` finds in the database now, kept; None when it finds nothing."""
        # The moment comes first: what changes during the reading makes the view stale, never the other way round.
        seen = Seen(organization_id)
        value = read()
        if value is None:
            self._kept.forget(organization_id, *rest)
        elif not is_in_transaction():
            # What a unit has not committed yet is nobody else's view, and one that only reads may look at the past:
            # on SQLite at that of its first statement, before the change that this moment knows of.
            self._kept.put(organization_id, *rest, value=(value, seen))
        return value

    def clear(self) -> None:
        """Nothing is kept."""
        self._kept.clear()
