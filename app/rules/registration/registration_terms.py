"""Terms of an initial access token (RFC 7591 section 3): its name, its end, and how many clients it may register."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.rules.fields import Findings, find_unknown, text_problem, type_name
from app.rules.registration.credential_terms import moment_sent

FIELDS = ("name", "expires_at", "max_uses")
READ_ONLY = ("id", "hint", "uses", "status", "created_at", "created_by", "last_used_at", "revoked_at")
DEFAULT_LIFE = timedelta(days=30)
LONGEST_LIFE = timedelta(days=365)
MOST_USES = 10_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What a token is made with; ``max_uses`` None lets it register as many clients as the organization has room for."""

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
    ends = now + DEFAULT_LIFE
    if sent.get("expires_at") is not None:
        ends = moment_sent(findings, sent["expires_at"]) or ends
        if ends <= now:
            findings.add("expires_at", "in_the_past", "This time has passed.")
        elif ends - now > LONGEST_LIFE:
            findings.add("expires_at", "too_far", f"A token lives at most {LONGEST_LIFE.days} days.")
    uses = sent.get("max_uses")
    if uses is not None:
        if not isinstance(uses, int) or isinstance(uses, bool):
            findings.add("max_uses", "wrong_type", f"This must be a whole number, not {type_name(uses)}.")
        elif not 1 <= uses <= MOST_USES:
            findings.add("max_uses", "out_of_range", f"This must be from 1 to {MOST_USES}.")
    findings.raise_if_any()
    return Terms(str(name), ends, uses)
