"""Webhooks (Standard Webhooks 1.0): validation of their fields, their secrets and signatures, and limits of retries."""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

from app.rules.audit.events import SUBSCRIPTION_CHOICES
from app.rules.fields import Findings, find_unknown, suggestion, text_problem, type_name
from app.rules.redaction import redact
from app.rules.store.outgoing_http import OutgoingRequestBlocked, parse_target, require_public_addresses

FIELDS = ("url", "description", "event_types", "status")
READ_ONLY = (
    "id", "signing_secret", "disabled_because", "failing_since", "previous_secret_until", "created_at",
    "created_by", "updated_at",
)  # fmt: skip
STATUSES = ("enabled", "disabled")
MAX_WEBHOOKS_PER_ORGANIZATION = 20
MAX_URL_LENGTH = 2048
MAX_BODY_BYTES = 20_000

DELIVERY_TIMEOUT = timedelta(days=3)
DISABLE_AFTER = timedelta(days=5)
"""Disable a webhook after this time without any success."""
MAX_PENDING_DELIVERIES = 10_000

DEFAULT_OVERLAP = timedelta(days=1)
MAX_OVERLAP = timedelta(days=7)

_SECRET_PREFIX = "whsec_"
_SECRET_BYTES = 32
_LOOPBACK = "127.0.0.1"
_STORED_HEADERS = ("content-type", "date", "location", "retry-after", "server")
_MAX_HEADER_LENGTH = 200
# Statuses that reject only this message, so that others can continue (RFC 9110 sections 15.5.1, .10, .14, .21).
_MESSAGE_REJECTIONS = frozenset({400, 409, 413, 422})


def validate_webhook_fields(
    sent: Mapping[str, Any], *, is_new: bool, allowed_hosts: frozenset[str]
) -> dict[str, Any]:
    """Return the values to store: all fields of a new webhook, or the sent fields of an existing one. null is the
    default.

    ``allowed_hosts`` are private hosts that the operator allows. Raises InvalidInput naming every invalid field.
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


def parse_overlap(sent: Mapping[str, Any]) -> timedelta:
    """Return how long the previous secret also signs. Raises InvalidInput."""
    findings = Findings()
    find_unknown(findings, sent, ("overlap_seconds",))
    value, maximum = sent.get("overlap_seconds"), int(MAX_OVERLAP.total_seconds())
    if value is not None:
        if not isinstance(value, int) or isinstance(value, bool):
            message = f"This must be a whole number, not {type_name(value)}."
            findings.add("overlap_seconds", "wrong_type", message)
        elif not 0 <= value <= maximum:
            findings.add("overlap_seconds", "out_of_range", f"This must be from 0 to {maximum}.")
    findings.raise_if_any()
    return DEFAULT_OVERLAP if value is None else timedelta(seconds=value)


def new_secret() -> str:
    """Return a new signing secret: ``whsec_`` and 256 random bits in base64."""
    return _SECRET_PREFIX + b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign_message(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return ``v1,`` and the HMAC-SHA256 of id, Unix time in seconds and body, joined by full stops."""
    key = b64decode(secret.removeprefix(_SECRET_PREFIX))
    content = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(key, content, "sha256")).decode()


def build_body(event_type: str, timestamp: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body to send, limited in size and with secrets redacted.

    If the event is too large, ``before`` and ``after`` are left out and ``truncated`` is true.
    """
    shown: dict[str, Any] = _redacted(data)
    body = {"type": event_type, "timestamp": timestamp, "data": {**shown, "truncated": False}}
    if len(json.dumps(body).encode()) > MAX_BODY_BYTES:
        body["data"] = {**shown, "before": None, "after": None, "truncated": True}
    return body


def is_success(status: int) -> bool:
    """Return whether the endpoint accepted the event. Redirects are not followed and do not count."""
    return 200 <= status < 300


def is_message_rejected(status: int) -> bool:
    """Return whether the endpoint rejects only this event, so that others need not wait."""
    return status in _MESSAGE_REJECTIONS


def redact_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the few response headers that help to find a fault, truncated and with secrets redacted."""
    return {
        name: redact("".join(char if char.isprintable() else " " for char in headers[name]))[
            :_MAX_HEADER_LENGTH
        ]
        for name in _STORED_HEADERS
        if name in headers
    }


def _url(findings: Findings, value: Any, allowed_hosts: frozenset[str]) -> str:
    if value is None:
        findings.add("url", "required", "Enter the URL that receives the events.")
    elif not isinstance(value, str):
        findings.add("url", "wrong_type", f"This must be a string, not {type_name(value)}.")
    else:
        try:
            target = parse_target(value)
            if _is_ip_address(target.host):
                require_public_addresses(target, [target.host], allowed_hosts)
            elif _is_loopback(target.host):
                require_public_addresses(target, [_LOOPBACK], allowed_hosts)
        except OutgoingRequestBlocked as refusal:
            findings.add("url", refusal.code, refusal.description)
    return str(value)


def _is_loopback(host: str) -> bool:
    # Such names always resolve to the loopback interface (RFC 6761 section 6.3).
    return host == "localhost" or host.endswith(".localhost")


def _is_ip_address(host: str) -> bool:
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
        findings.add("event_types", "required", 'Choose the event types, such as ["user.*"].')
        return []
    if not isinstance(value, list):
        findings.add("event_types", "wrong_type", f"This must be an array, not {type_name(value)}.")
        return []
    if not 1 <= len(value) <= len(SUBSCRIPTION_CHOICES):
        findings.add("event_types", "out_of_range", f"Choose 1 to {len(SUBSCRIPTION_CHOICES)} event types.")
        return []
    for number, name in enumerate(value):
        field = f"event_types[{number}]"
        if not isinstance(name, str):
            findings.add(field, "wrong_type", f"This must be a string, not {type_name(name)}.")
        elif name not in SUBSCRIPTION_CHOICES:
            message = f"There is no such event type.{suggestion(name, SUBSCRIPTION_CHOICES)}"
            findings.add(field, "unknown_event_type", message)
    return [name for name in SUBSCRIPTION_CHOICES if name in value]


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
