"""Webhooks of an organization: list, create, update and delete them, rotate their secrets, and disable failing ones.

A webhook receives what the audit log contains, so defining one requires the permission to read that as well. Setting
the URL or seeing the secret requires a recent sign-in, so that an unattended browser cannot be used to tap events.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import select, update

from app.config import current
from app.extensions import db
from app.models.audit import DISABLED, ENABLED, OutboxMessage, Webhook, WebhookDelivery
from app.models.base import has_key
from app.operations.audit.webhook_publishing import invalidate_subscriptions
from app.operations.directory.lookups import get_organization_by_id, touch_organization
from app.operations.mail.notices import email_administrators
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock, keyring, outbox
from app.operations.store.rows import (
    Page,
    PageRequest,
    Updated,
    count_rows,
    count_where,
    get_row,
    has_rows,
    make_record,
    read_page,
)
from app.operations.store.transactions import (
    OutdatedRead,
    count_changed,
    current_unit_of_work,
    read,
    transaction,
)
from app.rules.actor import Actor
from app.rules.audit.webhooks import (
    DISABLE_AFTER,
    MAX_PENDING_DELIVERIES,
    MAX_WEBHOOKS_PER_ORGANIZATION,
    new_secret,
    parse_overlap,
    validate_webhook_fields,
)
from app.rules.errors import Busy, Conflict
from app.rules.identifiers import HasPublicId, encode_uuid, new_id, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.store.outgoing_http import parse_target
from app.rules.versions import ExpectedVersion, require_version

PREFIX = "whk"
GONE, FAILING, BACKLOG = "gone", "failing", "backlog"
_SLOW_AFTER = timedelta(minutes=10)
# Within this time, several processes may have sent events that waited together.
_SAME_TIME = timedelta(minutes=1)


class WebhookRecord(HasPublicId, Struct, frozen=True):
    """A webhook without its secret; ``disabled_because`` is person, failing, gone or backlog."""

    id_prefix = PREFIX
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
    def label(self) -> str:
        """Its description, or the host of its URL."""
        return self.description or parse_target(self.url).authority

    @property
    def is_enabled(self) -> bool:
        """Return whether it receives events."""
        return self.status == ENABLED


def get_webhook_row(actor: Actor, webhook_id: str) -> Webhook:
    """Return the current row of the webhook. Raises NotFound."""
    key = has_key(Webhook, actor.organization_id, parse_public_id(PREFIX, webhook_id))
    statement = select(Webhook).where(key, Webhook.deleted_at.is_(None))
    row: Webhook = get_row(statement, "There is no such webhook.")
    return row


def update_webhook_row(row: Webhook, values: dict[str, Any]) -> None:
    """Update the row and invalidate the cached subscriptions. Raises OutdatedRead if it was changed since."""
    changed = count_changed(
        update(Webhook)
        .where(
            has_key(Webhook, row.organization_id, row.id),
            Webhook.version == row.version,
            Webhook.deleted_at.is_(None),
        )
        .values(version=row.version + 1, updated_at=clock.now(), **values)
    )
    if changed != 1:
        raise OutdatedRead(_busy())
    invalidate_subscriptions(row.organization_id)


def _busy() -> Busy:
    return Busy("The webhook is being changed by others right now. Try again.")


def webhook_record(row: Webhook) -> WebhookRecord:
    """Return the record of a row, without a previous secret that has expired."""
    until = row.previous_secret_until
    return make_record(
        WebhookRecord,
        row,
        event_types=tuple(row.event_types),
        previous_secret_until=until if until is not None and until > clock.now() else None,
    )


def audit_fields(row: Webhook) -> dict[str, Any]:
    """Return the fields for the audit log. The query of the URL is left out, because it may contain a key."""
    return {
        "url": row.url.partition("?")[0],
        "description": row.description,
        "event_types": list(row.event_types),
        "status": row.status,
    }


def record_webhook_event(actor: Actor, action: str, webhook_id: UUID, **facts: Any) -> None:
    """Record an audit event of the webhook in the current transaction."""
    audit.record(actor, action, "webhook", public_id(PREFIX, webhook_id), **facts)


class SignedWebhook(Struct, frozen=True):
    """A webhook with its new signing secret in clear text, which is shown only once."""

    record: WebhookRecord
    secret: str


@read
def list_webhooks(actor: Actor, page_request: PageRequest = PageRequest()) -> Page[WebhookRecord]:
    """Return a page of the organization's webhooks, newest first. Raises Forbidden."""
    actor.require("webhooks:read")
    statement = select(Webhook).where(
        Webhook.organization_id == actor.organization_id, Webhook.deleted_at.is_(None)
    )
    return read_page(statement, (Webhook.id,), page_request).map(webhook_record)


