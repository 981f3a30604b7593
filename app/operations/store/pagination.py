"""Keyset pagination: bounded pages and the position where the next page begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, literal, tuple_

from app.rules.errors import InvalidInput
from app.rules.identifiers import decode_uuid

T = TypeVar("T")
CursorKey = tuple[str, ...]

DEFAULT_LIMIT = 25
MAX_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page. ``next_cursor_key`` is the sort key of its last item, or None; interfaces sign and encode it."""

    items: tuple[T, ...]
    next_cursor_key: CursorKey | None = None


def paginate(
    statement: Select[Any], columns: Sequence[Any], after: CursorKey | None, *, descending: bool = True
) -> Select[Any]:
    """Order the statement by the columns and continue after the row whose sort key is ``after``.

    The last column is the id, which is encoded as text in the key (``encode_uuid``). Raises InvalidInput for a cursor
    of another list.
    """
    ordered = statement.order_by(*(column.desc() if descending else column for column in columns))
    if after is None:
        return ordered
    row_id = decode_uuid(after[-1]) if len(after) == len(columns) else None
    if row_id is None:
        raise InvalidInput("This cursor belongs to another list.", field="cursor", code="invalid_cursor")
    values = [
        literal(value, column.type) for value, column in zip((*after[:-1], row_id), columns, strict=True)
    ]
    if len(columns) == 1:
        return ordered.where(columns[0] < values[0] if descending else columns[0] > values[0])
    here, last = tuple_(*columns), tuple_(*values)
    return ordered.where(here < last if descending else here > last)
