"""A page of a list: bounded items, and where the next page begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
CursorKey = tuple[str, ...]

DEFAULT_LIMIT = 25
MOST = 100


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """``next_cursor_key`` is the sort key of the last item, or None on the last page; faces sign and encode it."""

    items: tuple[T, ...]
    next_cursor_key: CursorKey | None = None
