"""Tables of cases that one test checks in a loop, because a test for each would cost more than the case itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

Row = tuple[str, dict[str, Any]]


@dataclass
class Limit:
    """How many rows the current test checks; None is all. ``conftest`` sets it before each test."""

    rows: int | None = None


LIMIT = Limit()


def each(
    columns: str | Sequence[str], rows: Iterable[Any], *, ids: Iterable[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Check every row of a table in one test, and report all rows that fail.

    The arguments are those of ``pytest.mark.parametrize``, and several tables multiply as there. Fixtures are made
    once: parametrize a test whose rows change what the next ones find.
    """
    names = [name.strip() for name in columns.split(",")] if isinstance(columns, str) else list(columns)
    listed = list(rows)
    titles = list(ids) if ids is not None else [None] * len(listed)
    table = [_read_row(names, row, title) for row, title in zip(listed, titles, strict=True)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner: list[Row] = getattr(test, "table", [("", {})])
        product = [
            (", ".join(filter(None, (title, other))), values | others)
            for title, values in table
            for other, others in inner
        ]
        return _make_check(getattr(test, "check_row", test), product)

    return decorate


def _make_check(check_row: Callable[..., None], table: list[Row]) -> Callable[..., None]:
    signature = inspect.signature(check_row)
    given = set(table[0][1]) if table else set()
    assert given <= set(signature.parameters), f"{check_row.__name__} does not take {given}"
    fixtures = [parameter for name, parameter in signature.parameters.items() if name not in given]

    @functools.wraps(check_row)
    def check(*args: Any, **made: Any) -> None:
        assert table, "a table without rows checks nothing"
        failures: list[BaseException] = []
        failed: list[str] = []
        # Rows that need no fixtures take no time.
        for title, values in table[: LIMIT.rows if fixtures else None]:
            try:
                check_row(*args, **made, **values)
            # The second is what pytest.raises and pytest.fail raise, which is no Exception.
            except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - raised again below
                failure.add_note(f"case {title}")
                failures.append(failure)
                failed.append(title)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            # pytest shows failures of one kind once, so all rows are named here.
            listed = "\n".join([f"{len(failures)} of {len(table)} cases failed:", *failed])
            raise BaseExceptionGroup(listed, failures)

    check.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
    check.table, check.check_row = table, check_row  # type: ignore[attr-defined]
    return check


def _read_row(names: list[str], row: Any, title: str | None) -> Row:
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "a row cannot have marks: parametrize the test"
        title, row = row.id, row.values
    elif len(names) == 1:
        row = (row,)
    values = dict(zip(names, row, strict=True))
    return title or ", ".join(f"{name}={value!r:.100}" for name, value in values.items()), values
