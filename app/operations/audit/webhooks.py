"""Webhooks of an organization: list, add, show, change, delete, and a new signing secret.

Whoever defines one is told what the audit log holds, so it takes the right to read that as well. And a person who
says where it goes, or sees what it is signed with, has signed in just now: a browser left open must not become an ear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update

from app.config import current
from app.extensions import db
from app.models.event import OutboxMessage
from app.models.webhook import DISABLED, ENABLED, Webhook
from app.operations.audit.webhook_announcements import note_change
from app.operations.directory.lookups import get_organization_by_id, touch_organization
from app.operations.mail.to_administrators import write_to_administrators
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock, keyring
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, paginate
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.audit.webhooks import (
    DISABLED_AFTER,
    MOST_OF_AN_ORGANIZATION,
    MOST_WAITING,
    check_fields,
    check_overlap,
    new_secret,
)
from app.rules.errors import Conflict, NotFound, PreconditionFailed
from app.rules.identifiers import encode_uuid, new_id, parse_public_id, public_id
from app.rules.store.outgoing_http import parse_target

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
        return self.description or parse_target(self.url).authority

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


@dataclass(frozen=True, slots=True)
class SignedWebhook:
    """A webhook with a signing secret just made, in clear here and never again."""

    record: WebhookRecord
    secret: str


@read
def list_webhooks(
    actor: Actor, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[WebhookRecord]:
    """A page of the organization's webhooks, the newest first. Raises Forbidden."""
    actor.require("webhooks:read")
    statement = select(Webhook).where(
        Webhook.organization_id == actor.organization_id, Webhook.deleted_at.is_(None)
    )
    limit = min(limit, MAX_LIMIT)
    rows = db.session.scalars(paginate(statement, (Webhook.id,), after).limit(limit + 1)).all()
    items = tuple(record_of(row) for row in rows[:limit])
    return Page(items, (encode_uuid(items[-1].id),) if len(rows) > limit else None)


@read
def get_webhook(actor: Actor, webhook_id: str) -> WebhookRecord:
    """One webhook. Raises NotFound, Forbidden."""
    actor.require("webhooks:read")
    return record_of(get_row(actor, webhook_id))


@transaction
def create_webhook(actor: Actor, sent: Mapping[str, Any]) -> SignedWebhook:
    """The address is told of the chosen events from now on; its signing secret is in this answer alone.

    ``sent`` has ``url`` and ``event_types``, and may have ``description`` and ``status``. Raises InvalidInput naming
    every wrong field, Forbidden, FreshSignInRequired, and Conflict when the organization has twenty. Audit:
    ``webhook.created``.
    """
    require_fresh_writer(actor)
    values = check_fields(sent, is_new=True, allowed_hosts=current().outgoing_allowed_hosts)
    # The organization's row first: who adds one at the same moment waits here, and counts this one too.
    touch_organization(actor.organization_id)
    standing = select(func.count()).where(
        Webhook.organization_id == actor.organization_id, Webhook.deleted_at.is_(None)
    )
    if (db.session.scalar(standing) or 0) >= MOST_OF_AN_ORGANIZATION:
        words = f"An organization has at most {MOST_OF_AN_ORGANIZATION} webhooks. Delete one first."
        raise Conflict(words, code="too_many_webhooks")
    now = clock.now()
    row_id: UUID = current_unit_of_work().stable_value("webhook", new_id)
    secret: str = current_unit_of_work().stable_value("webhook secret", new_secret)
    row = Webhook(
        organization_id=actor.organization_id,
        id=row_id,
        **values,
        disabled_because=None if values["status"] == "enabled" else "person",
        sealed_secret=keyring.seal(actor.organization_id, secret.encode(), place_of(row_id)),
        version=1,
        created_at=now,
        created_by=actor.label[:200] or None,
        updated_at=now,
    )
    db.session.add(row)
    note_change(actor.organization_id)
    note(actor, "webhook.created", row_id, after=shown(row))
    return SignedWebhook(record_of(row), secret)


