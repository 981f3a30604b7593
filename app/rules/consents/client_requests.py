"""Requests of members that an administrator allow a client: what they may say, and how long they wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.rules.consents.approval import ALLOWED, PRE_APPROVED
from app.rules.fields import Findings, find_unknown, text_problem, type_name

LONGEST_REASON = 300
OPEN, APPROVED, DECLINED = "open", "approved", "declined"
STATUSES = (OPEN, APPROVED, DECLINED)
WAITS = timedelta(days=90)
KEPT_DECIDED = timedelta(days=30)


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
    findings = Findings()
    if not reason:
        findings.add("reason", "required", "Say in a sentence what you need the app for.")
    else:
        findings.add_problem("reason", text_problem(reason, longest=LONGEST_REASON, lines=True))
    findings.raise_if_any()
    return reason


def check_approval(fields: Mapping[str, Any]) -> Approval:
    """What the approver sent. Raises InvalidInput naming every wrong field."""
    findings = Findings()
    find_unknown(findings, fields, ("verified", "client_version"))
    verified = fields.get("verified", False)
    if not isinstance(verified, bool):
        findings.add("verified", "wrong_type", f"This must be true or false, not {type_name(verified)}.")
    version = fields.get("client_version")
    if version is not None and type(version) is not int:
        findings.add("client_version", "wrong_type", f"This must be a number, not {type_name(version)}.")
    findings.raise_if_any()
    return Approval(bool(verified), version)


def check_refusal(fields: Mapping[str, Any]) -> str | None:
    """The words for the member, or None. Raises InvalidInput naming every wrong field."""
    findings = Findings()
    find_unknown(findings, fields, ("message",))
    message = fields.get("message")
    if message is not None and message != "":
        findings.add_problem("message", text_problem(message, longest=LONGEST_REASON, lines=True))
    findings.raise_if_any()
    return message or None


def approval_after(before: str | None) -> str:
    """What stands of the client once a request for it was approved; more than that stays as it is."""
    return PRE_APPROVED if before == PRE_APPROVED else ALLOWED
