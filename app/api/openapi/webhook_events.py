"""The requests that webhooks receive (Standard Webhooks), as callbacks of the operation that creates a webhook.

Generators make methods of a client from ``webhooks`` of OpenAPI 3.1, and nothing from callbacks.
"""

from __future__ import annotations

from app.api.endpoints import JsonSchema, component, object_schema, pascal_case, reference
from app.api.representations import SLUG_KEYWORDS
from app.rules.audit.events import EVENT_TYPES, TEST_EVENT, action_for_event_type
from app.rules.shapes import PublicId

_TEXT: JsonSchema = {"type": "string"}
_NULLABLE: JsonSchema = {"type": ["string", "null"]}
_TIME: JsonSchema = {"type": "string", "format": "date-time"}
_SLUG: JsonSchema = {"type": "string", **SLUG_KEYWORDS, "description": "The organization of the event."}
_CHANGES: JsonSchema = {
    "type": ["object", "null"],
    "description": "The changed fields, without secrets. Null if there are none.",
}
_REQUIRED = ("type", "timestamp", "data")
_HEADERS = [
    {"name": name, "in": "header", "required": True, "description": description, "schema": _TEXT}
    for name, description in {
        "webhook-id": "`dlv_…`, the same in every attempt, so that duplicates can be recognized.",
        "webhook-timestamp": "When this attempt was signed, in Unix seconds.",
        "webhook-signature": "`v1,` and the base64 of HMAC-SHA256 over id, timestamp and body, joined by full stops. "
        "While a secret is rotated, two of them, separated by a space.",
    }.items()
]


def _id(prefix: str, noun: str) -> JsonSchema:
    return {"type": "string"} | PublicId(prefix, noun).json_schema()


_EVENT = object_schema(
    ("id", "organization_id", "action", "actor", "target", "truncated"),
    id=_id("evt", "event"),
    organization_id=_SLUG,
    action={"type": "string", "description": "The action in the audit log."},
    actor=reference("AuditActor"),
    target=reference("AuditTarget"),
    before=_CHANGES,
    after=_CHANGES,
    ip_address={**_NULLABLE, "description": "The IP address of the request. Null if it is unknown."},
    request_id={**_NULLABLE, "description": "The `X-Request-Id` of the request. Null if there was none."},
    truncated={
        "type": "boolean",
        "description": "Whether `before` and `after` were left out because they are too large. The audit log has them.",
    },
) | {"description": "As in the audit log. More properties may be added."}

SCHEMAS: JsonSchema = {
    "WebhookEvent": object_schema(
        _REQUIRED,
        type={"type": "string", "description": "The event type."},
        timestamp={**_TIME, "description": "When the event occurred."},
        data=component("WebhookEventData", _EVENT),
    ),
    "WebhookTestEvent": object_schema(
        _REQUIRED,
        type={"type": "string", "const": TEST_EVENT, "description": "The event type."},
        timestamp={**_TIME, "description": "When the test was requested."},
        data=component(
            "WebhookTestEventData",
            object_schema(
                organization_id=_SLUG,
                webhook_id=_id("whk", "webhook"),
                truncated={"type": "boolean", "description": "Always false."},
            )
            | {"description": "The webhook that is tested."},
        ),
    ),
}


def _request(event_type: str, description: str, schema: str) -> JsonSchema:
    content = {"application/json": {"schema": reference(schema)}}
    operation = {
        "post": {
            "operationId": f"on{pascal_case(event_type)}",
            "summary": event_type,
            "description": description,
            "parameters": _HEADERS,
            "requestBody": {"required": True, "content": content},
            "responses": {
                "2XX": {"description": "The event was received."},
                "410": {"description": "The URL no longer exists. The webhook is disabled."},
                "default": {
                    "description": "The delivery is retried for three days. Redirects are not followed."
                },
            },
        }
    }
    return {"{$request.body#/url}": operation}


CALLBACKS: JsonSchema = {
    name: _request(name, f"{text} In the audit log: `{action_for_event_type(name)}`.", "WebhookEvent")
    for name, text in EVENT_TYPES.items()
} | {TEST_EVENT: _request(TEST_EVENT, "A test of the webhook.", "WebhookTestEvent")}
