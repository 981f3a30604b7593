"""Rows of webhooks as operations return them, and how one is found: within its organization alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import update

from app.extensions import db
from app.models.webhook import ENABLED, Webhook
from app.operations import audit, clock
from app.operations.transaction import count_changed
from app.operations.webhooks.listeners import note_change
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound, PreconditionFailed
from app.rules.identifiers import parse_public_id, public_id
from app.rules.outgoing.outgoing_addresses import target_of

PREFIX = "whk"


@dataclass(frozen=True, slots=True)
class WebhookRecord:
    """A webhook without its secret; ``disabled_because`` is person, failing, gone or backlog."""

    id: UUID
    url: str
    description: str
    event_types: tuple[str, ...]
    status: str
    disabled_because: str | None
    failing_since: datetime | None
    previous_secret_until: datetime | None
    version: int
    created_at: datetime
    created_by: str | None
    updated_at: datetime

    @property
    def public_id(self) -> str:
        """``whk_…``."""
        return public_id(PREFIX, self.id)

    @property
    def label(self) -> str:
        """What people call it: its description, or the host that is told."""
        return self.description or target_of(self.url).authority

    @property
    def is_enabled(self) -> bool:
        """Whether it is told anything."""
        return self.status == ENABLED


def get_row(actor: Actor, webhook_id: str) -> Webhook:
    """The webhook's row as it stands now. Raises NotFound."""
    row_id = parse_public_id(PREFIX, webhook_id)
    row = None
    if row_id is not None:
        row = db.session.get(Webhook, (actor.organization_id, row_id), populate_existing=True)
    if row is None or row.deleted_at is not None:
        raise NotFound("There is no such webhook.")
    return row


def require_version(row: Webhook, expected: int | None) -> None:
    """Raise PreconditionFailed when the caller read another version."""
    if expected not in {None, row.version}:
        raise PreconditionFailed("The webhook was changed since you read it. Read it again.")


def change_row(row: Webhook, values: dict[str, Any]) -> None:
    """The webhook has the values, unless another change came first: Conflict. Every worker hears of it."""
    changed = count_changed(
        update(Webhook)
        .where(
            Webhook.organization_id == row.organization_id,
            Webhook.id == row.id,
            Webhook.version == row.version,
            Webhook.deleted_at.is_(None),
        )
        .values(version=row.version + 1, updated_at=clock.now(), **values)
    )
    if changed != 1:
        raise Conflict("The webhook was changed at the same moment. Try again.", code="changed_meanwhile")
    note_change(row.organization_id)


def record_of(row: Webhook) -> WebhookRecord:
    """The record of a row; a secret that ended is not mentioned any more."""
    until = row.previous_secret_until
    return WebhookRecord(
        id=row.id,
        url=row.url,
        description=row.description,
        event_types=tuple(row.event_types),
        status=row.status,
        disabled_because=row.disabled_because,
        failing_since=row.failing_since,
        previous_secret_until=until if until is not None and until > clock.now() else None,
        version=row.version,
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
    )


def shown(row: Webhook) -> dict[str, Any]:
    """What the audit log says of it: an address may hold a key of its receiver behind the question mark."""
    return {
        "url": row.url.partition("?")[0],
        "description": row.description,
        "event_types": list(row.event_types),
        "status": row.status,
    }


def note(actor: Actor, action: str, webhook_id: UUID, **facts: Any) -> None:
    """The event is part of the unit under way."""
    audit.record(actor, action, target_type="webhook", target_id=public_id(PREFIX, webhook_id), **facts)