@read
def get_webhook(actor: Actor, webhook_id: str) -> WebhookRecord:
    """Return one webhook. Raises NotFound, Forbidden."""
    actor.require("webhooks:read")
    return webhook_record(get_webhook_row(actor, webhook_id))


@transaction
def create_webhook(actor: Actor, sent: Mapping[str, Any]) -> SignedWebhook:
    """Create a webhook that receives the chosen events from now on. Its signing secret is returned only here.

    ``sent`` has ``url`` and ``event_types``, and optionally ``description`` and ``status``. Raises InvalidInput naming
    every invalid field, Forbidden, FreshSignInRequired, and Conflict if the organization has the maximum number of
    webhooks. Audit: ``webhook.created``.
    """
    require_fresh_webhook_permissions(actor)
    values = validate_webhook_fields(sent, is_new=True, allowed_hosts=current().outgoing_allowed_hosts)
    # Lock the organization's row first, so that a concurrent request waits here and counts this webhook too.
    touch_organization(actor.organization_id)
    existing = count_where(Webhook.organization_id == actor.organization_id, Webhook.deleted_at.is_(None))
    if existing >= MAX_WEBHOOKS_PER_ORGANIZATION:
        message = lazy_gettext(
            "An organization can have at most %(max)s webhooks. Delete one first.",
            max=MAX_WEBHOOKS_PER_ORGANIZATION,
        )
        raise Conflict(message, code="too_many_webhooks")
    now = clock.now()
    row_id: UUID = current_unit_of_work().stable_value("webhook", new_id)
    secret: str = current_unit_of_work().stable_value("webhook secret", new_secret)
    row = Webhook(
        organization_id=actor.organization_id,
        id=row_id,
        **values,
        disabled_because=None if values["status"] == "enabled" else "person",
        sealed_secret=keyring.seal(actor.organization_id, secret.encode(), sealing_context(row_id)),
        version=1,
        created_at=now,
        created_by=actor.author,
        updated_at=now,
    )
    db.session.add(row)
    invalidate_subscriptions(actor.organization_id)
    record_webhook_event(actor, "webhook.created", row_id, after=audit_fields(row))
    return SignedWebhook(webhook_record(row), secret)


