"""Views kept in this process: each until something of its organization changes, bounded in number and age."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.operations import view_changes
from app.operations.transaction import is_writing

V = TypeVar("V")

# Whatever the stamps say, nothing is kept for longer.
_KEPT_SECONDS = 600.0
_MOST_KEPT = 5_000


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    """A view, the stamp it was read under, and when, in monotonic seconds."""

    value: V
    organization_id: str
    stamp: bytes
    read_at: float


class KeptViews(Generic[V]):
    """Views of one kind by key."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept[V]] = {}

    def get(self, key: Hashable) -> V | None:
        """The view, if there is one that still counts."""
        kept = self._kept.get(key)
        if kept is None or not view_changes.is_current(kept.organization_id, kept.stamp, kept.read_at):
            return None
        return kept.value if time.monotonic() - kept.read_at < _KEPT_SECONDS else None

    def read(self, key: Hashable, organization_id: str, read: Callable[[], V | None]) -> V | None:
        """What ``read`` finds in the database now, kept; None when it finds nothing."""
        # The stamp comes first: what changes during the reading makes the view stale, never the other way round.
        stamp, tick = view_changes.stamp_of(organization_id), time.monotonic()
        value = read()
        if value is None:
            self._kept.pop(key, None)
        elif not is_writing():  # What a unit has not committed yet is nobody else's view.
            self._keep(key, _Kept(value, organization_id, stamp, tick))
        return value

    def clear(self) -> None:
        """Nothing is kept."""
        self._kept.clear()

    def _keep(self, key: Hashable, kept: _Kept[V]) -> None:
        # It is the youngest; past the bound the oldest tenth goes, never all at once.
        self._kept.pop(key, None)
        if len(self._kept) >= _MOST_KEPT:
            for old in list(itertools.islice(self._kept, _MOST_KEPT // 10)):
                self._kept.pop(old, None)
        self._kept[key] = kept
