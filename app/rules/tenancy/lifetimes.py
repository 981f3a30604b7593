"""Until when something lives whose length of life is a setting: as was written down then, or as is allowed now.

A length that was shortened counts at once for what stands, and one that was made longer for what is made from then on:
nobody gets more time than they were told. What others check by themselves lives as it says: access and ID tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any


def end_of_life(written: datetime, began_at: datetime, seconds: int) -> datetime:
    """The earlier of the end that was written down and ``seconds`` after the beginning."""
    return min(written, began_at + timedelta(seconds=seconds))


def end_of_family(
    settings: Mapping[str, Any],
    *,
    created_at: datetime,
    expires_at: datetime,
    refreshed_at: datetime | None,
    idle_expires_at: datetime,
) -> datetime:
    """When the refresh tokens of a grant end, if nobody uses them until then.

    ``settings`` are an organization's whole document. ``refreshed_at`` is the latest use; None where it was not kept.
    """
    limits = settings["oauth"]["refresh_token"]
    idle_end = idle_expires_at
    if refreshed_at is not None:
        idle_end = end_of_life(idle_end, refreshed_at, limits["idle_ttl_seconds"])
    return min(idle_end, end_of_life(expires_at, created_at, limits["ttl_seconds"]))
