"""Client secrets and initial access tokens: validation of their terms, and how long they are still needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from app.rules.fields import ValidationErrors
from app.rules.shapes import Between, Shape, Text, Time, check_shape, described, parse_time

MAX_SECRET_LIFETIME = timedelta(days=3650)
MAX_OVERLAP_SECONDS = 90 * 86_400
_Overlap = Annotated[int, Between(0, MAX_OVERLAP_SECONDS, "seconds")]
_RevokeTokens = Annotated[
    bool, described("Revoke the tokens of the old secrets, including refresh tokens, when these expire.")
]
ACTIVE, EXPIRING, EXPIRED, REVOKED = "active", "expiring", "expired", "revoked"
# From before a restore of a backup, and not confirmed yet.
BLOCKED = "blocked"
STATUSES = (ACTIVE, EXPIRING, EXPIRED, REVOKED, BLOCKED)
LIVE = frozenset({ACTIVE, EXPIRING})
EXPIRING_WITHIN = timedelta(days=7)
RECENTLY_USED = timedelta(days=1)
UNUSED_AFTER = timedelta(days=14)
MANY_TOKENS = 1000
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
# Uses are sampled each minute; a job that runs every half hour must have come by once on the new secret.
MIN_QUIET_TIME = timedelta(hours=1)
MIN_REMINDER_LEAD, MAX_REMINDER_LEAD = timedelta(hours=1), timedelta(days=1)
READ_ONLY = ("id", "hint", "uses", "status", "created_at", "created_by", "last_used_at", "revoked_at")
DEFAULT_LIFETIME = timedelta(days=30)
MAX_INITIAL_ACCESS_LIFETIME = timedelta(days=365)
MAX_USES = 10_000


class NewCredential(Shape):
    """A new client secret."""

    name: Annotated[
        Annotated[str, Text(100)] | None, described("A name for administrators, to tell secrets apart.")
    ] = None
    expires_at: Annotated[
        Time | None, described("When the secret expires, in RFC 3339 with its time zone.")
    ] = None
    retire_others_in_seconds: (
        Annotated[_Overlap, described("When the existing secrets expire, in seconds from now.")] | None
    ) = None


class NewRotation(Shape):
    """A new secret, and the expiry of those before it."""

    expires_in_seconds: (
        Annotated[_Overlap, described("If omitted, the overlap in the organization's settings.")] | None
    ) = None
    revoke_tokens: _RevokeTokens | None = None


class RotationChange(Shape):
    """Another expiry of the secrets that a rotation replaces."""

    expires_in_seconds: (
        Annotated[_Overlap, described("In seconds from now. 0 revokes the old secrets immediately.")] | None
    ) = None
    revoke_tokens: _RevokeTokens | None = None


@dataclass(frozen=True, slots=True)
class RotationTerms:
    """When the old secrets of a rotation expire, and whether their tokens do, too. None means unchanged."""

    ends_in_seconds: int | None
    revoke_tokens: bool | None


@dataclass(frozen=True, slots=True)
class SecretUse:
    """When a secret was first and last used, and from how many IP addresses within 30 days."""

    first_used_at: datetime | None
    last_used_at: datetime | None
    addresses: int


@dataclass(frozen=True, slots=True)
class RotationVerdict:
    """An assessment: whether the old secrets can be revoked now, and an explanation."""

    is_safe: bool
    words: str


class NewRegistrationToken(Shape):
    """A new initial access token."""

    name: Annotated[str, Text(100), described("Who the token is for.")]
    expires_at: Annotated[
        Time | None,
        described(
            "When it expires, in RFC 3339 with its time zone. "
            f"At most {MAX_INITIAL_ACCESS_LIFETIME.days} days from now."
        ),
    ] = None
    expires_in_days: (
        Annotated[
            int,
            Between(1, MAX_INITIAL_ACCESS_LIFETIME.days),
            described("Instead of `expires_at`. The default is 30 days."),
        ]
        | None
    ) = None
    max_uses: (
        Annotated[
            int, Between(1, MAX_USES), described("How many clients it may register. If null, any number.")
        ]
        | None
    ) = None


@dataclass(frozen=True, slots=True)
class RegistrationTokenTerms:
    """The terms of a new token. With ``max_uses`` None, only the organization's limit of clients applies."""

    name: str
    expires_at: datetime
    max_uses: int | None


