"""Terms of a new client secret: its name, its end, and when those before it end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from app.rules.fields import Findings, find_unknown, text_problem, type_name

MAX_SECRET_LIFETIME = timedelta(days=3650)
LONGEST_OVERLAP_SECONDS = 90 * 86_400


ROTATION_FIELDS = ("ends_in_seconds", "revoke_tokens")


@dataclass(frozen=True, slots=True)
class RotationTerms:
    """When the old secrets of a rotation end, and whether what they minted ends with them; None leaves it as it is."""

    ends_in_seconds: int | None
    revoke_tokens: bool | None


def validate_secret_terms(
    now: datetime,
    *,
    name: Any,
    expires_at: Any,
    retire_others_in_seconds: Any,
    longest_seconds: int | None,
) -> datetime | None:
    """The end as a moment, or None when it is left to the organization.

    ``expires_at`` is an aware datetime or RFC 3339 text; ``longest_seconds`` is the organization's own bound.
    Raises InvalidInput naming every wrong field at once.
    """
    findings = Findings()
    if name is not None:
        findings.add_problem("name", text_problem(name, longest=100))
    ends = None
    if expires_at is not None:
        ends = moment_sent(findings, expires_at)
        if ends is not None:
            _check_end(findings, now, ends, longest_seconds)
    if retire_others_in_seconds is not None:
        _check_overlap(findings, "retire_others_in_seconds", retire_others_in_seconds)
    findings.raise_if_any()
    return ends


def rotation_terms(fields: Mapping[str, Any]) -> RotationTerms:
    """The checked body of a rotation; raises InvalidInput naming every wrong field."""
    findings = Findings()
    find_unknown(findings, fields, ROTATION_FIELDS, synonyms={"retire_others_in_seconds": "ends_in_seconds"})
    ends, takes = fields.get("ends_in_seconds"), fields.get("revoke_tokens")
    if ends is not None:
        _check_overlap(findings, "ends_in_seconds", ends)
    if takes is not None and not isinstance(takes, bool):
        findings.add("revoke_tokens", "wrong_type", f"This must be true or false, not {type_name(takes)}.")
    findings.raise_if_any()
    return RotationTerms(ends, takes)


def moment_sent(findings: Findings, value: Any) -> datetime | None:
    """The moment in UTC that ``expires_at`` names, by RFC 3339 or as an aware datetime; None when it names none."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime) or value.tzinfo is None:
        findings.add(
            "expires_at", "invalid_time", "Send a time with its zone, like 2030-01-31T12:00:00Z (RFC 3339)."
        )
        return None
    try:
        return value.astimezone(UTC)
    except OverflowError:
        findings.add("expires_at", "invalid_time", "This time is out of range.")
        return None


def _check_end(findings: Findings, now: datetime, ends: datetime, longest_seconds: int | None) -> None:
    if ends <= now:
        findings.add("expires_at", "in_the_past", "This time has passed.")
    elif ends - now > MAX_SECRET_LIFETIME:
        findings.add("expires_at", "too_far", "A secret lives at most ten years.")
    elif longest_seconds is not None and ends - now > timedelta(seconds=longest_seconds):
        findings.add(
            "expires_at", "too_far", f"This organization lets a secret live {longest_seconds} seconds."
        )


