"""Until when something lives whose length of life is a setting: as was written down then, or as is allowed now.

A length that was shortened counts at once for what stands, and one that was made longer for what is made from then on:
nobody gets more time than they were told. What others check by themselves lives as it says: access and ID tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from app.rules.authorization.consents import end_of_consent, longest_life

WITHOUT_EFFECT = "Stored, and without effect in this release."

# Paths that nothing reads. Whoever makes one count takes it out; a test knows when one was forgotten.
WITHOUT_EFFECT_YET: frozenset[str] = frozenset()


def warnings_for(changed: Iterable[str]) -> tuple[str, ...]:
    """One sentence for each changed path that nothing follows from."""
    return tuple(f"{path}: {WITHOUT_EFFECT}" for path in changed if path in WITHOUT_EFFECT_YET)


def reason_of(path: str, why: str) -> str:
    """Why the setting is there, and that it has no effect yet where that is so."""
    return f"{why} {WITHOUT_EFFECT}" if path in WITHOUT_EFFECT_YET else why


def end_of_life(written: datetime, began_at: datetime, seconds: int) -> datetime:
    """The earlier of the end that was written down and ``seconds`` after the beginning."""
    return min(written, began_at + timedelta(seconds=seconds))


def end_under_consent(
    settings: Mapping[str, Any], *, expires_at: datetime, allowed_at: datetime, is_consented: bool
) -> datetime:
    """When a grant ends that may rest on a consent: as was written down, or a consent's longest life after its start.

    Whoever allowed something cannot have meant it for longer than a consent may stand.
    """
    seconds = longest_life(settings) if is_consented else None
    return end_of_consent(allowed_at, expires_at, seconds) or expires_at


def end_of_family(
    settings: Mapping[str, Any],
    *,
    created_at: datetime,
    expires_at: datetime,
    refreshed_at: datetime | None,
    idle_expires_at: datetime,
    allowed_at: datetime,
    is_consented: bool,
) -> datetime:
    """When the refresh tokens of a grant end, if nobody uses them until then.

    ``settings`` are an organization's whole document. ``refreshed_at`` is the latest use; None where it was not kept.
    ``is_consented`` says that the grant rests on a consent, whose longest life then bounds it too.
    """
    limits = settings["oauth"]["refresh_token"]
    idle_end = idle_expires_at
    if refreshed_at is not None:
        idle_end = end_of_life(idle_end, refreshed_at, limits["idle_ttl_seconds"])
    written = end_under_consent(
        settings, expires_at=expires_at, allowed_at=allowed_at, is_consented=is_consented
    )
    return min(idle_end, end_of_life(written, created_at, limits["ttl_seconds"]))
