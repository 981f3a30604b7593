"""Deliveries of a webhook: what it was told, how that went, again by hand, and an event to try it out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, select, update

from app.extensions import db
from app.models.base import dump_json
from app.models.event import OutboxMessage
from app.models.webhook import DELIVERED, ENABLED, FAILED, PENDING, Webhook, WebhookDelivery
from app.operations.audit.webhook_announcements import KIND, add_delivery, send_again
from app.operations.audit.webhooks import (
    get_row,
    note,
    note_failure,
    note_gone,
    note_success,
    place_of,
    record_of,
    require_writer,
)
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import clock, keyring, outbox, outgoing_http, rate_limits
from app.operations.store.outbox import DeliveryDeferred, DeliveryRejected, Message
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, paginate
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.audit.events import TEST
from app.rules.audit.webhooks import body_of, is_about_the_message, is_delivered, shown_headers, signature
from app.rules.errors import Conflict, DomainError, NotFound, TooManyRequests
from app.rules.identifiers import encode_uuid, parse_public_id, public_id
from app.rules.store.outgoing_http import OutgoingRequestBlocked

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
    limit = min(limit, MAX_LIMIT)
    found = paginate(_deliveries(row), (WebhookDelivery.id,), after).limit(limit + 1)
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
    organization = get_organization_by_id(actor.organization_id)
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
    bucket = rate_limits.bucket_key("webhook by hand")
    if not rate_limits.consume_quota(actor.organization_id, bucket, MOST_BY_HAND_AN_HOUR, timedelta(hours=1)):
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
        body=row.body if actor.has_permission("audit:read") else None,
    )


_GONE = 410


class _Held(DomainError):
    """The organization is suspended: what it has to say waits."""


@dataclass(frozen=True, slots=True)
class _Parcel:
    """What is sent where; ``secrets`` are in clear."""

    webhook_id: UUID
    delivery_id: UUID
    url: str
    body: Mapping[str, Any]
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """How an attempt went; ``status`` is None when no whole answer came."""

    milliseconds: int
    status: int | None
    headers: dict[str, str] | None
    failure: str | None


def register() -> None:
    """The outbox delivers to webhooks."""
    outbox.register_delivery(KIND, deliver, receiver_type="webhook", to_external_server=True)


def deliver(message: Message) -> None:
    """The endpoint has the event: it answered 2xx.

    Raises Refused when there is nobody to tell or it answered 410, which disables it; NotNow when it refuses this
    event and may take others; OutgoingFailed when it should be tried again, the others waiting as well. Audit:
    ``webhook.disabled``, when it has failed for too long.
    """
    _require_active(message.organization_id)
    parcel = _open(message)
    if parcel is None:
        raise DeliveryRejected("there is nobody to tell")
    attempt = _send(message.organization_id, parcel)
    actor = Actor.system(message.organization_id, "webhooks")
    is_gone = attempt.status == _GONE
    _note(message, parcel, attempt, is_gone=is_gone)
    if attempt.failure is None:
        waited = clock.now() - message.created_at
        note_success(actor, parcel.webhook_id, waited=waited)
        return
    if is_gone:
        note_gone(actor, parcel.webhook_id)
        raise DeliveryRejected("it answered 410")
    note_failure(actor, parcel.webhook_id)
    if attempt.status is not None and is_about_the_message(attempt.status):
        raise DeliveryDeferred(attempt.failure)
    raise OutgoingRequestFailed(attempt.failure)


def _require_active(organization_id: str) -> None:
    try:
        organization = get_organization_by_id(organization_id)
    except NotFound:
        raise DeliveryRejected("its organization is gone") from None
    if not organization.is_active:
        raise _Held("The organization is suspended.")


@read
def _open(message: Message) -> _Parcel | None:
    delivery_id = parse_public_id("dlv", message.payload["delivery"])
    row = db.session.execute(
        select(WebhookDelivery, Webhook)
        .join(
            Webhook,
            (Webhook.organization_id == WebhookDelivery.organization_id)
            & (Webhook.id == WebhookDelivery.webhook_id),
        )
        .where(
            WebhookDelivery.organization_id == message.organization_id,
            WebhookDelivery.id == delivery_id,
            # Another message carries it since somebody asked for it again.
            WebhookDelivery.message_id == message.id,
            Webhook.deleted_at.is_(None),
            Webhook.status == ENABLED,
        )
    ).first()
    if row is None:
        return None
    delivery, webhook = row
    return _Parcel(webhook.id, delivery.id, webhook.url, delivery.body, _secrets(webhook))


def _secrets(webhook: Webhook) -> tuple[str, ...]:
    sealed = [webhook.sealed_secret]
    until = webhook.previous_secret_until
    if until is not None and until > clock.now():
        sealed.append(webhook.sealed_previous_secret)
    place = place_of(webhook.id)
    return tuple(
        keyring.unseal(webhook.organization_id, each, place).decode() for each in sealed if each is not None
    )


def _send(organization_id: str, parcel: _Parcel) -> _Attempt:
    body = dump_json(parcel.body).encode()
    message_id, timestamp = public_id("dlv", parcel.delivery_id), int(clock.now().timestamp())
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(
            signature(secret, message_id, timestamp, body) for secret in parcel.secrets
        ),
    }
    began = time.monotonic()
    try:
        reply = outgoing_http.post(
            parcel.url,
            organization_id=organization_id,
            body=body,
            content_type="application/json",
            headers=headers,
        )
    except (OutgoingRequestFailed, OutgoingRequestBlocked) as error:
        return _Attempt(_since(began), None, None, error.description)
    failure = None if is_delivered(reply.status) else f"It answered {reply.status}."
    return _Attempt(_since(began), reply.status, shown_headers(reply.headers), failure)


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


@transaction
def _note(message: Message, parcel: _Parcel, attempt: _Attempt, *, is_gone: bool) -> None:
    status = DELIVERED if attempt.failure is None else FAILED if is_gone else PENDING
    db.session.execute(
        update(WebhookDelivery)
        .where(
            WebhookDelivery.organization_id == message.organization_id,
            WebhookDelivery.id == parcel.delivery_id,
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
        .execution_options(synchronize_session=False)
    )
