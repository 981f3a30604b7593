"""Receipts of bulk revocations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select

from app.extensions import db
from app.models.event import RevocationReceipt
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in.actor_access import enter_organization
from app.operations.store import clock
from app.operations.store.audit import actor_public_id
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, paginate
from app.operations.store.transactions import current_unit_of_work, read
from app.operations.tokens.revocation_subjects import Subject
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import encode_uuid, new_id, parse_public_id, public_id
from app.rules.tokens.revocation import ORGANIZATION, RevocationOrder

PREFIX = "rev"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a bulk revocation; ``public_id`` is None for a dry run.

    ``counts`` are the revoked objects by kind; 10,000 means "10,000 or more".
    """

    public_id: str | None
    organization_slug: str
    kind: str
    subject: str
    issued_before: datetime
    sessions: bool
    reason: str | None
    counts: Mapping[str, int]
    created_at: datetime
    created_by: str | None
    created_by_id: str | None


def draft_receipt(
    actor: Actor,
    organization: OrganizationSnapshot,
    subject: Subject,
    order: RevocationOrder,
    counts: Mapping[str, int],
    cutoff: datetime,
) -> Receipt:
    """Return a receipt without storing it."""
    return Receipt(
        public_id=None,
        organization_slug=organization.slug,
        kind=subject.kind,
        subject=subject.public_id,
        issued_before=cutoff,
        sessions=order.sessions,
        reason=order.reason,
        counts=counts,
        created_at=clock.now(),
        created_by=actor.label[:200] or None,
        created_by_id=actor_public_id(actor),
    )


def write_receipt(organization: OrganizationSnapshot, draft: Receipt) -> Receipt:
    """Store the receipt in the current transaction."""
    receipt_id = current_unit_of_work().stable_value(f"receipt {draft.kind} {draft.subject}", new_id)
    # The sessions of an organization are invalid immediately. Their rows are deleted, and clients notified, in batches.
    is_complete = not (draft.kind == ORGANIZATION and draft.sessions)
    row = RevocationReceipt(
        organization_id=organization.id,
        id=receipt_id,
        kind=draft.kind,
        subject=draft.subject,
        issued_before=draft.issued_before,
        sessions=draft.sessions,
        reason=draft.reason,
        counts=dict(draft.counts),
        created_at=draft.created_at,
        created_by=draft.created_by,
        created_by_id=draft.created_by_id,
        settled_at=draft.created_at if is_complete else None,
        expires_at=draft.created_at + timedelta(days=organization.settings["audit"]["retention_days"]),
    )
    db.session.add(row)
    db.session.flush()
    return _receipt(row, organization)


@read
def list_receipts(
    actor: Actor, slug: str, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[Receipt]:
    """Return a page of the organization's bulk revocations, newest first. Raises NotFound, Forbidden."""
    scoped_actor, organization = enter_organization(actor, slug)
    scoped_actor.require("tokens:read")
    statement = select(RevocationReceipt).where(RevocationReceipt.organization_id == organization.id)
    limit = min(limit, MAX_LIMIT)
    rows = db.session.scalars(paginate(statement, (RevocationReceipt.id,), after).limit(limit + 1)).all()
    items = tuple(_receipt(row, organization) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


@read
def get_receipt(actor: Actor, slug: str, receipt_id: str) -> Receipt:
    """Return one bulk revocation. Raises NotFound, Forbidden."""
    scoped_actor, organization = enter_organization(actor, slug)
    scoped_actor.require("tokens:read")
    row_id = parse_public_id(PREFIX, receipt_id)
    row = None if row_id is None else db.session.get(RevocationReceipt, (organization.id, row_id))
    if row is None:
        raise NotFound("There is no such revocation.")
    return _receipt(row, organization)


def _receipt(row: RevocationReceipt, organization: OrganizationSnapshot) -> Receipt:
    return Receipt(
        public_id=public_id(PREFIX, row.id),
        organization_slug=organization.slug,
        kind=row.kind,
        subject=row.subject,
        issued_before=row.issued_before,
        sessions=row.sessions,
        reason=row.reason,
        counts=row.counts,
        created_at=row.created_at,
        created_by=row.created_by,
        created_by_id=row.created_by_id,
    )
