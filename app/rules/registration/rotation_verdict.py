"""Verdict on a rotation under way: from real use, whether the old secret can end now, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.rules.registration.credential_verdict import ago, count, span

# Uses are sampled each minute; a job that runs every half hour must have come by once on the new secret.
QUIET = timedelta(hours=1)
LATEST_REMINDER, EARLIEST_REMINDER = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SecretUse:
    """How a secret is used: since when, when last, and from how many addresses within 30 days."""

    first_used_at: datetime | None
    last_used_at: datetime | None
    addresses: int


@dataclass(frozen=True, slots=True)
class RotationVerdict:
    """Whether the old secrets can end now, and why in words."""

    is_safe: bool
    words: str


def rotation_verdict(now: datetime, *, new: SecretUse | None, old: Sequence[SecretUse]) -> RotationVerdict:
    """Safe once the new secret is in use and the old ones have been quiet for an hour since."""
    if new is None:
        return RotationVerdict(
            False, "There is no new secret any more: cancel the rotation, or rotate again."
        )
    used = [use for use in old if use.last_used_at is not None]
    if new.last_used_at is None:
        if not used:
            return RotationVerdict(False, "Neither secret was used yet: deploy the new one first.")
        return RotationVerdict(False, "The new secret was not used yet: deploy it first.")
    since = new.first_used_at or new.last_used_at
    if not used:
        return RotationVerdict(
            True, f"The new secret was first used {ago(now, since)}, the old one never: safe to end now."
        )
    last = max(use.last_used_at for use in used if use.last_used_at is not None)
    addresses = max(use.addresses for use in used)
    origin = f" from {count(addresses, 'address', 'addresses')}" if addresses else ""
    quiet = now - max(last, since)
    told = f"The new secret was first used {ago(now, since)}, the old one last {ago(now, last)}{origin}: "
    if quiet >= QUIET:
        return RotationVerdict(True, told + "safe to end now.")
    if last > since:
        return RotationVerdict(False, told + "still needed.")
    return RotationVerdict(False, told + f"wait until it was quiet for {span(QUIET)}.")


def reminder_due(
    now: datetime, *, began_at: datetime, ends_at: datetime, last_used_at: datetime | None
) -> bool:
    """Whether its people should hear that a secret ends while it is in use: in the last quarter of its time.

    An hour before the end at the latest, a day at the earliest. A secret that nobody used since it got its end, or for
    a day, ends in silence.
    """
    quarter = (ends_at - began_at) / 4
    ahead = min(max(quarter, LATEST_REMINDER), EARLIEST_REMINDER)
    if last_used_at is None or ends_at <= now or ends_at - now > ahead:
        return False
    return last_used_at > max(began_at, now - EARLIEST_REMINDER)
