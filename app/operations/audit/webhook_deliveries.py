"""Deliveries of webhooks: list them, send them, redeliver one, and send a test event."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Select, select, update

from app.extensions import db
from app.models.audit import DELIVERED, ENABLED, FAILED, PENDING, OutboxMessage, Webhook, WebhookDelivery
from app.models.base import dump_json, has_key, is_same
from app.operations.audit.webhook_publishing import KIND, create_delivery, enqueue_delivery, min_expiry
from app.operations.audit.webhooks import (
    disable_gone_webhook,
    get_webhook_row,
    record_failure,
    record_success,
    record_webhook_event,
    require_webhook_permissions,
    sealing_context,
    webhook_record,
)
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import clock, keyring, outbox, outgoing_http, rate_limits
from app.operations.store.outbox import DeliveryDeferred, DeliveryPaused, DeliveryRejected, Message
from app.operations.store.outgoing_http import OutgoingRequestFailed, ServerUnreachable
from app.operations.store.rows import Page, PageRequest, get_row, make_record, read_page
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.audit.events import TEST_EVENT
from app.rules.audit.webhooks import build_body, is_message_rejected, is_success, redact_headers, sign_message
from app.rules.errors import Conflict, NotFound, TooManyRequests
from app.rules.identifiers import HasPublicId, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.store.outgoing_http import OutgoingRequestBlocked

PREFIX = "dlv"
RETRYING = "retrying"
STATUSES = (PENDING, RETRYING, DELIVERED, FAILED)
MAX_MANUAL_DELIVERIES_PER_HOUR = 120
_GONE = 410


class DeliveryRecord(HasPublicId, Struct, frozen=True):
    """A delivery; ``status`` is pending, retrying, delivered or failed, and the rest describes the last attempt.

    ``body`` is what was sent, for actors who may read the audit log, and None for others.
    """

    id_prefix = PREFIX  # Also the ``webhook-id``.
    id: UUID
    webhook_id: UUID
    event_type: str
    status: str
    attempts: int
    created_at: datetime
    attempted_at: datetime | None
    next_attempt_at: datetime | None
    duration_ms: int | None
    response_status: int | None
    response_headers: Mapping[str, str] | None
    failure: str | None
    body: Mapping[str, Any] | None

    @property
    def is_open(self) -> bool:
        """Return whether it is still retried automatically."""
        return self.status in {PENDING, RETRYING}

    @property
    def is_due(self) -> bool:
        """Return whether the next attempt waits for nothing."""
        return self.next_attempt_at is not None and self.next_attempt_at <= clock.now()

    @property
    def is_unreachable(self) -> bool:
        """Return whether only the server's log says why the last attempt failed (SF-5)."""
        return self.failure == ServerUnreachable().description


@read
def list_deliveries(
    actor: Actor, webhook_id: str, page_request: PageRequest = PageRequest()
) -> Page[DeliveryRecord]:
    """Return a page of the deliveries of the webhook, newest first. Raises NotFound, Forbidden."""
    actor.require("webhooks:read")
    row = get_webhook_row(actor, webhook_id)
    page = read_page(_deliveries(row), (WebhookDelivery.id,), page_request)
    return page.map(lambda found: _record(actor, found))


@read
def get_delivery(actor: Actor, webhook_id: str, delivery_id: str) -> DeliveryRecord:
    """Return one delivery. Raises NotFound, Forbidden."""
    actor.require("webhooks:read")
    return _find(actor, get_webhook_row(actor, webhook_id), delivery_id)


@transaction
def redeliver(actor: Actor, webhook_id: str, delivery_id: str) -> DeliveryRecord:
    """Send the event again now under the same ``webhook-id``. A pending delivery is sent without waiting.

    Raises NotFound, Forbidden, TooManyRequests, and Conflict for a disabled webhook. Audit: ``webhook.redelivered``.
    """
    require_webhook_permissions(actor)
    row = _require_enabled(actor, webhook_id)
    before = _find(actor, row, delivery_id)
    _enforce_rate_limit(actor)
    if before.is_open:
        mine = has_key(WebhookDelivery, row.organization_id, before.id)
        message_id = db.session.scalars(select(WebhookDelivery.message_id).where(mine)).one()
        outbox.send_now(row.organization_id, message_id)
    else:
        _restart(before, row)
    record_webhook_event(actor, "webhook.redelivered", row.id, after={"delivery_id": before.public_id})
    return _find(actor, row, delivery_id)


