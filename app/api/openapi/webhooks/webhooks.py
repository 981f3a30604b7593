"""OpenAPI: webhooks and their deliveries; what an endpoint is sent stands in ``events``."""

from __future__ import annotations

from app.api.openapi.common import public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    changed,
    closed,
    count,
    created,
    listed,
    made,
    moment,
    nullable,
    operation,
    path_item,
    ref,
    request_object,
    shown,
    text,
)
from app.operations.audit.webhook_deliveries import STATUSES as DELIVERY_STATUSES
from app.rules.audit.events import SUBSCRIPTION_CHOICES, TEST_EVENT
from app.rules.audit.webhooks import MAX_OVERLAP, MAX_URL_LENGTH, STATUSES

_TAG = "Webhooks"
_FIELDS: dict[str, Schema] = {
    "url": text("A plain https address of the public internet.", minLength=1, maxLength=MAX_URL_LENGTH),
    "event_types": {
        "type": "array",
        "minItems": 1,
        "maxItems": len(SUBSCRIPTION_CHOICES),
        "items": text(enum=list(SUBSCRIPTION_CHOICES)),
        "description": "Names, groups such as `user.*`, or `*`.",
    },
    "description": text(maxLength=200),
    "status": text("A disabled one is told nothing.", enum=list(STATUSES)),
}
_SENT = _FIELDS | {"description": nullable(_FIELDS["description"]), "status": nullable(_FIELDS["status"])}
_WEBHOOK: dict[str, Schema] = {
    "id": public_id("whk"),
    **_FIELDS,
    "disabled_because": nullable(
        text(
            "`gone` and `failing` and `backlog` are the service's own doing.",
            enum=["person", "gone", "failing", "backlog"],
        )
    ),
    "failing_since": nullable(moment("The first failure after the last success.")),
    "previous_secret_until": nullable(moment("Until then two secrets sign.")),
    "created_at": moment(),
    "created_by": nullable(text()),
    "updated_at": moment(),
}
_DELIVERY: dict[str, Schema] = {
    "id": public_id("dlv"),
    "webhook_id": public_id("whk"),
    "event_type": text(),
    "status": text(enum=list(DELIVERY_STATUSES)),
    "attempts": count(),
    "created_at": moment(),
    "attempted_at": nullable(moment()),
    "next_attempt_at": nullable(moment()),
    "duration_ms": nullable(count("Of the last attempt.")),
    "response_status": nullable({"type": "integer", "description": "null: no whole answer came."}),
    "response_headers": nullable({"type": "object", "additionalProperties": text()}),
    "failure": nullable(text("Why the last attempt failed.")),
}
_SIGNED = _WEBHOOK | {"signing_secret": text("`whsec_…`, in this answer alone.")}

SCHEMAS: Schema = {
    "Webhook": closed(_WEBHOOK),
    "SignedWebhook": closed(_SIGNED, optional=("signing_secret",)),
    "NewWebhook": request_object(_SENT, required=("url", "event_types")),
    "WebhookChange": request_object(_SENT),
    "SecretRotation": request_object(
        {
            "overlap_seconds": nullable(
                {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": int(MAX_OVERLAP.total_seconds()),
                    "description": "How long the secret before signs beside the new one; a day when left out.",
                }
            )
        }
    ),
    "WebhookDelivery": closed(_DELIVERY),
    "WebhookDeliveryWithBody": closed(
        _DELIVERY
        | {"body": nullable({"type": "object", "description": "What was sent; null without `audit:read`."})}
    ),
}