@transaction
def update_webhook(
    actor: Actor, webhook_id: str, sent: Mapping[str, Any], *, expected_version: int | None = None
) -> tuple[WebhookRecord, tuple[str, ...]]:
    """The webhook has the fields that were sent; returns it, and which of them are others now.

    One that is enabled again begins without the failures of before. Raises NotFound, InvalidInput, Forbidden,
    PreconditionFailed, Conflict; FreshSignInRequired for another address. Audit: ``webhook.updated``, when anything
    changed.
    """
    require_writer(actor)
    row = get_row(actor, webhook_id)
    require_version(row, expected_version)
    values = check_fields(sent, is_new=False, allowed_hosts=current().outgoing_allowed_hosts)
    values = {name: value for name, value in values.items() if getattr(row, name) != value}
    if not values:
        return record_of(row), ()
    if "url" in values:
        require_fresh_user_sign_in(actor)
    changed = tuple(sorted(values))
    before = shown(row)
    if "status" in values:
        is_enabled = values["status"] == "enabled"
        values |= {"disabled_because": None if is_enabled else "person", "failing_since": None}
    change_row(row, values)
    row = get_row(actor, webhook_id)
    after = shown(row)
    told = [name for name in changed if before[name] != after[name]]
    note(
        actor,
        "webhook.updated",
        row.id,
        before={name: before[name] for name in told},
        after={name: after[name] for name in told},
    )
    return record_of(row), changed


@transaction
def delete_webhook(actor: Actor, webhook_id: str, *, expected_version: int | None = None) -> WebhookRecord:
    """Nothing is told there any more, what waited included; its secret is gone at once, its list of deliveries later.

    Raises NotFound, Forbidden, PreconditionFailed, Conflict. Audit: ``webhook.deleted``.
    """
    actor.require("webhooks:write")
    row = get_row(actor, webhook_id)
    require_version(row, expected_version)
    record, before = record_of(row), shown(row)
    change_row(row, {"deleted_at": clock.now(), "sealed_secret": None, "sealed_previous_secret": None})
    note(actor, "webhook.deleted", row.id, before=before)
    return record


@transaction
def rotate_secret(actor: Actor, webhook_id: str, sent: Mapping[str, Any]) -> SignedWebhook:
    """A new secret signs; the one before signs beside it for ``overlap_seconds``, a day when left out.

    The secret is in this answer alone. Raises NotFound, Forbidden, FreshSignInRequired, InvalidInput, Conflict. Audit:
    ``webhook.secret_rotated``.
    """
    require_fresh_writer(actor)
    row = get_row(actor, webhook_id)
    overlap = check_overlap(sent)
    secret: str = current_unit_of_work().stable_value("webhook secret", new_secret)
    until = clock.now() + overlap
    before = None
    if overlap and row.sealed_secret is not None:
        clear = keyring.unseal(actor.organization_id, row.sealed_secret, place_of(row.id))
        before = keyring.seal(actor.organization_id, clear, place_of(row.id))
    change_row(
        row,
        {
            "sealed_secret": keyring.seal(actor.organization_id, secret.encode(), place_of(row.id)),
            "sealed_previous_secret": before,
            "previous_secret_until": until if before is not None else None,
        },
    )
    after = {"previous_secret_until": until.isoformat() if before is not None else None}
    note(actor, "webhook.secret_rotated", row.id, after=after)
    return SignedWebhook(record_of(get_row(actor, webhook_id)), secret)


def require_writer(actor: Actor) -> None:
    """Raise Forbidden unless the actor may define webhooks and read what they tell."""
    actor.require("webhooks:write")
    actor.require("audit:read")


def require_fresh_writer(actor: Actor) -> None:
    """As ``require_writer``, and FreshSignInRequired for a person who signed in too long ago."""
    require_writer(actor)
    require_fresh_user_sign_in(actor)


def place_of(webhook_id: UUID) -> str:
    """Where alone a webhook's sealed secret opens."""
    return f"webhook|{encode_uuid(webhook_id)}"


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
    organization = get_organization_by_id(row.organization_id)
    values = {
        "url": str(shown(row)["url"]),
        "because": because,
        "days": str(DISABLED_AFTER.days),
        "waiting": str(MOST_WAITING),
        "link": f"{organization.base_url}/portal/{organization.slug}/webhooks/{public_id(PREFIX, row.id)}",
    }
    write_to_administrators(organization, "webhook_disabled", values)
