"""The body of a wider revocation: what is selected, what was issued before which moment, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.rules.fields import Findings, find_unknown, text_problem, type_name
from app.rules.identifiers import parse_client_id, parse_public_id

FIELDS = ("organization_id", "token_type", "token")
TOKEN_TYPES = ("refresh_token", "access_token")
_SYNONYMS = {"token_type_hint": "token_type", "organization": "organization_id", "access_token": "token"}


@dataclass(frozen=True, slots=True)
class RevocationRequest:
    """A checked body. ``token_type`` says where to look first and narrows nothing (RFC 7009 section 2.1)."""

    organization_id: str
    token_type: str
    token: str


def revocation_request(fields: Mapping[str, Any]) -> RevocationRequest:
    """The checked body; raises InvalidInput naming every wrong field."""
    found = Findings()
    find_unknown(found, fields, FIELDS, synonyms=_SYNONYMS)
    for name in FIELDS:
        value = fields.get(name)
        if name not in fields:
            found.add(name, "required", "This is required.")
        elif not isinstance(value, str):
            found.add(name, "wrong_type", f"This must be a string, not {type_name(value)}.")
        elif not value:
            found.add(name, "too_short", "This must not be empty.")
    if not found.touches("token_type") and fields["token_type"] not in TOKEN_TYPES:
        found.add("token_type", "not_allowed", f"This must be one of: {', '.join(TOKEN_TYPES)}.")
    found.raise_if_any()
    return RevocationRequest(fields["organization_id"], fields["token_type"], fields["token"])


GRANT, CLIENT, CREDENTIAL, USER, SESSION, ORGANIZATION = (
    "grant",
    "client",
    "credential",
    "user",
    "session",
    "organization",
)
# By the field that selects: exactly one of them is sent.
SELECTORS: Mapping[str, str] = {
    "grant_id": GRANT,
    "client_id": CLIENT,
    "credential_id": CREDENTIAL,
    "user_id": USER,
    "session_id": SESSION,
    "all": ORGANIZATION,
}
PREFIXES: Mapping[str, str] = {GRANT: "grt", CREDENTIAL: "sec", USER: "usr", SESSION: "ses"}
BULK_FIELDS = (*SELECTORS, "issued_before", "sessions", "reason", "dry_run")
# Whose sign-ins can end, too.
WITH_SESSIONS = frozenset({USER, SESSION, ORGANIZATION})
LONGEST_REASON = 500
_BULK_SYNONYMS = {
    "grant": "grant_id",
    "client": "client_id",
    "credential": "credential_id",
    "user": "user_id",
    "session": "session_id",
    "organization": "all",
    "everything": "all",
    "before": "issued_before",
}


@dataclass(frozen=True, slots=True)
class RevocationOrder:
    """A checked body. ``subject`` is the id that was sent, empty for the whole organization.

    ``issued_before`` is None for "now": the moment is then the database's, when it is done.
    """

    kind: str
    subject: str
    issued_before: datetime | None
    sessions: bool
    reason: str | None
    dry_run: bool


def revocation_order(fields: Mapping[str, Any], now: datetime) -> RevocationOrder:
    """The checked body, by the database's clock; raises InvalidInput naming every wrong field."""
    found = Findings()
    find_unknown(found, fields, BULK_FIELDS, synonyms=_BULK_SYNONYMS)
    sent = {name: value for name, value in fields.items() if value is not None}
    kind, subject = _selection(found, sent)
    moment = None if "issued_before" not in sent else _moment(found, sent["issued_before"], now)
    for name in ("sessions", "dry_run"):
        if name in sent and not isinstance(sent[name], bool):
            found.add(name, "wrong_type", f"This must be true or false, not {type_name(sent[name])}.")
    if "reason" in sent:
        found.add_problem("reason", text_problem(sent["reason"], longest=LONGEST_REASON))
    if not found.touches("sessions"):
        _check_sessions(found, kind, sent.get("sessions"))
    found.raise_if_any()
    return RevocationOrder(
        kind,
        subject,
        moment,
        sessions=sent.get("sessions", kind in {USER, SESSION}),
        reason=sent.get("reason"),
        dry_run=sent.get("dry_run", False),
    )


def _selection(found: Findings, sent: Mapping[str, Any]) -> tuple[str, str]:
    named = [name for name in SELECTORS if name in sent]
    if len(named) != 1:
        words = "Send exactly one of: " + ", ".join(SELECTORS) + "."
        for name in named or ["client_id"]:
            found.add(name, "too_many" if named else "required", words)
        return "", ""
    [name] = named
    value = sent[name]
    if name == "all":
        if value is not True:
            found.add(
                name, "not_allowed", "Send true: everything of this organization. Leave it out otherwise."
            )
        return ORGANIZATION, ""
    if not isinstance(value, str):
        found.add(name, "wrong_type", f"This must be a string, not {type_name(value)}.")
        return "", ""
    kind = SELECTORS[name]
    known = parse_client_id(value) if kind == CLIENT else parse_public_id(PREFIXES[kind], value)
    if known is None:
        found.add(name, "invalid_id", f"This is no id of a {kind}.")
    return kind, value


def _moment(found: Findings, value: Any, now: datetime) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    words = "Send a time with its zone, like 2030-01-31T12:00:00Z (RFC 3339)."
    if not isinstance(value, datetime) or value.tzinfo is None:
        found.add("issued_before", "invalid_time", words)
        return None
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        found.add("issued_before", "invalid_time", words)
        return None
    if moment > now:
        # What is issued from now on is for whoever issues it: disable the client or the user instead.
        found.add("issued_before", "in_the_future", "This must not be in the future. Leave it out for now.")
    return moment


def _check_sessions(found: Findings, kind: str, sessions: bool | None) -> None:
    if sessions and kind and kind not in WITH_SESSIONS:
        allowed = ", ".join(name for name, which in SELECTORS.items() if which in WITH_SESSIONS)
        found.add("sessions", "not_allowed", f"Sign-ins end with one of: {allowed}.")
    if sessions is False and kind == SESSION:
        found.add("sessions", "not_allowed", "A sign-in that is selected ends. Leave this out.")
