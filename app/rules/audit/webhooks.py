"""Webhooks (Standard Webhooks 1.0): what may be set of one, its secret, its signature, and when trying ends."""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

from app.rules.audit.events import CHOICES
from app.rules.fields import Findings, find_unknown, suggestion, text_problem, type_name
from app.rules.redaction import redact
from app.rules.store.outgoing_http import OutgoingRequestBlocked, parse_target, require_public_addresses

FIELDS = ("url", "description", "event_types", "status")
READ_ONLY = (
    "id", "signing_secret", "disabled_because", "failing_since", "previous_secret_until", "created_at",
    "created_by", "updated_at",
)  # fmt: skip
STATUSES = ("enabled", "disabled")
MOST_OF_AN_ORGANIZATION = 20
LONGEST_URL = 2048
LARGEST_BODY = 20_000

GIVEN_UP_AFTER = timedelta(days=3)
DISABLED_AFTER = timedelta(days=5)
"""Of failures alone, without one success between."""
MOST_WAITING = 10_000

DEFAULT_OVERLAP = timedelta(days=1)
LONGEST_OVERLAP = timedelta(days=7)

_SECRET_PREFIX = "whsec_"
_SECRET_BYTES = 32
_LOOPBACK = "127.0.0.1"
_KEPT_HEADERS = ("content-type", "date", "location", "retry-after", "server")
_LONGEST_HEADER = 200
# Refusals of this one message: others may go on (RFC 9110 sections 15.5.1, .10, .14, .21).
_ABOUT_THE_MESSAGE = frozenset({400, 409, 413, 422})


def check_fields(sent: Mapping[str, Any], *, is_new: bool, allowed_hosts: frozenset[str]) -> dict[str, Any]:
    """The values to store: every field of a new webhook, those sent of one that stands; null is the default.

    ``allowed_hosts`` are those that the operator lets be reached although they are private. Raises InvalidInput
    naming every wrong field at once.
    """
    findings = Findings()
    find_unknown(findings, sent, FIELDS, read_only=READ_ONLY)
    values: dict[str, Any] = {"description": "", "status": STATUSES[0]} if is_new else {}
    if is_new or "url" in sent:
        values["url"] = _url(findings, sent.get("url"), allowed_hosts)
    if "description" in sent:
        values["description"] = _description(findings, sent["description"])
    if is_new or "event_types" in sent:
        values["event_types"] = _event_types(findings, sent.get("event_types"))
    if "status" in sent:
        values["status"] = _status(findings, sent["status"])
    findings.raise_if_any()
    return values


def check_overlap(sent: Mapping[str, Any]) -> timedelta:
    """How long the secret before signs beside a new one. Raises InvalidInput."""
    findings = Findings()
    find_unknown(findings, sent, ("overlap_seconds",))
    value, most = sent.get("overlap_seconds"), int(LONGEST_OVERLAP.total_seconds())
    if value is not None:
        if not isinstance(value, int) or isinstance(value, bool):
            message = f"This must be a whole number, not {type_name(value)}."
            findings.add("overlap_seconds", "wrong_type", message)
        elif not 0 <= value <= most:
            findings.add("overlap_seconds", "out_of_range", f"This must be from 0 to {most}.")
    findings.raise_if_any()
    return DEFAULT_OVERLAP if value is None else timedelta(seconds=value)


def new_secret() -> str:
    """A fresh signing secret: ``whsec_`` and 256 random bits in base64."""
    return _SECRET_PREFIX + b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """``v1,`` and the HMAC-SHA256 of id, time in Unix seconds and body, joined by full stops."""
    key = b64decode(secret.removeprefix(_SECRET_PREFIX))
    content = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(key, content, "sha256")).decode()


def body_of(event_type: str, timestamp: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent: bounded, and without anything that looks like a secret, whatever the event holds.

    Of an event that is too large ``before`` and ``after`` are left out, and ``truncated`` says so.
    """
    shown: dict[str, Any] = _redacted(data)
    body = {"type": event_type, "timestamp": timestamp, "data": {**shown, "truncated": False}}
    if len(json.dumps(body).encode()) > LARGEST_BODY:
        body["data"] = {**shown, "before": None, "after": None, "truncated": True}
    return body


def is_delivered(status: int) -> bool:
    """Whether the answer says that the endpoint has the event; a redirect does not, for none is followed."""
    return 200 <= status < 300


def is_about_the_message(status: int) -> bool:
    """Whether the endpoint refuses this event alone, so that others need not wait for it."""
    return status in _ABOUT_THE_MESSAGE


def shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The few headers of an answer that help whoever looks for a fault, cut short and without secrets."""
    return {
        name: redact("".join(char if char.isprintable() else " " for char in headers[name]))[:_LONGEST_HEADER]
        for name in _KEPT_HEADERS
        if name in headers
    }


def _url(findings: Findings, value: Any, allowed_hosts: frozenset[str]) -> str:
    if value is None:
        findings.add("url", "required", "Say which address is told.")
    elif not isinstance(value, str):
        findings.add("url", "wrong_type", f"This must be a string, not {type_name(value)}.")
    else:
        try:
            target = parse_target(value)
            if _is_address(target.host):
                require_public_addresses(target, [target.host], allowed_hosts)
            elif _is_loopback(target.host):
                require_public_addresses(target, [_LOOPBACK], allowed_hosts)
        except OutgoingRequestBlocked as refusal:
            findings.add("url", refusal.code, refusal.description)
    return str(value)


def _is_loopback(host: str) -> bool:
    # RFC 6761 section 6.3: such names never lead anywhere else.
    return host == "localhost" or host.endswith(".localhost")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _description(findings: Findings, value: Any) -> str:
    if value is None or value == "":
        return ""
    findings.add_problem("description", text_problem(value, longest=200))
    return str(value)


def _event_types(findings: Findings, value: Any) -> list[str]:
    if value is None:
        findings.add("event_types", "required", 'Say what it is told of, such as ["user.*"].')
        return []
    if not isinstance(value, list):
        findings.add("event_types", "wrong_type", f"This must be an array, not {type_name(value)}.")
        return []
    if not 1 <= len(value) <= len(CHOICES):
        findings.add("event_types", "out_of_range", f"Choose 1 to {len(CHOICES)} event types.")
        return []
    for number, name in enumerate(value):
        field = f"event_types[{number}]"
        if not isinstance(name, str):
            findings.add(field, "wrong_type", f"This must be a string, not {type_name(name)}.")
        elif name not in CHOICES:
            message = f"There is no such event type.{suggestion(name, CHOICES)}"
            findings.add(field, "unknown_event_type", message)
    return [name for name in CHOICES if name in value]


def _status(findings: Findings, value: Any) -> str:
    if value is None:
        return STATUSES[0]
    if not isinstance(value, str):
        findings.add("status", "wrong_type", f"This must be a string, not {type_name(value)}.")
    elif value not in STATUSES:
        findings.add("status", "unknown_value", f"This must be one of {', '.join(STATUSES)}.")
    return str(value)


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: _redacted(item) for name, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, (list, tuple)) else value
