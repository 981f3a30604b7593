"""Terms of a new client secret: its name, its end, and when those before it end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from app.rules.fields import Findings, find_unknown, text_problem, type_name

LONGEST_LIFE = timedelta(days=3650)
LONGEST_OVERLAP_SECONDS = 90 * 86_400


ROTATION_FIELDS = ("ends_in_seconds", "revoke_tokens")


@dataclass(frozen=True, slots=True)
class RotationTerms:
    """When the old secrets of a rotation end, and whether what they minted ends with them; None leaves it as it is."""

    ends_in_seconds: int | None
    revoke_tokens: bool | None


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
    elif ends - now > LONGEST_LIFE:
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
