"""Webhooks (Standard Webhooks 1.0): validation of their fields, their secrets and signatures, and limits of retries."""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Annotated, Any

from app.rules.audit.events import SUBSCRIPTION_CHOICES
from app.rules.fields import FieldProblem, ValidationErrors, suggestion
from app.rules.redaction import redact
from app.rules.shapes import (
    Between,
    Items,
    OneOf,
    Rule,
    SchemaOnly,
    Shape,
    Text,
    check_shape,
    create_shape,
    described,
    parse_shape,
    rfc3339,
)
from app.rules.store.outgoing_http import (
    OutgoingRequestBlocked,
    parse_target,
    require_public_addresses,
    require_web_port,
)

FIELDS = ("url", "description", "event_types", "status")
READ_ONLY = (
    "id", "signing_secret", "disabled_reason", "failing_since", "previous_secret_expires_at", "created_at",
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


def _event_type_problem(value: str) -> FieldProblem | None:
    if value in SUBSCRIPTION_CHOICES:
        return None
    return FieldProblem(
        "unknown_event_type", f"There is no such event type.{suggestion(value, SUBSCRIPTION_CHOICES)}"
    )


class NewWebhook(Shape):
    """A new webhook."""

    url: Annotated[
        str,
        SchemaOnly(minLength=1, maxLength=MAX_URL_LENGTH),
        described("An HTTPS URL on the public internet."),
    ]
    event_types: Annotated[
        tuple[Annotated[str, Rule(_event_type_problem, (("enum", list(SUBSCRIPTION_CHOICES)),))], ...],
        Items(len(SUBSCRIPTION_CHOICES), min_items=1, unique=False),
        described("Names, groups such as `user.*`, or `*`."),
    ]
    description: Annotated[
        Annotated[str, Text(200, min_length=0)] | None,
        described("A note for administrators. Users don't see it."),
    ] = None
    status: Annotated[str, OneOf(STATUSES), described("A disabled webhook receives no events.")] | None = None


WebhookChange = create_shape("WebhookChange", NewWebhook, not_null=("url", "event_types"))


class SecretRotation(Shape):
    """The rotation of a signing secret."""

    overlap_seconds: (
        Annotated[
            int,
            Between(0, int(MAX_OVERLAP.total_seconds())),
            described(
                "How long requests are signed with both the old and the new secret. The default is one day."
            ),
        ]
        | None
    ) = None


def validate_webhook_fields(
    sent: Mapping[str, Any], *, is_new: bool, allowed_hosts: frozenset[str]
) -> dict[str, Any]:
    """Return the values to store: every field of a new webhook, or those to change; null restores the default.

    ``allowed_hosts`` are private hosts that the operator allows. Raises InvalidInput with every invalid field.
    """
    errors = ValidationErrors()
    required = {
        "url": "Enter the URL that receives the events.",
        "event_types": 'Enter the event types to send, such as ["user.*"].',
    }
    shape = NewWebhook if is_new else WebhookChange
    check_shape(errors, shape, sent, read_only=READ_ONLY, required=required)
    if isinstance(sent.get("url"), str):
        _check_url(errors, sent["url"], allowed_hosts)
    errors.raise_if_any()
    values: dict[str, Any] = {"description": "", "status": STATUSES[0]} if is_new else {}
    values |= {name: sent[name] for name in FIELDS if name in sent}
    if "event_types" in values:
        values["event_types"] = [name for name in SUBSCRIPTION_CHOICES if name in values["event_types"]]
    for name, default in (("description", ""), ("status", STATUSES[0])):
        if name in values:
            values[name] = values[name] or default
    return values


def parse_overlap(sent: Mapping[str, Any]) -> timedelta:
    """Return how long the old secret signs beside the new one. Raises InvalidInput."""
    parse_shape(SecretRotation, sent)
    seconds = sent.get("overlap_seconds")
    return DEFAULT_OVERLAP if seconds is None else timedelta(seconds=seconds)


def new_secret() -> str:
    """Return a new signing secret: ``whsec_`` and 256 random bits in base64."""
    return _SECRET_PREFIX + b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign_message(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return ``v1,`` and the HMAC-SHA256 of id, Unix time in seconds and body, joined by full stops."""
    key = b64decode(secret.removeprefix(_SECRET_PREFIX))
    content = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(key, content, "sha256")).decode()


def build_body(event_type: str, at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body to send, limited in size and with secrets redacted.

    If the event is too large, ``before`` and ``after`` are left out and ``truncated`` is true.
    """
    shown: dict[str, Any] = _redacted(data)
    body = {"type": event_type, "timestamp": rfc3339(at), "data": {**shown, "truncated": False}}
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


def _check_url(errors: ValidationErrors, url: str, allowed_hosts: frozenset[str]) -> None:
    try:
        target = parse_target(url)
        require_web_port(target, allowed_hosts)
        if _is_ip_address(target.host):
            require_public_addresses(target, [target.host], allowed_hosts)
        elif _is_loopback(target.host):
            require_public_addresses(target, [_LOOPBACK], allowed_hosts)
    except OutgoingRequestBlocked as blocked:
        errors.add("url", blocked.code, blocked.description)


def _is_loopback(host: str) -> bool:
    # Such names always resolve to the loopback interface (RFC 6761 section 6.3).
    return host == "localhost" or host.endswith(".localhost")


def _is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: _redacted(item) for name, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, (list, tuple)) else value
