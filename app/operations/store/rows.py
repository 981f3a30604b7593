"""Rows as operations return them: pages of lists, and records with the columns of a row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, Integer, Select, bindparam, false, func, literal, select, tuple_

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import Base, Uuid
from app.operations.store.transactions import read
from app.rules.errors import InvalidInput, NotFound
from app.rules.identifiers import decode_uuid, encode_uuid

T = TypeVar("T")
R = TypeVar("R", bound=Struct)
U = TypeVar("U")
CursorKey = tuple[str, ...]
DEFAULT_LIMIT = 25
MAX_LIMIT = 100


class PageRequest(Struct, frozen=True):
    """The page of a list that a caller asks for: the rows after the one with the sort key ``after``."""

    limit: int = DEFAULT_LIMIT
    after: CursorKey | None = None

    @property
    def size(self) -> int:
        """Return the number of rows, at most ``MAX_LIMIT``."""
        return min(self.limit, MAX_LIMIT)


class Page(Struct, Generic[T], frozen=True):
    """One page. ``next_cursor_key`` is the sort key of its last item, or None; interfaces sign and encode it."""

    items: tuple[T, ...]
    next_cursor_key: CursorKey | None = None

    def map(self, make: Callable[[T], U]) -> Page[U]:
        """Return the page with what ``make`` returns for each item."""
        return Page(tuple(make(item) for item in self.items), self.next_cursor_key)


class Updated(NamedTuple, Generic[T]):
    """A record after an update, and the names of the fields that changed."""

    record: T
    changed: Sequence[str]


def read_page(
    statement: Select[*tuple[Any, ...]],
    columns: Sequence[Any],
    request: PageRequest,
    *,
    descending: bool = True,
    read_rows: Callable[[Select[Any], UUID | None], Sequence[Any]] | None = None,
) -> Page[Any]:
    """Read a page of rows ordered by the columns.

    The last column is unique; an id is encoded as text in the key. ``read_rows`` executes the statement, whose ids are
    all below the second argument; by default it is executed here. Raises InvalidInput for a cursor of another list.
    """
    after, last = request.after, None
    if after is not None:
        values = zip(_values(columns, after), columns, strict=True)
        last = [literal(value, column.type) for value, column in values]
    statement = _in_order(statement, columns, last, descending=descending).limit(request.size + 1)
    if read_rows is None or after is None:
        rows = db.session.execute(statement).all()
    else:
        rows = read_rows(statement, decode_uuid(after[-1]))
    return _page(rows, columns, request.size)


class PageQuery:
    """A list whose statement is compiled once for each order and each set of conditions.

    ``select_rows`` gets the names of the values that ``read`` is called with, and returns a statement with parameters
    of these names.
    """

    def __init__(self, select_rows: Callable[[frozenset[str]], Select[*tuple[Any, ...]]]) -> None:
        self._select_rows = select_rows
        self._query = functools.cache(self._compile)

    def read(
        self, columns: tuple[Any, ...], request: PageRequest, *, descending: bool = True, **values: Any
    ) -> Page[Any]:
        """Read a page as ``read_page`` does, outside of a transaction without beginning one."""
        query = self._query(frozenset(values), columns, descending, request.after is not None)
        if request.after is not None:
            values |= {f"last_{index}": value for index, value in enumerate(_values(columns, request.after))}
        return _page(query.rows(**values, limit=request.size + 1), columns, request.size)

    def _compile(
        self, given: frozenset[str], columns: tuple[Any, ...], descending: bool, has_last: bool
    ) -> CompiledQuery:
        last = [bindparam(f"last_{index}", type_=column.type) for index, column in enumerate(columns)]
        statement = _in_order(
            self._select_rows(given), columns, last if has_last else None, descending=descending
        )
        return CompiledQuery(statement.limit(bindparam("limit", type_=Integer)))


def _page(rows: Sequence[Any], columns: Sequence[Any], limit: int) -> Page[Any]:
    """Return the page of rows, of which there may be one more than the limit."""
    # A row of one model is the model's object.
    items = tuple(row[0] if len(row) == 1 else row for row in rows[:limit])
    return Page(items, _sort_key(rows[limit - 1], columns) if len(rows) > limit else None)


def _in_order(
    statement: Select[Any], columns: Sequence[Any], last: Sequence[Any] | None, *, descending: bool
) -> Select[Any]:
    """Return the statement in the order of the columns, with only the rows after the one with the values ``last``."""
    statement = statement.order_by(*(column.desc() if descending else column for column in columns))
    if last is None:
        return statement
    here, there = (columns[0], last[0]) if len(columns) == 1 else (tuple_(*columns), tuple_(*last))
    return statement.where(here < there if descending else here > there)


def slice_page(records: Sequence[T], key: str, request: PageRequest) -> Page[T]:
    """Return one page of records that are all at hand; their attribute ``key`` is a unique text.

    Raises InvalidInput if the last record of the previous page is gone.
    """
    start = 0
    if request.after is not None:
        keys = [getattr(record, key) for record in records]
        if request.after[0] not in keys:
            raise InvalidInput(
                "What the cursor refers to was deleted. Start again without a cursor.",
                field="cursor",
                code="invalid_cursor",
            )
        start = keys.index(request.after[0]) + 1
    shown = tuple(records[start : start + request.size])
    has_more = len(records) > start + request.size
    return Page(shown, (getattr(shown[-1], key),) if has_more else None)


def merge_pages(pages: Iterable[Page[T]], request: PageRequest) -> Page[T]:
    """Return one page of the items of several that were read for the request, newest id first, each item once."""
    pages = tuple(pages)
    items: dict[UUID, Any] = {item.id: item for page in pages for item in cast(Any, page.items)}
    newest = sorted(items.values(), key=lambda item: item.id.bytes, reverse=True)
    shown = tuple(newest[: request.size])
    has_more = len(newest) > len(shown) or any(page.next_cursor_key is not None for page in pages)
    return Page(shown, (encode_uuid(shown[-1].id),) if has_more else None)


def get_row(statement: Select[Any], missing: str) -> Any:
    """Return the only row of the statement, as the database has it now. Raises NotFound, saying ``missing``."""
    row = db.session.execute(statement, execution_options={"populate_existing": True}).first()
    if row is None:
        raise NotFound(missing)
    return row[0] if len(row) == 1 else row


def filter_conditions(model: Any, values: Mapping[str, Any]) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of the values of a list's filters, which have the names of the model's columns."""
    for name, value in values.items():
        yield false() if value is None else getattr(model, name) == value


