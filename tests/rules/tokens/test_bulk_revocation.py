"""The body of a bulk revocation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.rules.errors import InvalidInput
from app.rules.identifiers import format_client_id, new_id, public_id
from app.rules.tokens.revocation import revocation_order
from tests.support.cases import each

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
CLIENT = format_client_id("0123abcd", new_id())
USER, GRANT, SESSION = (public_id(prefix, new_id()) for prefix in ("usr", "grt", "ses"))


def errors_of(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as refusal:
        revocation_order(fields, NOW)
    return {error.field: error.code for error in refusal.value.errors}


def test_client_revocation_has_defaults() -> None:
    order = revocation_order({"client_id": CLIENT}, NOW)
    assert (order.kind, order.subject, order.issued_before) == ("client", CLIENT, None)
    assert not order.sessions and not order.dry_run and order.reason is None


@each(
    ("fields", "sessions"),
    [
        ({"user_id": USER}, True),
        ({"user_id": USER, "include_sessions": False}, False),
        ({"session_id": SESSION}, True),
        ({"all": True}, False),
        ({"all": True, "include_sessions": True}, True),
        ({"grant_id": GRANT, "user_id": None}, False),
    ],
)
def test_sessions_default_depends_on_the_subject(fields: dict[str, Any], sessions: bool) -> None:
    assert revocation_order(fields, NOW).sessions is sessions


def test_cutoff_accepts_any_time_zone() -> None:
    order = revocation_order({"all": True, "issued_before": "2026-06-01T13:00:00+02:00"}, NOW)
    assert order.issued_before == NOW - timedelta(hours=1)


@each(
    ("fields", "errors"),
    [
        ({}, {"client_id": "required"}),
        ({"client_id": CLIENT, "all": True}, {"client_id": "too_many", "all": "too_many"}),
        ({"all": False}, {"all": "not_allowed"}),
        ({"client_id": USER}, {"client_id": "invalid_id"}),
        ({"user_id": 5}, {"user_id": "wrong_type"}),
        ({"all": True, "issued_before": "yesterday"}, {"issued_before": "invalid_time"}),
        ({"all": True, "issued_before": "2026-06-01T12:00:00"}, {"issued_before": "invalid_time"}),
        ({"all": True, "issued_before": "0001-01-01T00:00:00+14:00"}, {"issued_before": "invalid_time"}),
        ({"all": True, "issued_before": "2026-06-01T12:00:01Z"}, {"issued_before": "in_the_future"}),
        ({"client_id": CLIENT, "include_sessions": True}, {"include_sessions": "not_allowed"}),
        ({"session_id": SESSION, "include_sessions": False}, {"include_sessions": "not_allowed"}),
        ({"all": True, "include_sessions": "yes"}, {"include_sessions": "wrong_type"}),
        ({"all": True, "reason": "x" * 501}, {"reason": "too_long"}),
        (
            {"client": CLIENT, "dry_run": 1},
            {"client": "unknown_field", "client_id": "required", "dry_run": "wrong_type"},
        ),
    ],
)
def test_every_invalid_field_is_reported(fields: dict[str, Any], errors: dict[str, str]) -> None:
    assert errors_of(**fields) == errors
