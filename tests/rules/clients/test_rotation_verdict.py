"""Whether the old secret of a rotation can end, from real use, and when its people are reminded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.rules.clients.credentials import SecretUse, reminder_due, rotation_verdict

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def use(first: float | None = None, last: float | None = None, addresses: int = 1) -> SecretUse:
    """A secret first and last used so many hours ago."""
    times = [None if hours is None else NOW - timedelta(hours=hours) for hours in (first, last)]
    return SecretUse(times[0], times[1], addresses)


@pytest.mark.parametrize(
    ("new", "old", "is_safe", "words"),
    [
        (None, [use(9, 1)], False, "There is no new secret any more: cancel the rotation, or rotate again."),
        (use(), [use()], False, "Neither secret was used yet: deploy the new one first."),
        (use(), [use(9, 1)], False, "The new secret was not used yet: deploy it first."),
        (
            use(2, 0),
            [use()],
            True,
            "The new secret was first used 2 hours ago, the old one never: safe to end now.",
        ),
        (
            use(2, 0),
            [use(99, 0.05, 2)],
            False,
            "The new secret was first used 2 hours ago, the old one last 3 minutes ago from 2 addresses: still needed.",
        ),
        (
            use(0.5, 0),
            [use(99, 0.6)],
            False,
            (
                "The new secret was first used 30 minutes ago, the old one last 36 minutes ago from 1 address: "
                "wait until it was quiet for 1 hour."
            ),
        ),
        (
            use(3, 0),
            [use(99, 4, 0), use(99, 2, 0)],
            True,
            "The new secret was first used 3 hours ago, the old one last 2 hours ago: safe to end now.",
        ),
    ],
)
def test_verdict(new: SecretUse | None, old: list[SecretUse], is_safe: bool, words: str) -> None:
    found = rotation_verdict(NOW, new=new, old=old)
    assert (found.is_safe, found.words) == (is_safe, words)


@pytest.mark.parametrize(
    ("began", "ends", "used", "due"),
    [
        (-23, 5, -1, True),  # the last quarter of 28 hours
        (-10, 14, -1, False),
        (-10, 14, None, False),
        (-0.5, 0.9, -0.1, True),  # a short overlap: an hour before
        (-23, 5, -23.5, False),  # not used since it got its end
        (-2400, 23, -1, True),  # a day before at the earliest
        (-2400, 25, -1, False),
        (-2400, 23, -25, False),  # quiet for a day
        (-23, -1, -2, False),
    ],
)
def test_reminder(began: float, ends: float, used: float | None, due: bool) -> None:
    at = [None if hours is None else NOW + timedelta(hours=hours) for hours in (began, ends, used)]
    assert at[0] is not None and at[1] is not None
    assert reminder_due(NOW, began_at=at[0], ends_at=at[1], last_used_at=at[2]) is due
