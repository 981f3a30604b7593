"""What a process remembers is bounded: past the bound the oldest tenth goes, never all at once."""

from __future__ import annotations

import itertools
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def remember(kept: dict[K, V], key: K, value: V, *, most: int) -> None:
    """The value is the youngest of at most ``most``."""
    kept.pop(key, None)
    if len(kept) >= most:
        for old in list(itertools.islice(kept, most // 10)):
            kept.pop(old, None)
    kept[key] = value
