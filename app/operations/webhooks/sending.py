"""Sending to a webhook by the outbox: signed, outside of any transaction, by the rules for strangers' servers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.base import as_json
from app.models.webhook import DELIVERED, ENABLED, FAILED, PENDING, Webhook, WebhookDelivery
from app.operations import clock, keyring, outgoing
from app.operations.directory import organization_by_id
from app.operations.outgoing import OutgoingFailed, OutgoingRefused
from app.operations.transaction import read, transaction
from app.operations.upkeep import outbox
from app.operations.upkeep.outbox import Message, NotNow, Refused
from app.operations.webhooks.announcements import KIND
from app.operations.webhooks.endings import note_failure, note_gone, note_success
from app.operations.webhooks.endpoints import place_of
from app.rules.actor import Actor
from app.rules.errors import DomainError, NotFound
from app.rules.evidence.webhooks import is_about_the_message, is_delivered, shown_headers, signature
from app.rules.identifiers import parse_public_id, public_id

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
    outbox.register_delivery(KIND, deliver, receiver_type="webhook", to_strangers=True)


def deliver(message: Message) -> None:
    """The endpoint has the event: it answered 2xx.

    Raises Refused when there is nobody to tell or it answered 410, which disables it; NotNow when it refuses this
    event and may take others; OutgoingFailed when it should be tried again, the others waiting as well. Audit:
    ``webhook.disabled``, when it has failed for too long.
    """
    _require_active(message.organization_id)
    parcel = _open(message)
    if parcel is None:
        raise Refused("there is nobody to tell")
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
        raise Refused("it answered 410")
    note_failure(actor, parcel.webhook_id)
    if attempt.status is not None and is_about_the_message(attempt.status):
        raise NotNow(attempt.failure)
    raise OutgoingFailed(attempt.failure)


def _require_active(organization_id: str) -> None:
    try:
        organization = organization_by_id(organization_id)
    except NotFound:
        raise Refused("its organization is gone") from None
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
    body = as_json(parcel.body).encode()
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
        reply = outgoing.post(
            parcel.url,
            organization_id=organization_id,
            body=body,
            content_type="application/json",
            headers=headers,
        )
    except (OutgoingFailed, OutgoingRefused) as error:
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
