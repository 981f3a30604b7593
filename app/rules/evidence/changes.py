"""Changes: the fields in which two states of a thing differ, by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """One field. ``is_new``: it was not there before, which is more than ``null``; ``is_gone``: it is not any more."""

    path: str
    before: Any
    after: Any
    is_new: bool
    is_gone: bool


def changes_between(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[Change, ...]:
    """The fields that differ, sorted by path (``oauth.require_par``); a list is one value."""
    old, new = dict(_leaves(before or {})), dict(_leaves(after or {}))
    return tuple(
        Change(path, old.get(path), new.get(path), path not in old, path not in new)
        for path in sorted(old.keys() | new.keys())
        if path not in old or path not in new or not _is_same(old[path], new[path])
    )


def _leaves(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _is_same(one: Any, other: Any) -> bool:
    # To Python true is 1; in a document it is not.
    return type(one) is type(other) and one == other