def validate_secret_terms(
    now: datetime,
    *,
    name: Any,
    expires_at: Any,
    retire_others_in_seconds: Any,
    max_seconds: int | None,
) -> datetime | None:
    """Return the expiry of a new secret in UTC, or None for the organization's default.

    ``expires_at`` is an aware datetime or RFC 3339 text. Raises InvalidInput naming every wrong field.
    """
    errors = ValidationErrors()
    sent = {"name": name, "expires_at": expires_at, "retire_others_in_seconds": retire_others_in_seconds}
    check_shape(errors, NewCredential, sent)
    expiry = None
    if not errors.has_error("expires_at") and (expiry := parse_time(expires_at)) is not None:
        _check_expiry(errors, now, expiry, max_seconds)
    errors.raise_if_any()
    return expiry


def validate_rotation_terms(fields: Mapping[str, Any]) -> RotationTerms:
    """Validate the body of a rotation request. Raises InvalidInput naming every wrong field."""
    errors = ValidationErrors()
    synonyms = {"retire_others_in_seconds": "expires_in_seconds", "ends_in_seconds": "expires_in_seconds"}
    check_shape(errors, NewRotation, fields, synonyms=synonyms)
    errors.raise_if_any()
    return RotationTerms(fields.get("expires_in_seconds"), fields.get("revoke_tokens"))


def validate_registration_terms(now: datetime, sent: Mapping[str, Any]) -> RegistrationTokenTerms:
    """Validate the terms of an initial access token. Raises InvalidInput naming every wrong field."""
    errors = ValidationErrors()
    required = {"name": "Enter who the token is for."}
    check_shape(errors, NewRegistrationToken, sent, read_only=READ_ONLY, required=required)
    days, expiry = sent.get("expires_in_days"), parse_time(sent.get("expires_at"))
    if expiry is not None:
        if days is not None:
            errors.add("expires_at", "inconsistent", "Send expires_at or expires_in_days, not both.")
        elif expiry <= now:
            errors.add("expires_at", "in_the_past", "This time is in the past.")
        elif expiry - now > MAX_INITIAL_ACCESS_LIFETIME:
            errors.add(
                "expires_at",
                "too_far",
                f"A token can be valid for at most {MAX_INITIAL_ACCESS_LIFETIME.days} days.",
            )
    errors.raise_if_any()
    default = now + (DEFAULT_LIFETIME if days is None else timedelta(days=days))
    return RegistrationTokenTerms(sent["name"], expiry or default, sent.get("max_uses"))


def get_credential_status(
    now: datetime,
    *,
    expires_at: datetime | None,
    retiring_since: datetime | None,
    revoked_at: datetime | None,
    is_blocked: bool = False,
) -> str:
    """Return the status of a secret.

    Revoked takes precedence over expired, and both over blocked. A secret that a rotation retires or that expires
    within a week is expiring.
    """
    if revoked_at is not None:
        return REVOKED
    if expires_at is not None and expires_at <= now:
        return EXPIRED
    if is_blocked:
        return BLOCKED
    if expires_at is None:
        return ACTIVE
    return EXPIRING if retiring_since is not None or expires_at - now <= EXPIRING_WITHIN else ACTIVE


def describe_credential_use(
    now: datetime,
    *,
    status: str,
    created_at: datetime,
    ended_at: datetime | None,
    last_used_at: datetime | None,
    addresses: int,
    live_tokens: int,
) -> str:
    """Describe whether the secret can be revoked, like ``Used 3 minutes ago. Still needed.``."""
    if status not in LIVE:
        words = status.capitalize() + (f" {format_ago(now, ended_at)}" if ended_at is not None else "")
        return f"{words}. Still active: {format_token_count(live_tokens)}." if live_tokens else f"{words}."
    if last_used_at is None:
        age = now - created_at
        if age < RECENTLY_USED:
            return "Not used yet."
        advice = "Safe to revoke." if age >= UNUSED_AFTER else "Check again later."
        return f"Never used since it was created {format_ago(now, created_at)}. {advice}"
    unused = now - last_used_at
    if unused < RECENTLY_USED:
        return f"Used {format_ago(now, last_used_at)}{_format_origin(addresses)}. Still needed."
    if unused < UNUSED_AFTER:
        return f"Last used {format_ago(now, last_used_at)}{_format_origin(addresses)}. Probably still needed."
    if live_tokens:
        return f"Unused for {format_duration(unused)}. Still active: {format_token_count(live_tokens)}."
    return f"Unused for {format_duration(unused)}. Safe to revoke."


