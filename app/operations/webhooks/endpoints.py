"""Webhooks of an organization: list, add, show, change, delete, and a new signing secret.

Whoever defines one is told what the audit log holds, so it takes the right to read that as well. And a person who
says where it goes, or sees what it is signed with, has signed in just now: a browser left open must not become an ear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from app.config import current
from app.extensions import db
from app.models.webhook import Webhook
from app.operations import clock, keyring
from app.operations.directory import touch_organization
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.people.freshness import require_fresh_person
from app.operations.transaction import current_unit, read, transaction
from app.operations.webhooks.listeners import note_change
from app.operations.webhooks.records import (
    WebhookRecord,
    change_row,
    get_row,
    note,
    record_of,
    require_version,
    shown,
)
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.evidence.webhooks import MOST_OF_AN_ORGANIZATION, check_fields, check_overlap, new_secret
from app.rules.identifiers import encode_uuid, new_id


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
    limit = min(limit, MOST)
    rows = db.session.scalars(in_order(statement, (Webhook.id,), after).limit(limit + 1)).all()
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
    row_id: UUID = current_unit().once("webhook", new_id)
    secret: str = current_unit().once("webhook secret", new_secret)
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
        require_fresh_person(actor)
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
    secret: str = current_unit().once("webhook secret", new_secret)
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
    require_fresh_person(actor)


def place_of(webhook_id: UUID) -> str:
    """Where alone a webhook's sealed secret opens."""
    return f"webhook|{encode_uuid(webhook_id)}"