@transaction
def update_webhook(
    actor: Actor, webhook_id: str, sent: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> Updated[WebhookRecord]:
    """Update the given fields and return the webhook with the names of the changed fields.

    A webhook that is enabled again starts without its previous failures and pending deliveries, one with another URL
    without the failures. Raises NotFound, InvalidInput, Forbidden, PreconditionFailed, Conflict, and
    FreshSignInRequired for another URL. Audit: ``webhook.updated``, if anything changed.
    """
    require_webhook_permissions(actor)
    row = get_webhook_row(actor, webhook_id)
    require_version(row.version, expected_version)
    values = validate_webhook_fields(sent, is_new=False, allowed_hosts=current().outgoing_allowed_hosts)
    values = {name: value for name, value in values.items() if getattr(row, name) != value}
    if not values:
        return Updated(webhook_record(row), ())
    if "url" in values:
        require_fresh_user_sign_in(actor)
    changed = tuple(sorted(values))
    before = audit_fields(row)
    if "status" in values:
        is_enabled = values["status"] == "enabled"
        values["disabled_because"] = None if is_enabled else "person"
    if values.keys() & {"status", "url"}:
        values["failing_since"] = None
    update_webhook_row(row, values)
    if "status" in values:
        _drop_pending(row)
    row = get_webhook_row(actor, webhook_id)
    after = audit_fields(row)
    audited = [name for name in changed if before[name] != after[name]]
    facts = {name: after[name] for name in audited}
    if "url" in changed and "url" not in audited:
        facts["url_query"] = "changed"
    record_webhook_event(
        actor, "webhook.updated", row.id, before={name: before[name] for name in audited}, after=facts
    )
    return Updated(webhook_record(row), changed)


@transaction
def delete_webhook(
    actor: Actor, webhook_id: str, *, expected_version: ExpectedVersion = None
) -> WebhookRecord:
    """Delete a webhook. Pending deliveries are not sent, its secret is deleted now and its deliveries later.

    Raises NotFound, Forbidden, PreconditionFailed, Conflict. Audit: ``webhook.deleted``.
    """
    actor.require("webhooks:write")
    row = get_webhook_row(actor, webhook_id)
    require_version(row.version, expected_version)
    record, before = webhook_record(row), audit_fields(row)
    update_webhook_row(
        row, {"deleted_at": clock.now(), "sealed_secret": None, "sealed_previous_secret": None}
    )
    record_webhook_event(actor, "webhook.deleted", row.id, before=before)
    return record


@transaction
def rotate_webhook_secret(actor: Actor, webhook_id: str, sent: Mapping[str, Any]) -> SignedWebhook:
    """Create a new signing secret. The previous one also signs for ``overlap_seconds``, by default a day.

    The secret is returned only here. Raises NotFound, Forbidden, FreshSignInRequired, InvalidInput, Conflict. Audit:
    ``webhook.secret_rotated``.
    """
    require_fresh_webhook_permissions(actor)
    row = get_webhook_row(actor, webhook_id)
    if current_unit_of_work().stable_value("webhook version", lambda: row.version) != row.version:
        # To rotate twice would drop the secret that receivers use.
        raise _busy()
    overlap = parse_overlap(sent)
    secret: str = current_unit_of_work().stable_value("webhook secret", new_secret)
    until = clock.now() + overlap
    before = None
    if overlap and row.sealed_secret is not None:
        clear = keyring.unseal(actor.organization_id, row.sealed_secret, sealing_context(row.id))
        before = keyring.seal(actor.organization_id, clear, sealing_context(row.id))
    update_webhook_row(
        row,
        {
            "sealed_secret": keyring.seal(actor.organization_id, secret.encode(), sealing_context(row.id)),
            "sealed_previous_secret": before,
            "previous_secret_until": until if before is not None else None,
        },
    )
    after = {"previous_secret_until": until.isoformat() if before is not None else None}
    record_webhook_event(actor, "webhook.secret_rotated", row.id, after=after)
    return SignedWebhook(webhook_record(get_webhook_row(actor, webhook_id)), secret)


def require_webhook_permissions(actor: Actor) -> None:
    """Raise Forbidden unless the actor may define webhooks and read what they send."""
    actor.require("webhooks:write")
    actor.require("audit:read")


def require_fresh_webhook_permissions(actor: Actor) -> None:
    """Like ``require_webhook_permissions``, and raise FreshSignInRequired if the sign-in is too old."""
    require_webhook_permissions(actor)
    require_fresh_user_sign_in(actor)


def sealing_context(webhook_id: UUID) -> str:
    """Return the associated data of the webhook's sealed secrets."""
    return f"webhook|{encode_uuid(webhook_id)}"


@transaction
def record_success(actor: Actor, webhook_id: UUID, *, waited: timedelta) -> None:
    """Reset the failures of a webhook. One that accepts events too slowly is disabled when too many are pending.

    ``waited`` is the age of the delivered event. As long as the webhook keeps up, nothing is counted. Audit:
    ``webhook.disabled``.
    """
    failing = (
        select(Webhook.failing_since).where(has_key(Webhook, actor.organization_id, webhook_id)).limit(1)
    )
    if db.session.scalar(failing) is not None:
        _set_failing(actor.organization_id, webhook_id, None)
    if waited >= _SLOW_AFTER and _count_pending(actor.organization_id, webhook_id) >= MAX_PENDING_DELIVERIES:
        row = db.session.get(Webhook, (actor.organization_id, webhook_id), populate_existing=True)
        if row is not None:
            _disable(actor, row, BACKLOG)


@transaction
def record_failure(actor: Actor, webhook_id: UUID, delivery_id: UUID, *, is_retry: bool) -> None:
    """Record a failure, and disable the webhook after days without success or when too many events are pending.

    ``delivery_id`` is the delivery that has failed. Earlier failures count only if the endpoint was tried since: it may
    have failed once, and been sent nothing for weeks. Audit: ``webhook.disabled``.
    """
    row = db.session.get(Webhook, (actor.organization_id, webhook_id), populate_existing=True)
    if row is None or row.deleted_at is not None:
        return
    now = clock.now()
    if row.failing_since is None:
        _set_failing(actor.organization_id, webhook_id, now)
    elif row.failing_since <= now - DISABLE_AFTER:
        if is_retry or _was_tried(row, delivery_id, now - DISABLE_AFTER):
            _disable(actor, row, FAILING)
            return
        _set_failing(actor.organization_id, webhook_id, now)
    if _count_pending(actor.organization_id, webhook_id) >= MAX_PENDING_DELIVERIES:
        _disable(actor, row, BACKLOG)


@transaction
def disable_gone_webhook(actor: Actor, webhook_id: UUID) -> None:
    """Disable a webhook that responded with 410. Audit: ``webhook.disabled``."""
    row = db.session.get(Webhook, (actor.organization_id, webhook_id), populate_existing=True)
    if row is not None:
        _disable(actor, row, GONE)


def _was_tried(row: Webhook, delivery_id: UUID, since: datetime) -> bool:
    """Return whether another event was sent to the webhook since then, and not just now by another process."""
    sent = select(WebhookDelivery.id).where(
        WebhookDelivery.organization_id == row.organization_id,
        WebhookDelivery.webhook_id == row.id,
        WebhookDelivery.id != delivery_id,
        WebhookDelivery.attempted_at.between(since, clock.now() - _SAME_TIME),
    )
    return has_rows(sent)


def _set_failing(organization_id: str, webhook_id: UUID, value: object) -> None:
    # The version is unchanged, so that deliveries do not conflict with users who edit the webhook.
    count_changed(
        update(Webhook).where(has_key(Webhook, organization_id, webhook_id)).values(failing_since=value)
    )


def _count_pending(organization_id: str, webhook_id: UUID) -> int:
    waiting = select(OutboxMessage.id).where(
        OutboxMessage.organization_id == organization_id,
        OutboxMessage.receiver == public_id(PREFIX, webhook_id),
        OutboxMessage.done_at.is_(None),
    )
    return count_rows(waiting, MAX_PENDING_DELIVERIES)


def _drop_pending(row: Webhook) -> None:
    # Their next attempt may be an hour away, and the webhook enabled again before.
    outbox.refuse_pending(row.organization_id, public_id(PREFIX, row.id))


def _disable(actor: Actor, row: Webhook, because: str) -> None:
    changed = count_changed(
        update(Webhook)
        .where(
            has_key(Webhook, row.organization_id, row.id),
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
    _drop_pending(row)
    invalidate_subscriptions(row.organization_id)
    record_webhook_event(actor, "webhook.disabled", row.id, after={"because": because})
    organization = get_organization_by_id(row.organization_id)
    values = {
        "url": str(audit_fields(row)["url"]),
        "because": because,
        "days": str(DISABLE_AFTER.days),
        "waiting": str(MAX_PENDING_DELIVERIES),
        "link": f"{organization.base_url}/portal/{organization.slug}/webhooks/{public_id(PREFIX, row.id)}",
    }
    email_administrators(organization, "webhook_disabled", values)