def assess_rotation(now: datetime, *, new: SecretUse | None, old: Sequence[SecretUse]) -> RotationVerdict:
    """Assess a rotation: safe once the new secret is used and the old ones were unused for an hour since."""
    if new is None:
        return RotationVerdict(False, "There is no new secret. Cancel the rotation or rotate again.")
    used = [use for use in old if use.last_used_at is not None]
    if new.last_used_at is None:
        if not used:
            return RotationVerdict(False, "Neither secret has been used yet. Deploy the new secret first.")
        return RotationVerdict(False, "The new secret has not been used yet. Deploy the new secret first.")
    since = new.first_used_at or new.last_used_at
    if not used:
        return RotationVerdict(
            True,
            f"The new secret was first used {format_ago(now, since)}. The old secret was never used. It is safe to"
            " revoke.",
        )
    last = max(use.last_used_at for use in used if use.last_used_at is not None)
    origin = _format_origin(max(use.addresses for use in used))
    unused_for = now - max(last, since)
    first, latest = format_ago(now, since), format_ago(now, last)
    summary = f"The new secret was first used {first}. The old secret was last used {latest}{origin}. "
    if unused_for >= MIN_QUIET_TIME:
        return RotationVerdict(True, summary + "It is safe to revoke.")
    if last > since:
        return RotationVerdict(False, summary + "It is still needed.")
    return RotationVerdict(
        False, summary + f"Wait until it has been unused for {format_duration(MIN_QUIET_TIME)}."
    )


def is_reminder_due(
    now: datetime, *, began_at: datetime, ends_at: datetime, last_used_at: datetime | None
) -> bool:
    """Return whether to remind administrators that a secret in use expires soon.

    That is in the last quarter of its time, at least an hour and at most a day before its expiry. There is no
    reminder for a secret that was unused since it got its expiry, or for a day.
    """
    quarter = (ends_at - began_at) / 4
    ahead = min(max(quarter, MIN_REMINDER_LEAD), MAX_REMINDER_LEAD)
    if last_used_at is None or ends_at <= now or ends_at - now > ahead:
        return False
    return last_used_at > max(began_at, now - MAX_REMINDER_LEAD)


def _format_origin(addresses: int) -> str:
    return f" from {format_count(addresses, 'IP address', 'IP addresses')}" if addresses else ""


def format_token_count(number: int) -> str:
    """Format a count like ``12 tokens``, or ``1,000 tokens or more`` at the limit."""
    return format_count(number, "token", "tokens") + (" or more" if number >= MANY_TOKENS else "")


def format_count(number: int, one: str, many: str) -> str:
    """Format a count like ``1 address`` or ``2 addresses``."""
    return f"{number:,} {one if number == 1 else many}"


def format_ago(now: datetime, then: datetime) -> str:
    """Format a past time like ``3 minutes ago``."""
    return f"{format_duration(now - then)} ago" if now - then >= timedelta(seconds=1) else "just now"


def format_duration(length: timedelta) -> str:
    """Format a duration like ``3 minutes``, in the largest unit of which there is at least one."""
    seconds = max(1, int(length.total_seconds()))
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return format_count(seconds // size, unit, f"{unit}s")


def _check_expiry(errors: ValidationErrors, now: datetime, expiry: datetime, max_seconds: int | None) -> None:
    if expiry <= now:
        errors.add("expires_at", "in_the_past", "This time is in the past.")
    elif expiry - now > MAX_SECRET_LIFETIME:
        errors.add("expires_at", "too_far", "A secret can be valid for at most ten years.")
    elif max_seconds is not None and expiry - now > timedelta(seconds=max_seconds):
        message = f"This organization allows secrets to be valid for at most {max_seconds} seconds."
        errors.add("expires_at", "too_far", message)
