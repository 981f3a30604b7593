"""Client secrets and initial access tokens: validation of their terms, and how long they are still needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Struct

from app.rules.fields import ValidationErrors
from app.rules.languages.dates import Elapsed
from app.rules.languages.translation import lazy_gettext as _
from app.rules.shapes import Between, Shape, Text, Time, check_shape, described, parse_shape, parse_time

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


class SecretUse(Struct, frozen=True):
    """When a secret was first and last used, and from how many IP addresses within 30 days."""

    first_used_at: datetime | None
    last_used_at: datetime | None
    addresses: int


class RotationVerdict(Struct, frozen=True):
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


class RegistrationTokenTerms(Struct, frozen=True):
    """The terms of a new token. With ``max_uses`` None, only the organization's limit of clients applies."""

    name: str
    expires_at: datetime
    max_uses: int | None


def validate_secret_terms(
    now: datetime, fields: Mapping[str, Any], *, max_seconds: int | None
) -> datetime | None:
    """Return the expiry of a new secret in UTC, or None for the organization's default.

    ``fields`` are those of NewCredential, ``max_seconds`` is the longest lifetime that the organization allows. Raises
    InvalidInput naming every wrong field.
    """
    errors = ValidationErrors()
    check_shape(errors, NewCredential, fields)
    expiry = None
    if not errors.has_error("expires_at") and (expiry := parse_time(fields.get("expires_at"))) is not None:
        _check_expiry(errors, now, expiry, max_seconds)
    errors.raise_if_any()
    return expiry


def validate_rotation_terms(fields: Mapping[str, Any]) -> NewRotation:
    """Return the terms in the body of a rotation request. Raises InvalidInput naming every wrong field."""
    synonyms = {"retire_others_in_seconds": "expires_in_seconds", "ends_in_seconds": "expires_in_seconds"}
    return parse_shape(NewRotation, fields, synonyms=synonyms)


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
        words = _ended(status, Elapsed(now - ended_at, is_past=True) if ended_at is not None else None)
        if live_tokens:
            return _(
                "%(ended)s. Still active: %(tokens)s.", ended=words, tokens=format_token_count(live_tokens)
            )
        if status == BLOCKED and ended_at is None:
            return _("Blocked.")
        return _("%(ended)s.", ended=words)
    if last_used_at is None:
        age = now - created_at
        if age < RECENTLY_USED:
            return _("Not used yet.")
        since = Elapsed(age, is_past=True)
        if age >= UNUSED_AFTER:
            return _("Never used since it was created %(since)s. Safe to revoke.", since=since)
        return _("Never used since it was created %(since)s. Check again later.", since=since)
    unused = now - last_used_at
    if unused < UNUSED_AFTER:
        used = {"ago": Elapsed(unused, is_past=True), "origin": _format_origin(addresses)}
        if unused < RECENTLY_USED:
            return _("Used %(ago)s%(origin)s. Still needed.", **used)
        return _("Last used %(ago)s%(origin)s. Probably still needed.", **used)
    if live_tokens:
        return _(
            "Unused for %(span)s. Still active: %(tokens)s.",
            span=Elapsed(unused),
            tokens=format_token_count(live_tokens),
        )
    return _("Unused for %(span)s. Safe to revoke.", span=Elapsed(unused))


def _ended(status: str, ago: str | None) -> str:
    if ago is None:
        return {REVOKED: _("Revoked"), EXPIRED: _("Expired"), BLOCKED: _("Blocked")}.get(
            status, status.capitalize()
        )
    told = {
        REVOKED: _("Revoked %(ago)s", ago=ago),
        EXPIRED: _("Expired %(ago)s", ago=ago),
        BLOCKED: _("Blocked %(ago)s", ago=ago),
    }
    return told.get(status, f"{status.capitalize()} {ago}")


def assess_rotation(now: datetime, *, new: SecretUse | None, old: Sequence[SecretUse]) -> RotationVerdict:
    """Assess a rotation: safe once the new secret is used and the old ones were unused for an hour since."""
    if new is None:
        return RotationVerdict(False, _("There is no new secret. Cancel the rotation or rotate again."))
    used = [use for use in old if use.last_used_at is not None]
    if new.last_used_at is None:
        if not used:
            return RotationVerdict(False, _("Neither secret has been used yet. Deploy the new secret first."))
        return RotationVerdict(False, _("The new secret has not been used yet. Deploy the new secret first."))
    since = new.first_used_at or new.last_used_at
    first = Elapsed(now - since, is_past=True)
    if not used:
        return RotationVerdict(
            True,
            _(
                "The new secret was first used %(first)s. The old secret was never used. It is safe to revoke.",
                first=first,
            ),
        )
    last = max(use.last_used_at for use in used if use.last_used_at is not None)
    origin = _format_origin(max(use.addresses for use in used))
    unused_for = now - max(last, since)
    summary = _(
        "The new secret was first used %(first)s. The old secret was last used %(latest)s%(origin)s.",
        first=first,
        latest=Elapsed(now - last, is_past=True),
        origin=origin,
    )
    if unused_for >= MIN_QUIET_TIME:
        return RotationVerdict(True, _("%(summary)s It is safe to revoke.", summary=summary))
    if last > since:
        return RotationVerdict(False, _("%(summary)s It is still needed.", summary=summary))
    return RotationVerdict(
        False,
        _(
            "%(summary)s Wait until it has been unused for %(span)s.",
            summary=summary,
            span=Elapsed(MIN_QUIET_TIME),
        ),
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
    if addresses == 1:
        return _(" from %(count)s IP address", count="1")
    return _(" from %(count)s IP addresses", count=f"{addresses:,}") if addresses else ""


def format_token_count(number: int) -> str:
    """Format a count like ``12 tokens``, or ``1,000 tokens or more`` at the limit."""
    if number >= MANY_TOKENS:
        return _("%(count)s tokens or more", count=f"{number:,}")
    return _("%(count)s token", count="1") if number == 1 else _("%(count)s tokens", count=f"{number:,}")


def _check_expiry(errors: ValidationErrors, now: datetime, expiry: datetime, max_seconds: int | None) -> None:
    if expiry <= now:
        errors.add("expires_at", "in_the_past", "This time is in the past.")
    elif expiry - now > MAX_SECRET_LIFETIME:
        errors.add("expires_at", "too_far", "A secret can be valid for at most ten years.")
    elif max_seconds is not None and expiry - now > timedelta(seconds=max_seconds):
        message = f"This organization allows secrets to be valid for at most {max_seconds} seconds."
        errors.add("expires_at", "too_far", message)