def count_rows(statement: Select[Any], limit: int | None = None) -> int:
    """Count the rows of the statement, at most ``limit``: reading stops there."""
    return int(db.session.scalar(select(func.count()).select_from(statement.limit(limit).subquery())) or 0)


def count_where(*conditions: ColumnElement[bool]) -> int:
    """Count the rows that meet the conditions."""
    return db.session.scalar(select(func.count()).where(*conditions)) or 0


def count_query(statement: Select[Any]) -> CompiledQuery:
    """Return the query of a single number: how many rows the statement has, up to its limit."""
    return CompiledQuery(select(func.count()).select_from(statement.subquery()))


def has_rows(statement: Select[Any]) -> bool:
    """Return whether the statement, which selects a column that is never NULL, has any row."""
    return db.session.scalar(statement.limit(1)) is not None


def iterate_pages(read: Callable[..., Page[T]], *subject: Any, **options: Any) -> Iterator[T]:
    """Yield the items of every page of a list, which ``read`` lists when it is called with these arguments."""
    request: PageRequest | None = PageRequest(MAX_LIMIT)
    while request is not None:
        page = read(*subject, request, **options)
        yield from page.items
        request = PageRequest(MAX_LIMIT, page.next_cursor_key) if page.next_cursor_key else None


def iterate_rows(
    statement: Select[*tuple[Any, ...]],
    column: Any,
    batch: int = 500,
    *,
    after: Any = None,
    read_rows: Callable[[Select[Any]], Sequence[Any]] | None = None,
) -> Iterator[Any]:
    """Yield the rows in the order of a unique column that the statement selects, those after the value ``after``.

    Each batch is read by an operation of its own, so that the caller may write in between. ``read_rows`` executes its
    statement; by default that is done here.
    """
    while True:
        rest = statement if after is None else statement.where(column > after)
        rows = _read_batch(rest.order_by(column).limit(batch), read_rows)
        yield from rows
        if len(rows) < batch:
            return
        after = getattr(rows[-1], column.key)


@read
def _read_batch(
    statement: Select[Any], read_rows: Callable[[Select[Any]], Sequence[Any]] | None
) -> Sequence[Any]:
    return db.session.execute(statement).all() if read_rows is None else read_rows(statement)


def make_record(record: type[R], row: Any, **values: Any) -> R:
    """Return the record with the row's columns of the same names, and ``values`` for other fields."""
    columns = (name for name in record.__struct_fields__ if name not in values)
    return record(**{name: getattr(row, name) for name in columns}, **values)


def _sort_key(row: Any, columns: Sequence[Any]) -> CursorKey:
    source = row[0] if isinstance(row[0], Base) else row
    values = (getattr(source, column.key) for column in columns)
    return tuple(encode_uuid(value) if isinstance(value, UUID) else str(value) for value in values)


def _values(columns: Sequence[Any], key: CursorKey) -> list[Any]:
    values: list[Any] = list(key)
    if len(key) == len(columns) and isinstance(columns[-1].type, Uuid):
        values[-1] = decode_uuid(key[-1])
    if len(key) != len(columns) or values[-1] is None:
        raise InvalidInput("This cursor belongs to another list.", field="cursor", code="invalid_cursor")
    return values