_ONE = ("WebhookId", "Acting")
PATHS: Schema = {
    "/webhooks": path_item(
        (),
        get=operation(
            "listWebhooks",
            "List webhooks",
            tag=_TAG,
            scope="webhooks:read",
            parameters=("Limit", "Cursor", "Acting"),
            answers=listed("A page, the newest first.", "Webhook"),
        ),
        post=operation(
            "createWebhook",
            "Add a webhook",
            tag=_TAG,
            scope="webhooks:write",
            description="The endpoint hears of events from now on, signed as Standard Webhooks has it, at least once "
            "each and in no promised order. At most 20 an organization. Needs `audit:read` as well, and of a person "
            "a fresh sign-in (RFC 9470).",
            parameters=("IdempotencyKey", "Acting"),
            body=ref("NewWebhook"),
            answers=made("The webhook, with its signing secret this once.", "SignedWebhook"),
            extra=("409",),
        ),
    ),
    "/webhooks/{webhookId}": path_item(
        _ONE,
        get=operation(
            "getWebhook",
            "Read a webhook",
            tag=_TAG,
            scope="webhooks:read",
            answers=shown("Without its secret.", "Webhook", etag=True),
        ),
        put=operation(
            "updateWebhook",
            "Change a webhook",
            tag=_TAG,
            scope="webhooks:write",
            description="One that is enabled again begins without the failures of before. Needs `audit:read` as well; "
            "another address asks a person for a fresh sign-in (RFC 9470).",
            parameters=("IfMatch",),
            body=ref("WebhookChange"),
            answers=changed("As it is now.", "Webhook"),
            extra=("409",),
        ),
        delete=operation(
            "deleteWebhook",
            "Delete a webhook",
            tag=_TAG,
            scope="webhooks:write",
            description="Nothing is told there any more, what waited included.",
            parameters=("IfMatch",),
            answers=shown("As it was.", "Webhook"),
            extra=("409",),
        ),
    ),
    "/webhooks/{webhookId}/secret": path_item(
        _ONE,
        post=operation(
            "rotateWebhookSecret",
            "Rotate the signing secret of a webhook",
            tag=_TAG,
            scope="webhooks:write",
            description="Until the secret before ends, each request has two signatures. Needs `audit:read` as well, "
            "and of a person a fresh sign-in (RFC 9470).",
            parameters=("IdempotencyKey",),
            body=ref("SecretRotation"),
            is_body_optional=True,
            answers={
                "200": answer("The new secret, this once.", created(ref("SignedWebhook")), headers=("ETag",))
            },
            extra=("409",),
        ),
    ),
    "/webhooks/{webhookId}/test": path_item(
        _ONE,
        post=operation(
            "testWebhook",
            "Send a test event",
            tag=_TAG,
            scope="webhooks:write",
            description=f"`{TEST_EVENT}`, whatever was chosen. Needs `audit:read` as well.",
            parameters=("IdempotencyKey",),
            answers={"202": answer("It is on its way.", created(ref("WebhookDelivery")))},
            extra=("409",),
        ),
    ),
    "/webhooks/{webhookId}/deliveries": path_item(
        _ONE,
        get=operation(
            "listWebhookDeliveries",
            "List deliveries",
            tag=_TAG,
            scope="webhooks:read",
            parameters=("Limit", "Cursor"),
            answers=listed("A page, the newest first.", "WebhookDelivery"),
        ),
    ),
    "/webhooks/{webhookId}/deliveries/{deliveryId}": path_item(
        ("WebhookId", "DeliveryId", "Acting"),
        get=operation(
            "getWebhookDelivery",
            "Show a delivery",
            tag=_TAG,
            scope="webhooks:read",
            answers=shown("What was sent, and the head of the last answer.", "WebhookDeliveryWithBody"),
        ),
    ),
    "/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver": path_item(
        ("WebhookId", "DeliveryId", "Acting"),
        post=operation(
            "redeliverWebhook",
            "Send an event again",
            tag=_TAG,
            scope="webhooks:write",
            description="At once, with the same `webhook-id` and body. Needs `audit:read` as well.",
            parameters=("IdempotencyKey",),
            answers={"202": answer("It is on its way.", created(ref("WebhookDelivery")))},
            extra=("409",),
        ),
    ),
}
