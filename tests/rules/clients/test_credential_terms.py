"""Terms of a new secret, and the description of an existing one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.rules.clients.credentials import (
    describe_credential_use,
    get_credential_status,
    validate_secret_terms,
)
from app.rules.errors import InvalidInput
from tests.support.cases import each

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@each(
    ("expires", "retiring", "revoked", "status"),
    [
        (None, None, None, "active"),
        (30 * DAY, None, None, "active"),
        (6 * DAY, None, None, "expiring"),
        (30 * DAY, -HOUR, None, "expiring"),
        (timedelta(), None, None, "expired"),
        (-DAY, -2 * DAY, None, "expired"),
        (30 * DAY, None, -HOUR, "revoked"),
        (-DAY, None, -HOUR, "revoked"),
    ],
)
def test_secret_status(expires, retiring, revoked, status):
    moments = [None if span is None else NOW + span for span in (expires, retiring, revoked)]
    found = get_credential_status(
        NOW, expires_at=moments[0], retiring_since=moments[1], revoked_at=moments[2]
    )
    assert found == status


@each(
    ("status", "created", "ended", "used", "addresses", "tokens", "words"),
    [
        ("active", -HOUR, None, None, 0, 0, "Not used yet."),
        ("active", -3 * DAY, None, None, 0, 0, "Never used since it was created 3 days ago. Check again later."),
        ("active", -20 * DAY, None, None, 0, 0, "Never used since it was created 20 days ago. Safe to revoke."),
        ("active", -20 * DAY, None, -3 * MINUTE, 2, 5, "Used 3 minutes ago from 2 IP addresses. Still needed."),
        ("active", -20 * DAY, None, timedelta(), 1, 5, "Used just now from 1 IP address. Still needed."),
        ("expiring", -20 * DAY, None, -3 * HOUR, 0, 0, "Used 3 hours ago. Still needed."),
        ("active", -20 * DAY, None, -5 * DAY, 1, 0, "Last used 5 days ago from 1 IP address. Probably still needed."),
        ("active", -90 * DAY, None, -14 * DAY, 1, 0, "Unused for 14 days. Safe to revoke."),
        ("active", -90 * DAY, None, -30 * DAY, 0, 1, "Unused for 30 days. Still active: 1 token."),
        ("revoked", -90 * DAY, -2 * HOUR, -3 * HOUR, 1, 0, "Revoked 2 hours ago."),
        ("revoked", -DAY, -HOUR, None, 0, 1000, "Revoked 1 hour ago. Still active: 1,000 tokens or more."),
        ("expired", -90 * DAY, -DAY, None, 0, 0, "Expired 1 day ago."),
    ],
)  # fmt: skip
def test_use_description(status, created, ended, used, addresses, tokens, words):
    found = describe_credential_use(
        NOW,
        status=status,
        created_at=NOW + created,
        ended_at=None if ended is None else NOW + ended,
        last_used_at=None if used is None else NOW + used,
        addresses=addresses,
        live_tokens=tokens,
    )
    assert found == words


def terms(**sent):
    max_seconds = sent.pop("max_seconds", None)
    return validate_secret_terms(NOW, sent, max_seconds=max_seconds)


@each(
    ("sent", "expected"),
    [
        ({}, None),
        ({"expires_at": "2026-12-01T00:00:00Z"}, datetime(2026, 12, 1, tzinfo=UTC)),
        ({"expires_at": "2026-12-01T02:00:00+02:00"}, datetime(2026, 12, 1, tzinfo=UTC)),
        ({"expires_at": NOW + HOUR, "max_seconds": 3600}, NOW + HOUR),
        ({"name": "deploy", "retire_others_in_seconds": 0}, None),
    ],
)
def test_valid_terms_are_accepted(sent, expected):
    assert terms(**sent) == expected


@each(
    ("sent", "field", "code"),
    [
        ({"name": ""}, "name", "too_short"),
        ({"name": 3}, "name", "wrong_type"),
        ({"name": "x" * 101}, "name", "too_long"),
        ({"name": "a\u202eb"}, "name", "forbidden_character"),
        ({"expires_at": "tomorrow"}, "expires_at", "invalid_time"),
        ({"expires_at": ""}, "expires_at", "invalid_time"),
        ({"expires_at": 1_800_000_000}, "expires_at", "invalid_time"),
        ({"expires_at": True}, "expires_at", "invalid_time"),
        ({"expires_at": "2026-12-01T00:00:00"}, "expires_at", "invalid_time"),
        ({"expires_at": "2026-12-01"}, "expires_at", "invalid_time"),
        ({"expires_at": "9999-12-31T23:59:59-23:00"}, "expires_at", "invalid_time"),
        ({"expires_at": "2026-11-21T12:00:00Z"}, "expires_at", "in_the_past"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at", "in_the_past"),
        ({"expires_at": "2066-01-01T00:00:00Z"}, "expires_at", "too_far"),
        ({"expires_at": NOW + 2 * HOUR, "max_seconds": 3600}, "expires_at", "too_far"),
        ({"retire_others_in_seconds": "0"}, "retire_others_in_seconds", "wrong_type"),
        ({"retire_others_in_seconds": True}, "retire_others_in_seconds", "wrong_type"),
        ({"retire_others_in_seconds": 1.5}, "retire_others_in_seconds", "wrong_type"),
        ({"retire_others_in_seconds": -1}, "retire_others_in_seconds", "out_of_range"),
        ({"retire_others_in_seconds": 90 * 86_400 + 1}, "retire_others_in_seconds", "out_of_range"),
    ],
)
def test_invalid_terms_are_named(sent, field, code):
    with pytest.raises(InvalidInput) as refusal:
        terms(**sent)
    assert [(wrong.field, wrong.code) for wrong in refusal.value.errors] == [(field, code)]


def test_all_invalid_terms_are_reported_together():
    with pytest.raises(InvalidInput) as refusal:
        terms(name=3, expires_at=3, retire_others_in_seconds="x")
    assert len(refusal.value.errors) == 3
