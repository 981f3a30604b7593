"""Deliveries of a webhook: what it was told, how that went, again by hand, and an event to try it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, select, update

from app.extensions import db
from app.models.event import OutboxMessage
from app.models.webhook import DELIVERED, FAILED, PENDING, Webhook, WebhookDelivery
from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.people import attempts
from app.operations.transaction import count_changed, read, transaction
from app.operations.webhooks.announcements import add_delivery, send_again
from app.operations.webhooks.endpoints import require_writer
from app.operations.webhooks.records import get_row, note, record_of
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound, TooManyRequests
from app.rules.evidence.event_types import TEST
from app.rules.evidence.webhooks import body_of
from app.rules.identifiers import encode_uuid, parse_public_id, public_id

PREFIX = "dlv"
RETRYING = "retrying"
STATUSES = (PENDING, RETRYING, DELIVERED, FAILED)
MOST_BY_HAND_AN_HOUR = 120


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """A delivery; ``status`` is pending, retrying, delivered or failed, the rest is of the last attempt.

    ``body`` is what was sent, for whoever may read the audit log; None for others.
    """

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
    def public_id(self) -> str:
        """``dlv_…``, its ``webhook-id``."""
        return public_id(PREFIX, self.id)

    @property
    def is_open(self) -> bool:
        """Whether it is still tried by itself."""
        return self.status in {PENDING, RETRYING}


@read
def list_deliveries(
    actor: Actor, webhook_id: str, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[DeliveryRecord]:
    """A page of what the webhook was told, the newest first. Raises NotFound, Forbidden."""
    actor.require("webhooks:read")
    row = get_row(actor, webhook_id)
    limit = min(limit, MOST)
    found = in_order(_deliveries(row), (WebhookDelivery.id,), after).limit(limit + 1)
    rows = db.session.execute(found).all()
    items = tuple(_record(actor, each) for each in rows[:limit])
    return Page(items, (encode_uuid(items[-1].id),) if len(rows) > limit else None)


@read
def get_delivery(actor: Actor, webhook_id: str, delivery_id: str) -> DeliveryRecord:
    """One delivery. Raises NotFound, Forbidden."""
    actor.require("webhooks:read")
    return _find(actor, get_row(actor, webhook_id), delivery_id)


@transaction
def redeliver(actor: Actor, webhook_id: str, delivery_id: str) -> DeliveryRecord:
    """The event is sent once more, at once, under the same ``webhook-id``; one that waits for its turn need not.

    Raises NotFound, Forbidden, TooManyRequests, and Conflict for a webhook that is disabled. Audit:
    ``webhook.redelivered``.
    """
    require_writer(actor)
    row = _require_enabled(actor, webhook_id)
    before = _find(actor, row, delivery_id)
    _require_patience(actor)
    if before.is_open:
        _hurry(before, row)
    else:
        _begin_again(before, row)
    note(actor, "webhook.redelivered", row.id, after={"delivery_id": before.public_id})
    return _find(actor, row, delivery_id)


@transaction
def send_test(actor: Actor, webhook_id: str) -> DeliveryRecord:
    """The webhook is told of ``webhook.test``, whatever was chosen for it.

    Raises NotFound, Forbidden, TooManyRequests, and Conflict for a webhook that is disabled. Audit:
    ``webhook.tested``.
    """
    require_writer(actor)
    row = _require_enabled(actor, webhook_id)
    _require_patience(actor)
    organization = organization_by_id(actor.organization_id)
    data = {"organization_id": organization.slug, "webhook_id": record_of(row).public_id}
    now = clock.now().astimezone(UTC).isoformat().replace("+00:00", "Z")
    made = add_delivery(organization, row.id, TEST, body_of(TEST, now, data))
    db.session.flush()
    note(actor, "webhook.tested", row.id, after={"delivery_id": public_id(PREFIX, made)})
    return _find(actor, row, public_id(PREFIX, made))


def _require_enabled(actor: Actor, webhook_id: str) -> Webhook:
    row = get_row(actor, webhook_id)
    if not record_of(row).is_enabled:
        raise Conflict("The webhook is disabled. Enable it first.", code="webhook_disabled")
    return row


def _require_patience(actor: Actor) -> None:
    bucket = attempts.bucket_of("webhook by hand")
    if not attempts.is_within(actor.organization_id, bucket, MOST_BY_HAND_AN_HOUR, timedelta(hours=1)):
        words = f"At most {MOST_BY_HAND_AN_HOUR} deliveries an hour can be asked for by hand."
        raise TooManyRequests(words, retry_after=600)


def _hurry(delivery: DeliveryRecord, row: Webhook) -> None:
    """What waits is due now. Whoever is delivering it has its lease, which this leaves alone."""
    now = clock.now()
    message = select(WebhookDelivery.message_id).where(
        WebhookDelivery.organization_id == row.organization_id, WebhookDelivery.id == delivery.id
    )
    count_changed(
        update(OutboxMessage)
        .where(
            OutboxMessage.organization_id == row.organization_id,
            OutboxMessage.id == message.scalar_subquery(),
            OutboxMessage.done_at.is_(None),
            OutboxMessage.available_at > now + timedelta(seconds=30),
        )
        .values(available_at=now)
    )


def _begin_again(delivery: DeliveryRecord, row: Webhook) -> None:
    mine = (WebhookDelivery.organization_id == row.organization_id, WebhookDelivery.id == delivery.id)
    old = db.session.scalar(select(WebhookDelivery.message_id).where(*mine))
    message_id = send_again(row.organization_id, row.id, delivery.id)
    # Of two who ask at once one sends it: the other's message finds that it carries nothing.
    count_changed(
        update(WebhookDelivery)
        .where(*mine, WebhookDelivery.message_id == old)
        .values(message_id=message_id, status=PENDING)
    )


def _deliveries(row: Webhook) -> Select[*tuple[Any, ...]]:
    return (
        select(
            WebhookDelivery,
            OutboxMessage.done_at.label("done_at"),
            OutboxMessage.available_at.label("available_at"),
        )
        .outerjoin(
            OutboxMessage,
            and_(
                OutboxMessage.organization_id == WebhookDelivery.organization_id,
                OutboxMessage.id == WebhookDelivery.message_id,
            ),
        )
        .where(WebhookDelivery.organization_id == row.organization_id, WebhookDelivery.webhook_id == row.id)
    )


def _find(actor: Actor, row: Webhook, delivery_id: str) -> DeliveryRecord:
    row_id = parse_public_id(PREFIX, delivery_id)
    found = None
    if row_id is not None:
        statement = _deliveries(row).where(WebhookDelivery.id == row_id)
        found = db.session.execute(statement, execution_options={"populate_existing": True}).first()
    if found is None:
        raise NotFound("There is no such delivery.")
    return _record(actor, found)


def _record(actor: Actor, found: Any) -> DeliveryRecord:
    row, done_at, available_at = found
    status = row.status
    if status == PENDING:
        # The outbox gave it up, or has swept the message away since.
        is_waiting = available_at is not None and done_at is None
        status = (RETRYING if row.attempts else PENDING) if is_waiting else FAILED
    return DeliveryRecord(
        id=row.id,
        webhook_id=row.webhook_id,
        event_type=row.event_type,
        status=status,
        attempts=row.attempts,
        created_at=row.created_at,
        attempted_at=row.attempted_at,
        next_attempt_at=available_at if status in {PENDING, RETRYING} else None,
        duration_ms=row.duration_ms,
        response_status=row.response_status,
        response_headers=row.response_headers,
        failure=row.failure,
        body=row.body if actor.may("audit:read") else None,
    )
