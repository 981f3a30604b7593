"""Differences between two documents."""

from __future__ import annotations

from typing import Any

from app.rules.audit.events import FieldChange, diff_documents
from tests.support.cases import each

CASES = [
    (None, None, []),
    ({"a": 1}, {"a": 1}, []),
    ({"a": 1}, {"a": 2}, [FieldChange("a", 1, 2, False, False)]),
    ({"a": 1}, {"a": True}, [FieldChange("a", 1, True, False, False)]),
    (None, {"a": None}, [FieldChange("a", None, None, True, False)]),
    ({"a": 1}, None, [FieldChange("a", 1, None, False, True)]),
    ({"b": {"c": 1, "d": 2}}, {"b": {"c": 3, "d": 2}}, [FieldChange("b.c", 1, 3, False, False)]),
    ({"a": [1]}, {"a": [1, 2]}, [FieldChange("a", [1], [1, 2], False, False)]),
    (
        {"a": {}},
        {"a": {"b": 1}},
        [FieldChange("a", {}, None, False, True), FieldChange("a.b", None, 1, True, False)],
    ),
]


@each(("before", "after", "expected"), CASES)
def test_diff_lists_changed_paths(before: Any, after: Any, expected: list[FieldChange]) -> None:
    assert list(diff_documents(before, after)) == expected