@transaction
def send_test(actor: Actor, webhook_id: str) -> DeliveryRecord:
    """Send ``webhook.test`` to the webhook, whatever it subscribes to.

    Raises NotFound, Forbidden, TooManyRequests, and Conflict for a disabled webhook. Audit: ``webhook.tested``.
    """
    require_webhook_permissions(actor)
    row = _require_enabled(actor, webhook_id)
    _enforce_rate_limit(actor)
    organization = get_organization_by_id(actor.organization_id)
    data = {"organization_id": organization.slug, "webhook_id": webhook_record(row).public_id}
    body = build_body(TEST_EVENT, clock.now(), data)
    made = create_delivery(organization, row.id, TEST_EVENT, body, immediately=True)
    db.session.flush()
    record_webhook_event(actor, "webhook.tested", row.id, after={"delivery_id": public_id(PREFIX, made)})
    return _find(actor, row, public_id(PREFIX, made))


def _require_enabled(actor: Actor, webhook_id: str) -> Webhook:
    row = get_webhook_row(actor, webhook_id)
    if not webhook_record(row).is_enabled:
        raise Conflict("The webhook is disabled. Enable it first.", code="webhook_disabled")
    return row


def _enforce_rate_limit(actor: Actor) -> None:
    bucket = rate_limits.bucket_key("webhook by hand")
    if not rate_limits.consume_quota(
        actor.organization_id, bucket, MAX_MANUAL_DELIVERIES_PER_HOUR, timedelta(hours=1)
    ):
        message = lazy_gettext(
            "You can request at most %(max)s deliveries per hour. Try again later.",
            max=MAX_MANUAL_DELIVERIES_PER_HOUR,
        )
        raise TooManyRequests(message, retry_after=600)


def _restart(delivery: DeliveryRecord, row: Webhook) -> None:
    mine = has_key(WebhookDelivery, row.organization_id, delivery.id)
    old, expires_at = db.session.execute(
        select(WebhookDelivery.message_id, WebhookDelivery.expires_at).where(mine)
    ).one()
    message_id = enqueue_delivery(row.organization_id, row.id, delivery.id, immediately=True)
    # Of two concurrent requests only one sends it: the message of the other finds no delivery.
    count_changed(
        update(WebhookDelivery)
        .where(mine, WebhookDelivery.message_id == old)
        .values(message_id=message_id, status=PENDING, expires_at=max(expires_at, min_expiry(clock.now())))
    )


def _deliveries(row: Webhook) -> Select[*tuple[Any, ...]]:
    return (
        select(
            WebhookDelivery,
            OutboxMessage.done_at.label("done_at"),
            OutboxMessage.available_at.label("available_at"),
            OutboxMessage.created_at.label("queued_at"),
        )
        .outerjoin(
            OutboxMessage,
            is_same(OutboxMessage.id, WebhookDelivery.message_id),
        )
        .where(WebhookDelivery.organization_id == row.organization_id, WebhookDelivery.webhook_id == row.id)
    )


def _find(actor: Actor, row: Webhook, delivery_id: str) -> DeliveryRecord:
    statement = _deliveries(row).where(WebhookDelivery.id == parse_public_id(PREFIX, delivery_id))
    return _record(actor, get_row(statement, "There is no such delivery."))


def _record(actor: Actor, found: Any) -> DeliveryRecord:
    row, done_at, available_at, queued_at = found
    status = row.status
    if status == PENDING:
        # The outbox gave the message up, or has deleted it since.
        is_waiting = available_at is not None and done_at is None
        # One that is sent again by a user may have been attempted before.
        is_tried = is_waiting and row.attempted_at is not None and row.attempted_at >= queued_at
        status = FAILED if not is_waiting else RETRYING if is_tried else PENDING
    return make_record(
        DeliveryRecord,
        row,
        status=status,
        # Stored in English, like the messages without a value.
        failure=_describe_status(row.response_status) if row.failure and row.response_status else row.failure,
        next_attempt_at=available_at if status in {PENDING, RETRYING} else None,
        body=row.body if actor.has_permission("audit:read") else None,
    )


class _WebhookRequest(Struct, frozen=True):
    """The request to send; ``secrets`` are in clear text."""

    webhook_id: UUID
    delivery_id: UUID
    url: str
    body: Mapping[str, Any]
    secrets: tuple[str, ...]


class _Attempt(Struct, frozen=True):
    """The result of an attempt; ``status`` is None if no complete response arrived."""

    milliseconds: int
    status: int | None
    headers: dict[str, str] | None
    failure: str | None


def register_webhook_delivery() -> None:
    """Register the delivery of webhook messages with the outbox."""
    outbox.register_delivery(KIND, deliver_webhook, receiver_type="webhook", to_external_server=True)


