"""Terms of an initial access token (RFC 7591 section 3): its name, its end, and how many clients it may register."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.rules.fields import Findings, find_unknown, text_problem, type_name
from app.rules.registration.credential_terms import moment_sent

FIELDS = ("name", "expires_at", "expires_in_days", "max_uses")
READ_ONLY = ("id", "hint", "uses", "status", "created_at", "created_by", "last_used_at", "revoked_at")
DEFAULT_LIFE = timedelta(days=30)
LONGEST_LIFE = timedelta(days=365)
MOST_USES = 10_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What a token is made with; ``max_uses`` None: as many clients as there is room for."""

    name: str
    expires_at: datetime
    max_uses: int | None


def check_terms(now: datetime, sent: Mapping[str, Any]) -> Terms:
    """The terms of a request. Raises InvalidInput naming every wrong field at once."""
    findings = Findings()
    find_unknown(findings, sent, FIELDS, read_only=READ_ONLY)
    name = sent.get("name")
    if name is None:
        findings.add("name", "required", "Say who the token is for.")
    else:
        findings.add_problem("name", text_problem(name, longest=100))
    days = _number(findings, sent, "expires_in_days", LONGEST_LIFE.days)
    ends = now + (DEFAULT_LIFE if days is None else timedelta(days=days))
    if sent.get("expires_at") is not None:
        ends = moment_sent(findings, sent["expires_at"]) or ends
        if days is not None:
            findings.add("expires_at", "inconsistent", "Send the end or the days until it, not both.")
        elif ends <= now:
            findings.add("expires_at", "in_the_past", "This time has passed.")
        elif ends - now > LONGEST_LIFE:
            findings.add("expires_at", "too_far", f"A token lives at most {LONGEST_LIFE.days} days.")
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
