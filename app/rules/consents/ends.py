"""Ends of a consent: what a person may choose, and until when it then counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

FIRST_PARTY = "first_party"
TODAY, THIRTY_DAYS, UNTIL_REMOVED = "today", "30_days", "until_removed"
# Whose day it is depends on where the person is, which nobody here knows: "today" is a day of 24 hours.
_SPANS = {TODAY: timedelta(hours=24), THIRTY_DAYS: timedelta(days=30)}


@dataclass(frozen=True, slots=True)
class End:
    """One end that may be chosen; ``at`` is None for a consent that lasts until it is removed."""

    name: str
    at: datetime | None


def longest_life(settings: Mapping[str, Any]) -> int | None:
    """For how many seconds an organization lets a consent stand at most; None: for ever."""
    seconds: int | None = settings["oauth"]["consent"]["ttl_seconds"]
    return seconds


def asks_people(trust: str, settings: Mapping[str, Any]) -> bool:
    """Whether a client of that trust gets its scopes from people's own consents, its organization's own as it says."""
    return trust != FIRST_PARTY or bool(settings["oauth"]["consent"]["policy"] == "always")


def ends_offered(asked_at: datetime, now: datetime, ttl_seconds: int | None) -> tuple[End, ...]:
    """The ends that a person may choose from, the last one the longest that the organization allows.

    Those of the person's choice count from when the app asked: so the page shows the very time that will hold.
    ``ttl_seconds`` is the organization's bound, which counts from the decision; None is none.
    """
    longest = None if ttl_seconds is None else now + timedelta(seconds=ttl_seconds)
    chosen = [End(name, asked_at + span) for name, span in _SPANS.items()]
    shorter = [end for end in chosen if end.at is not None and (longest is None or end.at < longest)]
    return (*shorter, End(UNTIL_REMOVED, longest))


def end_of_consent(given_at: datetime, written: datetime | None, ttl_seconds: int | None) -> datetime | None:
    """When a consent ends: as was written down, or sooner where the organization's bound was shortened since."""
    longest = None if ttl_seconds is None else given_at + timedelta(seconds=ttl_seconds)
    return min((end for end in (longest, written) if end is not None), default=None)


def end_chosen(name: str, offered: tuple[End, ...]) -> End | None:
    """The end of that name, or None when it was not offered."""
    return next((end for end in offered if end.name == name), None)
