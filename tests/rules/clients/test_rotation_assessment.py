"""Rotation assessments: whether the old secret can be revoked, and when administrators are reminded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.rules.clients.credentials import SecretUse, assess_rotation, is_reminder_due
from tests.support.cases import each

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def use(first: float | None = None, last: float | None = None, addresses: int = 1) -> SecretUse:
    """Return a secret first and last used this many hours ago."""
    times = [None if hours is None else NOW - timedelta(hours=hours) for hours in (first, last)]
    return SecretUse(times[0], times[1], addresses)


@each(
    ("new", "old", "is_safe", "words"),
    [
        (None, [use(9, 1)], False, "There is no new secret. Cancel the rotation or rotate again."),
        (use(), [use()], False, "Neither secret has been used yet. Deploy the new secret first."),
        (use(), [use(9, 1)], False, "The new secret has not been used yet. Deploy the new secret first."),
        (
            use(2, 0),
            [use()],
            True,
            "The new secret was first used 2 hours ago. The old secret was never used. It is safe to revoke.",
        ),
        (
            use(2, 0),
            [use(99, 0.05, 2)],
            False,
            (
                "The new secret was first used 2 hours ago. "
                "The old secret was last used 3 minutes ago from 2 IP addresses. It is still needed."
            ),
        ),
        (
            use(0.5, 0),
            [use(99, 0.6)],
            False,
            (
                "The new secret was first used 30 minutes ago. "
                "The old secret was last used 36 minutes ago from 1 IP address. "
                "Wait until it has been unused for 1 hour."
            ),
        ),
        (
            use(3, 0),
            [use(99, 4, 0), use(99, 2, 0)],
            True,
            (
                "The new secret was first used 3 hours ago. The old secret was last used 2 hours ago. "
                "It is safe to revoke."
            ),
        ),
    ],
)
def test_rotation_assessment(new: SecretUse | None, old: list[SecretUse], is_safe: bool, words: str) -> None:
    found = assess_rotation(NOW, new=new, old=old)
    assert (found.is_safe, found.words) == (is_safe, words)


@each(
    ("began", "ends", "used", "due"),
    [
        (-23, 5, -1, True),  # the last quarter of 28 hours
        (-10, 14, -1, False),
        (-10, 14, None, False),
        (-0.5, 0.9, -0.1, True),  # a short overlap, an hour before
        (-23, 5, -23.5, False),  # not used since it got its expiry
        (-2400, 23, -1, True),  # a day before at the earliest
        (-2400, 25, -1, False),
        (-2400, 23, -25, False),  # unused for a day
        (-23, -1, -2, False),
    ],
)
def test_reminder_is_due_before_expiry(began: float, ends: float, used: float | None, due: bool) -> None:
    at = [None if hours is None else NOW + timedelta(hours=hours) for hours in (began, ends, used)]
    assert at[0] is not None and at[1] is not None
    assert is_reminder_due(NOW, began_at=at[0], ends_at=at[1], last_used_at=at[2]) is due
