"""When a delivery that failed is tried again."""

from __future__ import annotations

from datetime import timedelta

FIRST_SECONDS = 10
LONGEST_SECONDS = 3600
GIVEN_UP_AFTER = timedelta(hours=24)


def pause_after(attempts: int, chance: float) -> timedelta:
    """How long to wait after so many failed attempts: it doubles up to an hour.

    ``chance`` from 0 to 1 moves it by a quarter either way, so that many that failed together do not come together.
    """
    # Beyond the ninth doubling nothing grows any more, and 2 ** 10_000 would be a number of its own.
    seconds = min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(max(attempts, 1) - 1, 9))
    return timedelta(seconds=seconds * (0.75 + chance / 2))
