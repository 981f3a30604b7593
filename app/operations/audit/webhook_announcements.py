"""Announcements: an event of the audit log becomes a delivery for each webhook that listens, in its transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, select

from app.extensions import db
from app.models.webhook import ENABLED, PENDING, Webhook, WebhookDelivery
from app.operations import view_changes
from app.operations.bounded import Kept
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.statements import Statement
from app.operations.store import clock
from app.operations.store.outbox import enqueue
from app.operations.store.transactions import current_unit_of_work
from app.operations.view_changes import Seen
from app.rules.actor import Actor
from app.rules.audit.events import is_chosen, type_of_action
from app.rules.audit.webhooks import GIVEN_UP_AFTER, body_of
from app.rules.errors import NotFound
from app.rules.identifiers import new_id, public_id

_MOST_KEPT = 5_000
_CHANGED = "webhooks changed"
_LISTENING = Statement(
    select(Webhook.id, Webhook.event_types).where(
        Webhook.organization_id == bindparam("organization_id"),
        Webhook.deleted_at.is_(None),
        Webhook.status == ENABLED,
    )
)


@dataclass(frozen=True, slots=True)
class Listener:
    """An enabled webhook, and what was chosen for it."""

    id: UUID
    chosen: frozenset[str]

    def hears(self, event_type: str) -> bool:
        """Whether the event type was chosen."""
        return is_chosen(event_type, self.chosen)


_kept: Kept[tuple[tuple[Listener, ...], Seen]] = Kept(_MOST_KEPT)


def forget_listeners() -> None:
    """Nothing is kept in this process."""
    _kept.clear()


def listeners_of(organization_id: str) -> tuple[Listener, ...]:
    """The organization's listeners; asked inside the unit of work whose event they are to hear."""
    kept = _kept.get(organization_id)
    if kept is not None and kept[1].is_current:
        return kept[0]
    # The moment comes first: what changes during the reading makes the view stale, never the other way round.
    seen = Seen(organization_id)
    rows = _LISTENING.rows(organization_id=organization_id)
    found = tuple(Listener(row.id, frozenset(row.event_types)) for row in rows)
    # What a unit changed itself and may yet roll back is nobody else's view.
    if f"{_CHANGED} {organization_id}" not in current_unit_of_work().values:
        _kept.put(organization_id, value=(found, seen))
    return found


def note_change(organization_id: str) -> None:
    """The unit under way changes the organization's webhooks: every worker reads them afresh once it has committed."""
    current_unit_of_work().values[f"{_CHANGED} {organization_id}"] = True
    _kept.forget(organization_id)
    view_changes.mark(organization_id)


KIND = "webhook"


def announce(_: Actor, event: Mapping[str, Any]) -> None:
    """Queue a delivery of the event for each webhook that subscribed to its type.

    ``event`` has the columns of the audit log. Runs in the transaction that records it. Without a matching
    webhook, only memory is read.
    """
    event_type = type_of_action(event["action"])
    if event_type is None:
        return
    listening = [one.id for one in listeners_of(event["organization_id"]) if one.hears(event_type)]
    if not listening:
        return
    try:
        organization = get_organization_by_id(event["organization_id"], fresh=False)
    except NotFound:
        return
    body = body_of(event_type, _time(event["at"]), _data(event, organization))
    for webhook_id in listening:
        add_delivery(organization, webhook_id, event_type, body)


def add_delivery(
    organization: OrganizationSnapshot, webhook_id: UUID, event_type: str, body: Mapping[str, Any]
) -> UUID:
    """The webhook hears of it once the unit under way has committed; returns the delivery's id."""
    now = clock.now()
    delivery_id = new_id()
    kept = timedelta(days=organization.settings["audit"]["log_retention_days"])
    db.session.add(
        WebhookDelivery(
            organization_id=organization.id,
            id=delivery_id,
            webhook_id=webhook_id,
            message_id=send_again(organization.id, webhook_id, delivery_id),
            event_type=event_type,
            body=dict(body),
            status=PENDING,
            attempts=0,
            created_at=now,
            # While it is tried it stands in the list.
            expires_at=now + max(kept, GIVEN_UP_AFTER + timedelta(days=1)),
        )
    )
    return delivery_id


def send_again(organization_id: str, webhook_id: UUID, delivery_id: UUID) -> UUID:
    """A message of the outbox carries the delivery; returns the message's id."""
    return enqueue(
        organization_id,
        KIND,
        {"delivery": public_id("dlv", delivery_id)},
        receiver=public_id("whk", webhook_id),
        within=GIVEN_UP_AFTER,
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
        "address": event["address"],
        "request_id": event["request_id"],
    }


def _home(event: Mapping[str, Any], organization: OrganizationSnapshot) -> str:
    home = event["actor_organization"]
    if event["actor_kind"] == "system" or home in {"", organization.id}:
        return organization.slug
    return get_organization_by_id(home, fresh=False).slug


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
