"""Requests of members that an administrator allow a client: what they may say, and how long they wait."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from app.rules.clients.client_types import ALLOWED, PRE_APPROVED
from app.rules.fields import ValidationErrors, text_problem
from app.rules.shapes import Shape, Text, check_shape, described

FIRST_PARTY = "first_party"
TODAY, THIRTY_DAYS, UNTIL_REMOVED = "today", "30_days", "until_removed"
# Whose day it is depends on where the person is, which nobody here knows: "today" is a day of 24 hours.
_SPANS = {TODAY: timedelta(hours=24), THIRTY_DAYS: timedelta(days=30)}


@dataclass(frozen=True, slots=True)
class ConsentExpiry:
    """One end that may be chosen; ``at`` is None for a consent that lasts until it is removed."""

    name: str
    at: datetime | None


def max_consent_seconds(settings: Mapping[str, Any]) -> int | None:
    """For how many seconds an organization lets a consent stand at most; None: for ever."""
    seconds: int | None = settings["oauth"]["consent"]["ttl_seconds"]
    return seconds


def requires_user_consent(trust: str, settings: Mapping[str, Any]) -> bool:
    """Whether a client of that trust gets its scopes from people's own consents, its organization's own as it says."""
    return trust != FIRST_PARTY or bool(settings["oauth"]["consent"]["policy"] == "always")


def offered_expiries(
    requested_at: datetime, now: datetime, ttl_seconds: int | None
) -> tuple[ConsentExpiry, ...]:
    """The ends that a person may choose from, the last one the longest that the organization allows.

    Those of the person's choice count from when the app asked: so the page shows the very time that will hold.
    ``ttl_seconds`` is the organization's bound, which counts from the decision; None is none.
    """
    longest = None if ttl_seconds is None else now + timedelta(seconds=ttl_seconds)
    chosen = [ConsentExpiry(name, requested_at + span) for name, span in _SPANS.items()]
    shorter = [end for end in chosen if end.at is not None and (longest is None or end.at < longest)]
    return (*shorter, ConsentExpiry(UNTIL_REMOVED, longest))


def consent_expiry(given_at: datetime, written: datetime | None, ttl_seconds: int | None) -> datetime | None:
    """When a consent ends: as was written down, or sooner where the organization's bound was shortened since."""
    longest = None if ttl_seconds is None else given_at + timedelta(seconds=ttl_seconds)
    return min((end for end in (longest, written) if end is not None), default=None)


def find_offered_expiry(name: str, offered: tuple[ConsentExpiry, ...]) -> ConsentExpiry | None:
    """The end of that name, or None when it was not offered."""
    return next((end for end in offered if end.name == name), None)


NAME, LOGO, REDIRECTS, POLICY, TERMS, REVIEWED = (
    "name", "logo_uri", "redirect_uris", "policy_uri", "tos_uri", "reviewed",
)  # fmt: skip
SCOPES = "scopes"
_KEPT = 22


def consent_snapshot(name: str, trust: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What of a client a consent rests on: its name, and short digests of the rest.

    Its scopes are no reason to ask again: the consent names those it covers, and more is asked for anyway. Their
    digest says until when what a person left out stays left out.
    """
    return {
        NAME: name,
        LOGO: _digest(document.get("logo_uri")),
        REDIRECTS: _digest(sorted(document.get("redirect_uris") or ())),
        POLICY: _digest(document.get("policy_uri")),
        TERMS: _digest(document.get("tos_uri")),
        REVIEWED: trust != "unverified",
        SCOPES: _digest([sorted(document.get(name) or ()) for name in ("scopes", "optional_scopes")]),
    }


def changed_parts(shown: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts that differ from what was shown; nothing for a consent that kept no account of it.

    A mark of review counts when it was taken away: that it was given is no reason to doubt.
    """
    if shown is None:
        return ()
    return tuple(
        part
        for part in (NAME, LOGO, REDIRECTS, POLICY, TERMS, REVIEWED)
        if shown.get(part) != now[part] and not (part == REVIEWED and now[part])
    )


def page_digest(client_id: str, version: int, session_id: str, asked: Iterable[str]) -> bytes:
    """The digest of all that a consent page says; the client's version covers its name, logo and redirects."""
    return hashlib.sha256("|".join((client_id, str(version), session_id, *asked)).encode()).digest()


def _digest(value: Any) -> str | None:
    if not value:
        return None
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:_KEPT]


MAX_REASON_LENGTH = 300
OPEN, APPROVED, DECLINED = "open", "approved", "declined"
STATUSES = (OPEN, APPROVED, DECLINED)
PENDING_RETENTION = timedelta(days=90)
DECIDED_RETENTION = timedelta(days=30)


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


@dataclass(frozen=True, slots=True)
class Approval:
    """What an administrator says yes to: members may allow the client, and whether it gets the mark of review.

    ``client_version`` is the client's as the administrator saw it; None for whoever does not say.
    """

    verified: bool
    client_version: int | None = None


def check_reason(text: str) -> str:
    """The reason in one piece. Raises InvalidInput when it is missing, too long or holds what no text should."""
    reason = text.replace("\r\n", "\n").strip()
    errors = ValidationErrors()
    if not reason:
        errors.add("reason", "required", "Say in one sentence why you need the app.")
    else:
        errors.add_problem("reason", text_problem(reason, max_length=MAX_REASON_LENGTH, multiline=True))
    errors.raise_if_any()
    return reason


def check_approval(fields: Mapping[str, Any]) -> Approval:
    """Return what the administrator sent. Raises InvalidInput with every invalid field."""
    errors = ValidationErrors()
    check_shape(errors, ClientApproval, fields)
    errors.raise_if_any()
    return Approval(fields.get("verified", False), fields.get("client_version"))


def check_refusal(fields: Mapping[str, Any]) -> str | None:
    """Return the message for the member, or None. Raises InvalidInput with every invalid field."""
    errors = ValidationErrors()
    check_shape(errors, ClientRefusal, fields)
    errors.raise_if_any()
    return fields.get("message") or None


def approval_after(before: str | None) -> str:
    """What stands of the client once a request for it was approved; more than that stays as it is."""
    return PRE_APPROVED if before == PRE_APPROVED else ALLOWED
