"""Publish audit events to webhooks: queue a delivery for each subscribed webhook in the transaction of the event."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, select

from app.extensions import db
from app.fast_path import cache_invalidation
from app.fast_path.cache import BoundedCache
from app.fast_path.cache_invalidation import CacheStamp
from app.fast_path.compiled_query import CompiledQuery
from app.models.audit import ENABLED, PENDING, Webhook, WebhookDelivery
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.store import clock
from app.operations.store.outbox import enqueue
from app.operations.store.transactions import current_unit_of_work
from app.rules.actor import Actor
from app.rules.audit.events import event_type_for_action, is_subscribed
from app.rules.audit.webhooks import DELIVERY_TIMEOUT, build_body
from app.rules.errors import NotFound, OrganizationMoved
from app.rules.identifiers import new_id, public_id

_MAX_CACHED = 5_000
_CHANGED_FLAG = "webhooks changed"
_FIND_ENABLED = CompiledQuery(
    select(Webhook.id, Webhook.event_types).where(
        Webhook.organization_id == bindparam("organization_id"),
        Webhook.deleted_at.is_(None),
        Webhook.status == ENABLED,
    )
)

KIND = "webhook"
MIN_RETENTION = DELIVERY_TIMEOUT + timedelta(days=1)
"""For how long a delivery is kept at least: for as long as it is retried, and a day."""


class WebhookSubscription(Struct, frozen=True):
    """An enabled webhook and the event types that it subscribes to."""

    id: UUID
    event_types: frozenset[str]

    def matches(self, event_type: str) -> bool:
        """Return whether the webhook subscribes to the event type."""
        return is_subscribed(event_type, self.event_types)


_cache: BoundedCache[tuple[tuple[WebhookSubscription, ...], CacheStamp]] = BoundedCache(_MAX_CACHED)


def find_subscriptions(organization_id: str) -> tuple[WebhookSubscription, ...]:
    """Find the organization's subscriptions. Call this in the transaction that records the event."""
    cached = _cache.get(organization_id)
    if cached is not None and cached[1].is_current:
        return cached[0]
    # Take the stamp before reading, so that a change during the read makes the cached value stale.
    seen = CacheStamp(organization_id)
    rows = _FIND_ENABLED.rows(organization_id=organization_id)
    found = tuple(WebhookSubscription(row.id, frozenset(row.event_types)) for row in rows)
    # Do not cache changes of this transaction, which may still be rolled back.
    if f"{_CHANGED_FLAG} {organization_id}" not in current_unit_of_work().values:
        _cache.put(organization_id, value=(found, seen))
    return found


def invalidate_subscriptions(organization_id: str) -> None:
    """Make every worker read the organization's webhooks again after the current transaction has committed."""
    current_unit_of_work().values[f"{_CHANGED_FLAG} {organization_id}"] = True
    _cache.remove(organization_id)
    cache_invalidation.invalidate(organization_id)


def publish_to_webhooks(_: Actor, event: Mapping[str, Any]) -> None:
    """Queue a delivery of the event for each webhook that subscribed to its type.

    ``event`` has the columns of the audit log. Runs in the transaction that records it. Without a matching
    webhook, only memory is read.
    """
    subscriptions = find_subscriptions(event["organization_id"])
    event_type = event_type_for_action(event["action"]) if subscriptions else None
    if event_type is None:
        return
    webhook_ids = [one.id for one in subscriptions if one.matches(event_type)]
    if not webhook_ids:
        return
    try:
        organization = get_organization_by_id(event["organization_id"], fresh=False)
    except (NotFound, OrganizationMoved):
        return
    body = build_body(event_type, event["at"], _data(event, organization))
    for webhook_id in webhook_ids:
        create_delivery(organization, webhook_id, event_type, body)


def create_delivery(
    organization: OrganizationSnapshot,
    webhook_id: UUID,
    event_type: str,
    body: Mapping[str, Any],
    *,
    immediately: bool = False,
) -> UUID:
    """Create a delivery that is sent after the current transaction has committed, and return its id.

    ``immediately`` sends it even if the endpoint is down.
    """
    now = clock.now()
    delivery_id = new_id()
    retention = timedelta(days=organization.settings["audit"]["log_retention_days"])
    db.session.add(
        WebhookDelivery(
            organization_id=organization.id,
            id=delivery_id,
            webhook_id=webhook_id,
            message_id=enqueue_delivery(organization.id, webhook_id, delivery_id, immediately=immediately),
            event_type=event_type,
            body=dict(body),
            status=PENDING,
            attempts=0,
            created_at=now,
            expires_at=max(now + retention, min_expiry(now)),
        )
    )
    return delivery_id


def min_expiry(now: datetime) -> datetime:
    """Return until when a delivery must be kept that is sent from now on."""
    return now + MIN_RETENTION


def enqueue_delivery(
    organization_id: str, webhook_id: UUID, delivery_id: UUID, *, immediately: bool = False
) -> UUID:
    """Add an outbox message for the delivery and return its id.

    ``immediately`` sends it at once even if the endpoint is down.
    """
    return enqueue(
        organization_id,
        KIND,
        {"delivery": public_id("dlv", delivery_id)},
        receiver=public_id("whk", webhook_id),
        expires_in=DELIVERY_TIMEOUT,
        immediately=immediately,
    )


def _data(event: Mapping[str, Any], organization: OrganizationSnapshot) -> dict[str, Any]:
    return {
        "id": public_id("evt", event["id"]),
        "organization_id": organization.slug,
        "action": event["action"],
        "actor": {
            "type": event["actor_kind"],
            "id": event["actor_id"],
            "label": event["actor_label"],
            "organization_id": _home(event, organization),
        },
        "target": {"type": event["target_type"], "id": event["target_id"]},
        "before": event["before"],
        "after": event["after"],
        "ip_address": event["address"],
        "request_id": event["request_id"],
    }


def _home(event: Mapping[str, Any], organization: OrganizationSnapshot) -> str:
    home = event["actor_organization"]
    if event["actor_kind"] == "system" or home in {"", organization.id}:
        return organization.slug
    return get_organization_by_id(home, fresh=False).slug
