"""OpenAPI: what the endpoint of a webhook is sent (Standard Webhooks), as the document's ``webhooks``."""

from __future__ import annotations

from app.api.openapi.common import SLUG, public_id
from app.api.openapi.parts import Schema, flag, moment, nullable, ref, text
from app.rules.audit.events import EVENT_TYPES, TEST_EVENT, action_for_event_type

_STATE = nullable({"type": "object", "description": "The changed fields. It never holds a secret."})

SCHEMAS: Schema = {
    "WebhookEvent": {
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": text("The event type."),
            "timestamp": moment("When it happened."),
            "data": {
                "type": "object",
                "description": "As the audit log has it; further properties may come.",
                "required": ["id", "organization_id", "action", "actor", "target", "truncated"],
                "properties": {
                    "id": public_id("evt"),
                    "organization_id": SLUG,
                    "action": text("The action in the audit log."),
                    "actor": {
                        "type": "object",
                        "properties": {
                            "type": text(enum=["user", "client", "system", "anonymous"]),
                            "id": nullable(text()),
                            "label": text(),
                            "organization_id": text(),
                        },
                    },
                    "target": {
                        "type": "object",
                        "properties": {"type": nullable(text()), "id": nullable(text())},
                    },
                    "before": _STATE,
                    "after": _STATE,
                    "address": nullable(text()),
                    "request_id": nullable(text()),
                    "truncated": flag("`before` and `after` were too large; the audit log has them."),
                },
            },
        },
    },
    "WebhookTestEvent": {
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": {"const": TEST_EVENT},
            "timestamp": moment(),
            "data": {
                "type": "object",
                "properties": {
                    "organization_id": SLUG,
                    "webhook_id": public_id("whk"),
                    "truncated": {"const": False},
                },
            },
        },
    },
}
PATHS: Schema = {}


def _header(name: str, description: str) -> Schema:
    return {
        "name": name,
        "in": "header",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
    }


_HEADERS = [
    _header("webhook-id", "`dlv_…`, the same at each attempt: whoever heard it before may know it again."),
    _header("webhook-timestamp", "When this attempt was signed, in Unix seconds."),
    _header(
        "webhook-signature",
        "`v1,` and base64 of HMAC-SHA256 over id, timestamp and body, joined by full stops; two of them, parted by a "
        "space, while a secret is rotated.",
    ),
]


def _told(event_type: str, description: str, schema: str) -> Schema:
    return {
        "post": {
            "summary": event_type,
            "description": description,
            "parameters": _HEADERS,
            "requestBody": {"required": True, "content": {"application/json": {"schema": ref(schema)}}},
            "responses": {
                "2XX": {"description": "It is heard."},
                "410": {"description": "The endpoint is gone: the webhook is disabled."},
                "default": {"description": "It is tried again for three days; no redirect is followed."},
            },
        }
    }


WEBHOOKS: Schema = {
    name: _told(name, f"{words} In the audit log: `{action_for_event_type(name)}`.", "WebhookEvent")
    for name, words in EVENT_TYPES.items()
} | {TEST_EVENT: _told(TEST_EVENT, "Somebody tries the webhook out.", "WebhookTestEvent")}
