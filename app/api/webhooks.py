"""Webhooks: list, add, show, change, delete, a new secret, a test; their deliveries, and one of them again."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.api.lists import listed
from app.api.representations import time
from app.operations.audit import webhook_deliveries, webhooks
from app.operations.audit.webhook_deliveries import DeliveryRecord
from app.operations.audit.webhooks import WebhookRecord
from app.operations.store.idempotency import IdempotentResult
from app.rules.identifiers import public_id
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS


@api.get("/webhooks")
@management(*PARAMETERS)
def list_webhooks(call: Call) -> Response:
    """The organization's webhooks, the newest first."""
    return listed(call, "webhooks", webhooks.list_webhooks, show=webhook)


@api.post("/webhooks")
@management()
def create_webhook(call: Call) -> Response:
    """A new webhook, with its signing secret this once."""
    body = read_object()

    def work() -> IdempotentResult:
        made = webhooks.create_webhook(call.actor, body)
        data = {**webhook(made.record), "signing_secret": made.secret}
        return created(data, made.record.public_id, headers={"ETag": etag_of(made.record.version)})

    return once(call.actor, body, work)


@api.get("/webhooks/<webhook_id>")
@management()
def get_webhook(call: Call, webhook_id: str) -> Response:
    """One webhook."""
    return _one(webhooks.get_webhook(call.actor, webhook_id))


@api.put("/webhooks/<webhook_id>")
@management()
def update_webhook(call: Call, webhook_id: str) -> Response:
    """The fields that were sent are replaced."""
    record, changed = webhooks.update_webhook(
        call.actor, webhook_id, read_object(), expected_version=expected_version()
    )
    return _one(record, meta={"changed": list(changed)})


@api.delete("/webhooks/<webhook_id>")
@management()
def delete_webhook(call: Call, webhook_id: str) -> Response:
    """Nothing is told there any more."""
    return envelope(
        webhook(webhooks.delete_webhook(call.actor, webhook_id, expected_version=expected_version()))
    )


@api.post("/webhooks/<webhook_id>/secret")
@management()
def rotate_webhook_secret(call: Call, webhook_id: str) -> Response:
    """A new signing secret, in clear this once."""
    body = read_object(optional=True)

    def work() -> IdempotentResult:
        made = webhooks.rotate_webhook_secret(call.actor, webhook_id, body)
        data = {**webhook(made.record), "signing_secret": made.secret}
        return IdempotentResult(200, data, {}, {"ETag": etag_of(made.record.version)})

    return once(call.actor, body, work)


@api.post("/webhooks/<webhook_id>/test")
@management()
def test_webhook(call: Call, webhook_id: str) -> Response:
    """An event to try it out is on its way."""

    def work() -> IdempotentResult:
        return _sent(webhook_deliveries.send_test(call.actor, webhook_id))

    return once(call.actor, {}, work)


@api.get("/webhooks/<webhook_id>/deliveries")
@management(*PARAMETERS)
def list_webhook_deliveries(call: Call, webhook_id: str) -> Response:
    """What the webhook was told, the newest first."""
    return listed(
        call, f"deliveries {webhook_id}", webhook_deliveries.list_deliveries, webhook_id, show=delivery
    )


@api.get("/webhooks/<webhook_id>/deliveries/<delivery_id>")
@management()
def get_webhook_delivery(call: Call, webhook_id: str, delivery_id: str) -> Response:
    """One delivery, with what was sent and the head of the answer."""
    record = webhook_deliveries.get_delivery(call.actor, webhook_id, delivery_id)
    return envelope({**delivery(record), "body": record.body})


@api.post("/webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver")
@management()
def redeliver_webhook(call: Call, webhook_id: str, delivery_id: str) -> Response:
    """The event is sent once more."""

    def work() -> IdempotentResult:
        return _sent(webhook_deliveries.redeliver(call.actor, webhook_id, delivery_id))

    return once(call.actor, {}, work)


def webhook(record: WebhookRecord) -> dict[str, Any]:
    """A webhook as the API shows it."""
    return {
        "id": record.public_id,
        "url": record.url,
        "description": record.description,
        "event_types": list(record.event_types),
        "status": record.status,
        "disabled_because": record.disabled_because,
        "failing_since": time(record.failing_since),
        "previous_secret_until": time(record.previous_secret_until),
        "created_at": time(record.created_at),
        "created_by": record.created_by,
        "updated_at": time(record.updated_at),
    }


def delivery(record: DeliveryRecord) -> dict[str, Any]:
    """A delivery as the API lists it."""
    return {
        "id": record.public_id,
        "webhook_id": public_id("whk", record.webhook_id),
        "event_type": record.event_type,
        "status": record.status,
        "attempts": record.attempts,
        "created_at": time(record.created_at),
        "attempted_at": time(record.attempted_at),
        "next_attempt_at": time(record.next_attempt_at),
        "duration_ms": record.duration_ms,
        "response_status": record.response_status,
        "response_headers": record.response_headers,
        "failure": record.failure,
    }


def _one(record: WebhookRecord, **more: Any) -> Response:
    return envelope(webhook(record), headers={"ETag": etag_of(record.version)}, **more)


def _sent(record: DeliveryRecord) -> IdempotentResult:
    return IdempotentResult(202, delivery(record), {}, {})
