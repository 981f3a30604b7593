"""Terms of a new client secret: its name, its end, and when those before it end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.rules.fields import Findings, text_problem, type_name

LONGEST_LIFE = timedelta(days=3650)
LONGEST_OVERLAP_SECONDS = 90 * 86_400


def check_terms(
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
        _check_overlap(findings, retire_others_in_seconds)
    findings.raise_if_any()
    return ends


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
    elif ends - now > LONGEST_LIFE:
        findings.add("expires_at", "too_far", "A secret lives at most ten years.")
    elif longest_seconds is not None and ends - now > timedelta(seconds=longest_seconds):
        findings.add(
            "expires_at", "too_far", f"This organization lets a secret live {longest_seconds} seconds."
        )


def _check_overlap(findings: Findings, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"This must be a whole number of seconds, not {type_name(value)}."
        findings.add("retire_others_in_seconds", "wrong_type", message)
    elif not 0 <= value <= LONGEST_OVERLAP_SECONDS:
        message = f"This must be from 0 to {LONGEST_OVERLAP_SECONDS} seconds."
        findings.add("retire_others_in_seconds", "out_of_range", message)
