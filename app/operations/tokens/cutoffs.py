"""Cutoffs: times before which issued tokens, codes and sessions are not valid (IT-3).

A cutoff is one column of one row and only moves forward, so revoking a million tokens costs as much as revoking one.
Every check of a token, code or session already reads the row or cached snapshot that contains the cutoff.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import or_, select, update

from app.database import ACROSS
from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import RevocationReceipt
from app.models.base import has_key
from app.models.client import Client, Credential
from app.models.grant import Grant
from app.models.organization import Organization
from app.models.session import Session
from app.models.user import User
from app.operations.directory.lookups import is_served_here
from app.operations.directory.users import hold_user
from app.operations.grants import grants
from app.operations.grants.revocation import revoke_matching_grants
from app.operations.sign_in.pending_sign_ins import delete_pending_sign_ins_of_user
from app.operations.sign_in.sessions import end_sessions, end_sessions_of_user
from app.operations.store import clock
from app.operations.store.containment import contained
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.tokens.revocation_subjects import Subject
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import first_id_at
from app.rules.tokens.revocation import CLIENT, CREDENTIAL, GRANT, ORGANIZATION, SESSION, USER

REASON = "revoked_before"
BATCH = 200
# The request that revokes deletes this many batches before it responds. The janitor deletes the rest.
_IMMEDIATE_BATCHES = 3
_MAX_RECEIPTS = 100


def revoke_issued_before(actor: Actor, subject: Subject, cutoff: datetime, *, sessions: bool) -> None:
    """Revoke everything of the subject that was issued before the cutoff, in the current transaction."""
    here = actor.organization_id
    if subject.kind == GRANT:
        if revoke_matching_grants(
            actor, (Grant.id == subject.row_id) & (Grant.allowed_at < cutoff), reason=REASON
        ):
            _log(here, "grant", subject, cutoff)
    elif subject.kind == SESSION and subject.user_id is not None:
        hold_user(here, subject.user_id)
        # First, because it waits for codes that are being redeemed: their grants are then revoked, too.
        is_subject = (Session.id == subject.row_id) & (Session.created_at < cutoff)
        end_sessions_of_user(here, subject.user_id, is_subject)
        of_session = (Grant.session_id == subject.row_id) & (Grant.allowed_at < cutoff)
        revoke_matching_grants(actor, of_session, reason=REASON)
    elif subject.kind == USER:
        own: Any = (User.organization_id == here) & (User.id == subject.row_id)
        _advance_cutoff(User, "tokens_not_before", own, cutoff)
        if sessions and subject.user_id is not None:
            delete_pending_sign_ins_of_user(here, subject.user_id, before=cutoff)
            end_sessions(here, (Session.user_id == subject.row_id) & (Session.created_at < cutoff))
        _log(here, "user", subject, cutoff)
    elif subject.kind in {CLIENT, CREDENTIAL}:
        model: Any = Client if subject.kind == CLIENT else Credential
        own = (model.organization_id == here) & (model.id == subject.row_id)
        _advance_cutoff(model, "tokens_not_before", own, cutoff)
        _log(here, subject.kind, subject, cutoff)
        cache_invalidation.invalidate(here)
    elif subject.kind == ORGANIZATION:
        own = Organization.id == here
        _advance_cutoff(Organization, "tokens_not_before", own, cutoff)
        if sessions:
            _advance_cutoff(Organization, "sessions_not_before", own, cutoff)
        grants.log_revocation(here, "organization", here.encode(), not_before=cutoff)
        cache_invalidation.invalidate(here)


def _advance_cutoff(model: Any, column: str, own: Any, cutoff: datetime) -> None:
    current = getattr(model, column)
    count_changed(
        update(model).where(own, or_(current.is_(None), current < cutoff)).values({current: cutoff})
    )


def _log(organization_id: str, kind: str, subject: Subject, cutoff: datetime) -> None:
    if subject.row_id is not None:
        grants.log_revocation(organization_id, kind, subject.row_id.bytes, not_before=cutoff)


def start_session_cleanup() -> None:
    """Delete the first batches of revoked sessions. The janitor deletes the rest, or retries if this fails."""
    try:
        for _, _ in zip(range(_IMMEDIATE_BATCHES), delete_cut_off_sessions(), strict=False):
            pass
    except Unavailable:
        return


def delete_cut_off_sessions(batch: int = BATCH) -> Iterator[int]:
    """Delete the revoked sessions of all open receipts in batches; yield the number of deleted ones per batch.

    A receipt that fails is logged and does not affect the others.
    """
    for organization_id, receipt_id, cutoff in _open_receipts():
        deleted = batch
        while deleted >= batch:
            deleted = 0
            with contained("the deletion of revoked sessions", organization_id):
                deleted = _delete_batch(organization_id, receipt_id, cutoff, batch)
            yield deleted


@read
def _open_receipts() -> list[tuple[str, UUID, datetime]]:
    rows = db.session.execute(
        select(RevocationReceipt.organization_id, RevocationReceipt.id, RevocationReceipt.issued_before)
        .where(RevocationReceipt.settled_at.is_(None), is_served_here(RevocationReceipt.organization_id))
        .order_by(RevocationReceipt.created_at)
        .limit(_MAX_RECEIPTS)
        .execution_options(**ACROSS)
    )
    return [(organization_id, receipt_id, cutoff) for organization_id, receipt_id, cutoff in rows]


@transaction
def _delete_batch(organization_id: str, receipt_id: UUID, cutoff: datetime, batch: int) -> int:
    """Delete one batch of revoked sessions; close the receipt if it was the last one."""
    # No session is from the future, and a cutoff of an imported receipt may be far in it.
    last = min(cutoff, clock.now())
    ids = db.session.scalars(
        select(Session.id)
        .where(
            Session.organization_id == organization_id,
            Session.created_at < cutoff,
            # Ids are ordered by time, so that this skips active sessions without reading them.
            Session.id < first_id_at(last + timedelta(minutes=5)),
        )
        .limit(batch)
    ).all()
    if ids:
        end_sessions(organization_id, Session.id.in_(ids))
    if len(ids) < batch:
        count_changed(
            update(RevocationReceipt)
            .where(has_key(RevocationReceipt, organization_id, receipt_id))
            .values(settled_at=clock.now())
        )
    return len(ids)
