"""``each``: one test that checks a whole table reports every row that fails, as a test for each row would."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.support.cases import LIMIT, each


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a table's rows were called with; all rows are checked."""
    monkeypatch.setattr(LIMIT, "rows", None)
    return []


def test_every_row_that_fails_is_reported(seen: list[Any]) -> None:
    @each(("number", "text"), [(1, "a"), (2, "b"), pytest.param(3, "c", id="third"), (4, "d")])
    def check(made: list[Any], number: int, text: str) -> None:
        made.append((number, text))
        if number == 2:
            pytest.fail("two")
        if number == 3:
            raise ValueError("three")

    assert list(inspect.signature(check).parameters) == ["made"], "pytest looks for no fixture of that name"
    with pytest.raises(BaseExceptionGroup) as failed:
        check(made=seen)
    assert failed.value.message == "2 of 4 cases failed:\nnumber=2, text='b'\nthird"
    assert seen == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert [(str(each), each.__notes__) for each in failed.value.exceptions] == [
        ("two", ["case number=2, text='b'"]),
        ("three", ["case third"]),
    ]


def test_single_failure_is_raised_as_it_is() -> None:
    @each("text", ["", "x"], ids=["empty", "long"])
    def check(text: str) -> None:
        with pytest.raises(ValueError, match="x"):
            raise ValueError(text)

    with pytest.raises(AssertionError) as failed:
        check()
    assert failed.value.__notes__ == ["case empty"]


def test_several_tables_multiply(seen: list[Any]) -> None:
    @each("left", "ab")
    @each("right", [1, 2])
    def check(made: list[Any], left: str, right: int) -> None:
        made.append(f"{left}{right}")

    check(made=seen)
    assert seen == ["a1", "a2", "b1", "b2"]


def test_limit_applies_to_rows_that_need_fixtures(seen: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMIT, "rows", 1)

    @each("number", [1, 2])
    def with_fixture(made: list[Any], number: int) -> None:
        made.append(number)

    @each("number", [3, 4])
    def without(number: int) -> None:
        seen.append(number)

    with_fixture(made=seen)
    without()
    assert seen == [1, 3, 4]


def test_empty_table_fails() -> None:
    @each("number", [])
    def check(number: int) -> None:
        raise NotImplementedError

    with pytest.raises(AssertionError, match="without rows"):
        check()
