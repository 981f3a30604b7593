"""Effects of settings: expiry times under the current settings, and settings without an effect.

A shorter lifetime applies to existing grants immediately, a longer one only to new ones: nobody gets more time than
they were shown. Access tokens and ID tokens that others verify themselves are valid for as long as they state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from app.rules.authorization.consents import consent_expiry, max_consent_seconds

WITHOUT_EFFECT = "This setting is stored but has no effect in this release."

# Paths that nothing reads. Remove a path here when it gets an effect; a test finds forgotten ones.
WITHOUT_EFFECT_YET: frozenset[str] = frozenset()


def warnings_for(changed: Iterable[str]) -> tuple[str, ...]:
    """Return one sentence for each changed path that has no effect."""
    return tuple(f"{path}: {WITHOUT_EFFECT}" for path in changed if path in WITHOUT_EFFECT_YET)


def describe_setting(path: str, why: str) -> str:
    """Return the description of the setting, and that it has no effect yet where that is so."""
    return f"{why} {WITHOUT_EFFECT}" if path in WITHOUT_EFFECT_YET else why


def earliest_expiry(stored: datetime, started_at: datetime, seconds: int) -> datetime:
    """Return the stored expiry or ``seconds`` after the start, whichever is earlier."""
    return min(stored, started_at + timedelta(seconds=seconds))


def grant_expiry(
    settings: Mapping[str, Any], *, expires_at: datetime, allowed_at: datetime, is_consented: bool
) -> datetime:
    """Return when a grant expires: as stored, or at the maximum consent lifetime after it was allowed.

    A user cannot have meant to allow access for longer than a consent may last.
    """
    seconds = max_consent_seconds(settings) if is_consented else None
    return consent_expiry(allowed_at, expires_at, seconds) or expires_at


def refresh_token_expiry(
    settings: Mapping[str, Any],
    *,
    created_at: datetime,
    expires_at: datetime,
    refreshed_at: datetime | None,
    idle_expires_at: datetime,
    allowed_at: datetime,
    is_consented: bool,
) -> datetime:
    """Return when the refresh tokens of a grant expire if they are not used before.

    ``settings`` are the whole document of the organization. ``refreshed_at`` is the last use, or None if it is unknown.
    ``is_consented`` says that the grant depends on a consent, whose maximum lifetime then applies too.
    """
    limits = settings["oauth"]["refresh_token"]
    idle_expiry = idle_expires_at
    if refreshed_at is not None:
        idle_expiry = earliest_expiry(idle_expiry, refreshed_at, limits["idle_ttl_seconds"])
    stored = grant_expiry(settings, expires_at=expires_at, allowed_at=allowed_at, is_consented=is_consented)
    return min(idle_expiry, earliest_expiry(stored, created_at, limits["ttl_seconds"]))
