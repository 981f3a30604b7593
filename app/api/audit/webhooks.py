"""Webhooks: list, create, show, update, delete, rotate the secret, send a test; and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from app.api.endpoints import Body, Endpoints, Shown, show_page
from app.api.openapi.webhook_events import CALLBACKS
from app.api.representations import Count, CreatedAt, CreatedBy, Representation, Source, UpdatedAt, optional
from app.operations.audit import webhook_deliveries, webhooks
from app.operations.audit.webhook_deliveries import STATUSES as DELIVERY_STATUSES
from app.operations.audit.webhook_deliveries import DeliveryRecord
from app.operations.audit.webhooks import WebhookRecord
from app.rules.audit.events import SUBSCRIPTION_CHOICES
from app.rules.audit.webhooks import MAX_URL_LENGTH, STATUSES, NewWebhook, SecretRotation, WebhookChange
from app.rules.identifiers import public_id
from app.rules.shapes import OneOf, PublicId, SchemaOnly, described
from app.web.bearer import ApiContext
from app.web.json_api import expected_version

endpoints = Endpoints("Webhooks", "webhooks")
_WebhookId = Annotated[str, PublicId("whk", "webhook")]


def _disabled_reason(record: WebhookRecord) -> str | None:
    return "manual" if record.disabled_because == "person" else record.disabled_because


def _webhook_id(record: DeliveryRecord) -> str:
    return public_id("whk", record.webhook_id)


class Webhook(Representation):
    """A webhook, without its secret."""

    id: Annotated[_WebhookId, Source("public_id")]
    url: Annotated[
        str,
        SchemaOnly(minLength=1, maxLength=MAX_URL_LENGTH),
        described("The HTTPS URL that receives the events."),
    ]
    event_types: Annotated[
        list[Annotated[str, OneOf(SUBSCRIPTION_CHOICES)]],
        SchemaOnly(minItems=1, maxItems=len(SUBSCRIPTION_CHOICES)),
        described("The events it receives: names, groups such as `user.*`, or `*`."),
    ]
    description: Annotated[
        str, SchemaOnly(maxLength=200), described("A note for administrators. Users don't see it.")
    ]
    status: Annotated[str, OneOf(STATUSES), described("A disabled webhook receives no events.")]
    disabled_reason: Annotated[
        Annotated[
            str,
            OneOf(("manual", "gone", "failing", "backlog")),
            described("`manual` if a person disabled it. Otherwise, the service disabled it."),
        ]
        | None,
        Source(_disabled_reason),
    ]
    failing_since: Annotated[
        datetime | None,
        described("The first failure after the last success, or after five days in which nothing was sent."),
    ]
    previous_secret_expires_at: Annotated[
        datetime | None,
        Source("previous_secret_until"),
        described("Until then, requests are signed with two secrets."),
    ]
    created_at: CreatedAt
    created_by: CreatedBy
    updated_at: UpdatedAt


class WebhookWithSecret(Webhook):
    """A webhook with its signing secret."""

    signing_secret: Annotated[str, described("`whsec_…`. Only this response contains it.")] = optional()


class WebhookDelivery(Representation):
    """A delivery of an event."""

    id: Annotated[str, PublicId("dlv", "delivery"), Source("public_id")]
    webhook_id: Annotated[_WebhookId, Source(_webhook_id)]
    event_type: Annotated[str, described("The name of the event, such as `client.registered`.")]
    status: Annotated[
        str,
        OneOf(DELIVERY_STATUSES),
        described(
            "`pending` means not attempted since the event occurred or was redelivered. `retrying` means that an "
            "attempt failed and another follows."
        ),
    ]
    attempts: Annotated[Count, described("The number of attempts so far.")]
    created_at: Annotated[datetime, described("When the delivery was queued.")]
    attempted_at: Annotated[
        datetime | None, described("When the last attempt was made. Null before the first one.")
    ]
    next_attempt_at: Annotated[
        datetime | None, described("When the next attempt is due. Null if there will be none.")
    ]
    duration_ms: Annotated[Count | None, described("The duration of the last attempt.")]
    response_status: Annotated[int | None, described("Null if there was no complete response.")]
    response_headers: Annotated[
        dict[str, str] | None, described("Some headers of the last response. Null before the first one.")
    ]
    failure: Annotated[str | None, described("Why the last attempt failed.")]


class WebhookDeliveryWithBody(WebhookDelivery):
    """A delivery of an event, with its body."""

    body: Annotated[dict[str, Any] | None, described("What was sent. Null without `audit:read`.")]


@endpoints.page("/webhooks", returns=Webhook)
def list_webhooks(context: ApiContext) -> object:
    """List webhooks.

    The newest first.
    """
    return show_page(context, "webhooks", webhooks.list_webhooks)


@endpoints.post("/webhooks", body=NewWebhook, returns=WebhookWithSecret, callbacks=CALLBACKS)
def create_webhook(context: ApiContext, body: Body) -> object:
    """Create a webhook.

    From now on, the URL receives events, signed as in Standard Webhooks, at least once each and in no guaranteed
    order. An organization can have at most 20. Also requires `audit:read` and, for a user, a recent sign-in (RFC 9470).
    """
    new = webhooks.create_webhook(context.actor, body)
    return Shown(new.record, {"signing_secret": new.secret})


@endpoints.get("/webhooks/<webhook_id>", returns=Webhook)
def get_webhook(context: ApiContext, webhook_id: str) -> object:
    """Get a webhook."""
    return webhooks.get_webhook(context.actor, webhook_id)


@endpoints.put("/webhooks/<webhook_id>", body=WebhookChange, returns=Webhook)
def update_webhook(context: ApiContext, body: Body, webhook_id: str) -> object:
    """Update a webhook.

    Enabling a webhook or changing its URL resets its failures. Also requires `audit:read`. For another URL, a user
    needs a recent sign-in (RFC 9470).
    """
    return webhooks.update_webhook(context.actor, webhook_id, body, expected_version=expected_version())


@endpoints.delete("/webhooks/<webhook_id>", returns=Webhook, if_match=True)
def delete_webhook(context: ApiContext, webhook_id: str) -> object:
    """Delete a webhook.

    Nothing more is sent to it, including pending deliveries.
    """
    return webhooks.delete_webhook(context.actor, webhook_id, expected_version=expected_version())


@endpoints.post(
    "/webhooks/<webhook_id>/secret",
    status=200,
    etag=True,
    body=SecretRotation,
    is_body_optional=True,
    returns=WebhookWithSecret,
)
def rotate_webhook_secret(context: ApiContext, body: Body, webhook_id: str) -> object:
    """Rotate the signing secret of a webhook.

    Until the old secret expires, requests have two signatures. Another rotation ends the oldest secret. Also requires
    `audit:read` and, for a user, a recent sign-in (RFC 9470).
    """
    new = webhooks.rotate_webhook_secret(context.actor, webhook_id, body)
    return Shown(new.record, {"signing_secret": new.secret})


@endpoints.post("/webhooks/<webhook_id>/test", status=202, returns=WebhookDelivery)
def test_webhook(context: ApiContext, webhook_id: str) -> object:
    """Send a test event.

    It is sent regardless of the chosen event types. Also requires `audit:read`.
    """
    return webhook_deliveries.send_test(context.actor, webhook_id)


@endpoints.page("/webhooks/<webhook_id>/deliveries", returns=WebhookDelivery)
def list_webhook_deliveries(context: ApiContext, webhook_id: str) -> object:
    """List deliveries.

    The newest first.
    """
    read = webhook_deliveries.list_deliveries
    return show_page(context, f"deliveries {webhook_id}", read, webhook_id)


@endpoints.get("/webhooks/<webhook_id>/deliveries/<delivery_id>", returns=WebhookDeliveryWithBody)
def get_webhook_delivery(context: ApiContext, webhook_id: str, delivery_id: str) -> object:
    """Get a delivery."""
    return webhook_deliveries.get_delivery(context.actor, webhook_id, delivery_id)


@endpoints.post(
    "/webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver", status=202, returns=WebhookDelivery
)
def redeliver_webhook(context: ApiContext, webhook_id: str, delivery_id: str) -> object:
    """Send an event again.

    Immediately, with the same `webhook-id` and body. Also requires `audit:read`.
    """
    return webhook_deliveries.redeliver(context.actor, webhook_id, delivery_id)