def _check_overlap(findings: Findings, field: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"This must be a whole number of seconds, not {type_name(value)}."
        findings.add(field, "wrong_type", message)
    elif not 0 <= value <= LONGEST_OVERLAP_SECONDS:
        message = f"This must be from 0 to {LONGEST_OVERLAP_SECONDS} seconds."
        findings.add(field, "out_of_range", message)


ACTIVE, EXPIRING, EXPIRED, REVOKED = "active", "expiring", "expired", "revoked"
LIVE = frozenset({ACTIVE, EXPIRING})

SOON = timedelta(days=7)
"""An end nearer than this is worth a word."""
FRESH = timedelta(days=1)
STALE = timedelta(days=14)
MANY_TOKENS = 1000

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def status_of(
    now: datetime,
    *,
    expires_at: datetime | None,
    retiring_since: datetime | None,
    revoked_at: datetime | None,
) -> str:
    """Revoked wins over expired; one that a rotation retires, or that ends within a week, is expiring."""
    if revoked_at is not None:
        return REVOKED
    if expires_at is None:
        return ACTIVE
    if expires_at <= now:
        return EXPIRED
    return EXPIRING if retiring_since is not None or expires_at - now <= SOON else ACTIVE


def verdict(
    now: datetime,
    *,
    status: str,
    created_at: datetime,
    ended_at: datetime | None,
    last_used_at: datetime | None,
    addresses: int,
    live_tokens: int,
) -> str:
    """Whether the secret can go, in words: `used 3 minutes ago from 2 addresses: still needed`."""
    if status not in LIVE:
        words = f"{status} {ago(now, ended_at)}" if ended_at is not None else status
        return f"{words}: {tokens(live_tokens)} that it minted still work" if live_tokens else words
    if last_used_at is None:
        if now - created_at < FRESH:
            return "not used yet"
        age = ago(now, created_at)
        return f"never used since it was made {age}: " + (
            "safe to revoke" if now - created_at >= STALE else "wait"
        )
    unused = now - last_used_at
    origin = f" from {count(addresses, 'address', 'addresses')}" if addresses else ""
    if unused < FRESH:
        return f"used {ago(now, last_used_at)}{origin}: still needed"
    if unused < STALE:
        return f"last used {ago(now, last_used_at)}{origin}: probably still needed"
    if live_tokens:
        return f"unused for {span(unused)}, and {tokens(live_tokens)} that it minted still work"
    return f"unused for {span(unused)}: safe to revoke"


def tokens(number: int) -> str:
    """``12 tokens``, or from the count's ceiling on ``1,000 tokens or more``."""
    return count(number, "token", "tokens") + (" or more" if number >= MANY_TOKENS else "")


def count(number: int, one: str, many: str) -> str:
    """``1 address``, ``2 addresses``."""
    return f"{number:,} {one if number == 1 else many}"


def ago(now: datetime, then: datetime) -> str:
    """``3 minutes ago``."""
    return f"{span(now - then)} ago" if now - then >= timedelta(seconds=1) else "just now"


def span(length: timedelta) -> str:
    """``3 minutes``: the largest unit of which there is at least one."""
    seconds = max(1, int(length.total_seconds()))
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return count(seconds // size, unit, f"{unit}s")


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


FIELDS = ("name", "expires_at", "expires_in_days", "max_uses")
READ_ONLY = ("id", "hint", "uses", "status", "created_at", "created_by", "last_used_at", "revoked_at")
DEFAULT_LIFE = timedelta(days=30)
MAX_INITIAL_ACCESS_LIFETIME = timedelta(days=365)
MOST_USES = 10_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What a token is made with; ``max_uses`` None: as many clients as there is room for."""

    name: str
    expires_at: datetime
    max_uses: int | None


def validate_registration_terms(now: datetime, sent: Mapping[str, Any]) -> Terms:
    """The terms of a request. Raises InvalidInput naming every wrong field at once."""
    findings = Findings()
    find_unknown(findings, sent, FIELDS, read_only=READ_ONLY)
    name = sent.get("name")
    if name is None:
        findings.add("name", "required", "Say who the token is for.")
    else:
        findings.add_problem("name", text_problem(name, longest=100))
    days = _number(findings, sent, "expires_in_days", MAX_INITIAL_ACCESS_LIFETIME.days)
    ends = now + (DEFAULT_LIFE if days is None else timedelta(days=days))
    if sent.get("expires_at") is not None:
        ends = moment_sent(findings, sent["expires_at"]) or ends
        if days is not None:
            findings.add("expires_at", "inconsistent", "Send the end or the days until it, not both.")
        elif ends <= now:
            findings.add("expires_at", "in_the_past", "This time has passed.")
        elif ends - now > MAX_INITIAL_ACCESS_LIFETIME:
            findings.add(
                "expires_at", "too_far", f"A token lives at most {MAX_INITIAL_ACCESS_LIFETIME.days} days."
            )
    uses = _number(findings, sent, "max_uses", MOST_USES)
    findings.raise_if_any()
    return Terms(str(name), ends, uses)


def _number(findings: Findings, sent: Mapping[str, Any], field: str, most: int) -> int | None:
    value = sent.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        findings.add(field, "wrong_type", f"This must be a whole number, not {type_name(value)}.")
        return None
    if not 1 <= value <= most:
        findings.add(field, "out_of_range", f"This must be from 1 to {most}.")
        return None
    return value
