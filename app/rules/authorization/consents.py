"""Consents: their expiry and validity after client changes. Requests of members for administrator approval."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Struct

from app.rules.clients.client_types import ALLOWED, FIRST_PARTY, PRE_APPROVED, UNVERIFIED
from app.rules.fields import ValidationErrors, text_problem
from app.rules.shapes import Shape, Text, described

TODAY, THIRTY_DAYS, UNTIL_REMOVED = "today", "30_days", "until_removed"
# The user's time zone is unknown, so "today" means 24 hours.
_SPANS = {TODAY: timedelta(hours=24), THIRTY_DAYS: timedelta(days=30)}
NAME, LOGO, REDIRECTS, POLICY, TERMS, REVIEWED = (
    "name", "logo_uri", "redirect_uris", "policy_uri", "tos_uri", "reviewed",
)  # fmt: skip
SCOPES = "scopes"
# Beside the client's properties: when scopes expire that were allowed for a shorter time than the consent lasts.
EXPIRIES = "expiries"
_DIGEST_LENGTH = 22
MAX_REASON_LENGTH = 300
OPEN, APPROVED, DECLINED = "open", "approved", "declined"
STATUSES = (OPEN, APPROVED, DECLINED)
PENDING_RETENTION = timedelta(days=90)
DECIDED_RETENTION = timedelta(days=30)


class ConsentExpiry(Struct, frozen=True):
    """An expiry that the user can choose; ``at`` is None for a consent that lasts until it is withdrawn."""

    name: str
    at: datetime | None


def max_consent_seconds(settings: Mapping[str, Any]) -> int | None:
    """Return the maximum lifetime of consents in seconds, or None if it is unlimited."""
    seconds: int | None = settings["oauth"]["consent"]["ttl_seconds"]
    return seconds


def requires_user_consent(trust: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a client with this trust needs the user's consent. For first-party clients a setting decides."""
    return trust != FIRST_PARTY or bool(settings["oauth"]["consent"]["policy"] == "always")


def offered_expiries(
    requested_at: datetime, now: datetime, ttl_seconds: int | None
) -> tuple[ConsentExpiry, ...]:
    """Return the expiries that the user can choose from, ending with the longest that the organization allows.

    They are calculated from the time of the request, so that the page shows the exact time. ``ttl_seconds`` is the
    organization's maximum, from the time of the decision.
    """
    longest = None if ttl_seconds is None else now + timedelta(seconds=ttl_seconds)
    chosen = [ConsentExpiry(name, requested_at + span) for name, span in _SPANS.items()]
    shorter = [end for end in chosen if end.at is not None and (longest is None or end.at < longest)]
    return (*shorter, ConsentExpiry(UNTIL_REMOVED, longest))


def consent_expiry(given_at: datetime, stored: datetime | None, ttl_seconds: int | None) -> datetime | None:
    """Return when a consent expires: the stored time, or earlier if the organization reduced its maximum."""
    longest = None if ttl_seconds is None else given_at + timedelta(seconds=ttl_seconds)
    return min((end for end in (longest, stored) if end is not None), default=None)


def scope_expiries(shown: Mapping[str, Any] | None) -> dict[str, datetime]:
    """Return when scopes of a consent expire that were allowed for a shorter time, by name."""
    return {name: datetime.fromisoformat(at) for name, at in ((shown or {}).get(EXPIRIES) or {}).items()}


def unexpired_scopes(scope: str, shown: Mapping[str, Any] | None, now: datetime) -> tuple[str, ...]:
    """Return the scopes of a consent, separated by spaces, without those that have expired before it."""
    expiries = scope_expiries(shown)
    return tuple(name for name in scope.split() if name not in expiries or expiries[name] > now)


def consent_snapshot(name: str, trust: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a client that a consent depends on: its name, and short digests of the others.

    Changed scopes do not invalidate a consent, because it lists the scopes that it covers. Their digest shows whether
    declined scopes should be requested again.
    """
    return {
        NAME: name,
        LOGO: _digest(document.get("logo_uri")),
        REDIRECTS: _digest(sorted(document.get("redirect_uris") or ())),
        POLICY: _digest(document.get("policy_uri")),
        TERMS: _digest(document.get("tos_uri")),
        REVIEWED: trust != UNVERIFIED,
        SCOPES: _digest([sorted(document.get(name) or ()) for name in ("scopes", "optional_scopes")]),
    }


def changed_parts(shown: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the properties that have changed since the consent; none for a consent without a snapshot.

    Losing the verified mark is a change, but receiving it is not.
    """
    if shown is None:
        return ()
    return tuple(
        part
        for part in (NAME, LOGO, REDIRECTS, POLICY, TERMS, REVIEWED)
        if shown.get(part) != now[part] and not (part == REVIEWED and now[part])
    )


def page_digest(client_id: str, version: int, session_id: str, requested: Iterable[str]) -> bytes:
    """Return the digest of a consent page; the client's version covers its name, logo and redirect URIs."""
    return hashlib.sha256("|".join((client_id, str(version), session_id, *requested)).encode()).digest()


def _digest(value: Any) -> str | None:
    if not value:
        return None
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:_DIGEST_LENGTH]


class ClientApproval(Shape):
    """An approval of a request."""

    verified: Annotated[bool, described("Also mark the client as verified.")] = False
    client_version: (
        Annotated[
            int,
            described("The version that was reviewed. If the client has changed since, the response is 409."),
        ]
        | None
    ) = None


class ClientRefusal(Shape):
    """A rejection of a request."""

    message: (
        Annotated[
            str, Text(MAX_REASON_LENGTH, min_length=0, multiline=True), described("A message for the member.")
        ]
        | None
    ) = None


def check_reason(text: str) -> str:
    """Return the reason. Raises InvalidInput if it is missing, too long, or contains control characters."""
    reason = text.replace("\r\n", "\n").strip()
    errors = ValidationErrors()
    if not reason:
        errors.add("reason", "required", "Explain in one sentence why you need the app.")
    else:
        errors.add_problem("reason", text_problem(reason, max_length=MAX_REASON_LENGTH, multiline=True))
    errors.raise_if_any()
    return reason


def approval_after(before: str | None) -> str:
    """Return the approval of a client after a request for it was approved; a broader approval is kept."""
    return PRE_APPROVED if before == PRE_APPROVED else ALLOWED
