"""Endings: a webhook that wants to hear no more, or fails for days, is disabled, and administrators hear of it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from sqlalchemy import func, select, update

from app.extensions import db
from app.models.event import OutboxMessage
from app.models.webhook import DISABLED, ENABLED, Webhook
from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.mail.to_administrators import write_to_administrators
from app.operations.transaction import count_changed, transaction
from app.operations.webhooks.listeners import note_change
from app.operations.webhooks.records import PREFIX, note, shown
from app.rules.actor import Actor
from app.rules.evidence.webhooks import DISABLED_AFTER, MOST_WAITING
from app.rules.identifiers import public_id

GONE, FAILING, BACKLOG = "gone", "failing", "backlog"
_BEHIND = timedelta(minutes=10)


@transaction
def note_success(actor: Actor, webhook_id: UUID, *, waited: timedelta) -> None:
    """What failed before counts no more; one that takes all, but too slowly, is disabled when too much waits.

    ``waited`` is how old the event is that it took: as long as it keeps up, nothing is counted. Audit:
    ``webhook.disabled``.
    """
    failing = (
        select(Webhook.failing_since)
        .where(Webhook.organization_id == actor.organization_id, Webhook.id == webhook_id)
        .limit(1)
    )
    if db.session.scalar(failing) is not None:
        _set_failing(actor.organization_id, webhook_id, None)
    if waited >= _BEHIND and _waiting(actor.organization_id, webhook_id) >= MOST_WAITING:
        row = db.session.get(Webhook, (actor.organization_id, webhook_id), populate_existing=True)
        if row is not None:
            _disable(actor, row, BACKLOG)


@transaction
def note_failure(actor: Actor, webhook_id: UUID) -> None:
    """The failure counts; after days of nothing else, or when too much waits, the webhook is disabled.

    Audit: ``webhook.disabled``.
    """
    row = db.session.get(Webhook, (actor.organization_id, webhook_id), populate_existing=True)
    if row is None or row.deleted_at is not None:
        return
    now = clock.now()
    if row.failing_since is None:
        _set_failing(actor.organization_id, webhook_id, now)
    elif row.failing_since <= now - DISABLED_AFTER:
        _disable(actor, row, FAILING)
        return
    if _waiting(actor.organization_id, webhook_id) >= MOST_WAITING:
        _disable(actor, row, BACKLOG)


@transaction
def note_gone(actor: Actor, webhook_id: UUID) -> None:
    """It answered 410: it is disabled. Audit: ``webhook.disabled``."""
    row = db.session.get(Webhook, (actor.organization_id, webhook_id), populate_existing=True)
    if row is not None:
        _disable(actor, row, GONE)


def _set_failing(organization_id: str, webhook_id: UUID, value: object) -> None:
    # No new version: nobody who edits the webhook is in the way of its deliveries.
    db.session.execute(
        update(Webhook)
        .where(Webhook.organization_id == organization_id, Webhook.id == webhook_id)
        .values(failing_since=value)
        .execution_options(synchronize_session=False)
    )


def _waiting(organization_id: str, webhook_id: UUID) -> int:
    waiting = (
        select(OutboxMessage.id)
        .where(
            OutboxMessage.organization_id == organization_id,
            OutboxMessage.receiver == public_id(PREFIX, webhook_id),
            OutboxMessage.done_at.is_(None),
        )
        .limit(MOST_WAITING)
    )
    return db.session.scalar(select(func.count()).select_from(waiting.subquery())) or 0


def _disable(actor: Actor, row: Webhook, because: str) -> None:
    changed = count_changed(
        update(Webhook)
        .where(
            Webhook.organization_id == row.organization_id,
            Webhook.id == row.id,
            Webhook.status == ENABLED,
            Webhook.deleted_at.is_(None),
        )
        .values(
            status=DISABLED,
            disabled_because=because,
            version=Webhook.version + 1,
            updated_at=clock.now(),
        )
    )
    if changed != 1:
        return
    note_change(row.organization_id)
    note(actor, "webhook.disabled", row.id, after={"because": because})
    organization = organization_by_id(row.organization_id)
    values = {
        "url": str(shown(row)["url"]),
        "because": because,
        "days": str(DISABLED_AFTER.days),
        "waiting": str(MOST_WAITING),
        "link": f"{organization.base_url}/portal/{organization.slug}/webhooks/{public_id(PREFIX, row.id)}",
    }
    write_to_administrators(organization, "webhook_disabled", values)
