"""Filters of lists: what is accepted, how it is read, and what is wrong with the rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.rules.filters import (
    OF_CLIENT,
    OF_USER,
    Filters,
    choice_filter,
    read_filters,
    sort_filter,
    text_filter,
    time_filter,
)
from app.rules.identifiers import format_client_id, new_id, public_id
from tests.support.cases import each

HERE, THERE, ID = "0" * 8, "1" * 8, new_id()
KNOWN: Filters = {
    "status": choice_filter(("active", "disabled"), ""),
    "target": text_filter(""),
    "since": time_filter(""),
    "client_id": OF_CLIENT,
    "user_id": OF_USER,
    "sort": sort_filter("name", "created_at"),
}


def read(**sent: str) -> dict[str, Any]:
    return read_filters(Actor.system(HERE), KNOWN, sent)


@each(
    ("name", "sent", "value"),
    [
        ("status", "active", "active"),
        ("target", "x" * 64, "x" * 64),
        ("since", "2026-11-21T14:02:11Z", datetime(2026, 11, 21, 14, 2, 11, tzinfo=UTC)),
        ("since", "2026-11-21T14:02:11+02:00", datetime(2026, 11, 21, 12, 2, 11, tzinfo=UTC)),
        ("since", "2000-01-01T00:00:00+05:30", datetime(1999, 12, 31, 18, 30, tzinfo=UTC)),
        ("client_id", format_client_id(HERE, ID), ID),
        ("client_id", format_client_id(THERE, ID), None),
        ("user_id", public_id("usr", ID), ID),
        ("sort", "-created_at", ("created_at", True)),
    ],
)
def test_filter_is_read_as_its_value(name: str, sent: str, value: Any) -> None:
    assert read(**{name: sent}) == {"sort": ("name", False), name: value}


@each(
    ("name", "sent", "code"),
    [
        ("colour", "red", "unknown_filter"),
        ("status", "off", "not_allowed"),
        ("target", "x" * 65, "too_long"),
        ("since", "yesterday", "invalid_format"),
        ("since", "2026-11-21", "invalid_format"),
        ("since", "2026-11-21T14:02:11", "invalid_format"),
        ("since", "0001-01-01T00:00:00Z", "invalid_format"),
        ("since", "9999-12-31T23:59:59-23:00", "invalid_format"),
        ("since", f"2026-11-21T14:02:11.{'0' * 60}Z", "invalid_format"),
        ("client_id", public_id("usr", ID), "invalid"),
        ("user_id", format_client_id(HERE, ID), "invalid"),
        ("sort", "created", "not_allowed"),
    ],
)
def test_invalid_filter_is_named(name: str, sent: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(**{name: sent}, **({"status": "no"} if name != "status" else {}))
    assert {(error.field, error.code) for error in refused.value.errors} == {
        (name, code),
        ("status", "not_allowed"),
    }