def deliver_webhook(message: Message) -> None:
    """Send the event to the endpoint, which accepts it with a 2xx response.

    Raises DeliveryRejected if there is no webhook or it responded with 410, which disables it, and DeliveryPaused while
    the organization is suspended. Raises DeliveryDeferred if it rejects this event but may accept others, and
    OutgoingRequestFailed if all its events should be retried later.
    Audit: ``webhook.disabled`` if it has failed for too long.
    """
    _require_active(message.organization_id)
    request = _find_request(message)
    if request is None:
        raise DeliveryRejected("the webhook was deleted or disabled")
    attempt = _send(message.organization_id, request)
    actor = Actor.system(message.organization_id, "webhooks")
    is_gone = attempt.status == _GONE
    _store_attempt(message, request, attempt, is_gone=is_gone)
    if attempt.failure is None:
        waited = clock.now() - message.created_at
        record_success(actor, request.webhook_id, waited=waited)
        return
    if is_gone:
        disable_gone_webhook(actor, request.webhook_id)
        raise DeliveryRejected("the endpoint responded with 410")
    record_failure(actor, request.webhook_id, request.delivery_id, is_retry=message.attempts > 1)
    if attempt.status is not None and is_message_rejected(attempt.status):
        raise DeliveryDeferred(attempt.failure)
    raise OutgoingRequestFailed(attempt.failure)


def _require_active(organization_id: str) -> None:
    try:
        organization = get_organization_by_id(organization_id)
    except NotFound:
        raise DeliveryRejected("the organization was deleted") from None
    if not organization.is_active:
        raise DeliveryPaused("the organization is suspended", outbox.SUSPENSION_PAUSE)


@read
def _find_request(message: Message) -> _WebhookRequest | None:
    delivery_id = parse_public_id("dlv", message.payload["delivery"])
    row = db.session.execute(
        select(WebhookDelivery, Webhook)
        .join(Webhook, is_same(Webhook.id, WebhookDelivery.webhook_id))
        .where(
            has_key(WebhookDelivery, message.organization_id, delivery_id),
            # After a redelivery, another message carries it.
            WebhookDelivery.message_id == message.id,
            Webhook.deleted_at.is_(None),
            Webhook.status == ENABLED,
        )
    ).first()
    if row is None:
        return None
    delivery, webhook = row
    return _WebhookRequest(webhook.id, delivery.id, webhook.url, delivery.body, _unseal_secrets(webhook))


def _unseal_secrets(webhook: Webhook) -> tuple[str, ...]:
    sealed = [webhook.sealed_secret]
    until = webhook.previous_secret_until
    if until is not None and until > clock.now():
        sealed.append(webhook.sealed_previous_secret)
    context = sealing_context(webhook.id)
    return tuple(
        keyring.unseal(webhook.organization_id, each, context).decode() for each in sealed if each is not None
    )


def _send(organization_id: str, request: _WebhookRequest) -> _Attempt:
    body = dump_json(request.body).encode()
    message_id, timestamp = public_id("dlv", request.delivery_id), int(clock.now().timestamp())
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(
            sign_message(secret, message_id, timestamp, body) for secret in request.secrets
        ),
    }
    started_at = time.monotonic()
    try:
        response = outgoing_http.post(
            request.url,
            organization_id=organization_id,
            body=body,
            content_type="application/json",
            headers=headers,
        )
    except (OutgoingRequestFailed, OutgoingRequestBlocked) as error:
        return _Attempt(_elapsed_ms(started_at), None, None, error.description)
    failure = None if is_success(response.status) else _describe_status(response.status)
    return _Attempt(_elapsed_ms(started_at), response.status, redact_headers(response.headers), failure)


def _describe_status(status: int) -> str:
    return lazy_gettext("The endpoint responded with status %(status)s.", status=status)


def _elapsed_ms(started_at: float) -> int:
    return round((time.monotonic() - started_at) * 1000)


@transaction
def _store_attempt(message: Message, request: _WebhookRequest, attempt: _Attempt, *, is_gone: bool) -> None:
    status = DELIVERED if attempt.failure is None else FAILED if is_gone else PENDING
    count_changed(
        update(WebhookDelivery)
        .where(
            has_key(WebhookDelivery, message.organization_id, request.delivery_id),
            WebhookDelivery.message_id == message.id,
        )
        .values(
            status=status,
            attempts=WebhookDelivery.attempts + 1,
            attempted_at=clock.now(),
            duration_ms=attempt.milliseconds,
            response_status=attempt.status,
            response_headers=attempt.headers,
            failure=attempt.failure[:200] if attempt.failure else None,
        )
    )
