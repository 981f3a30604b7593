"""Moments before which nothing counts: set for good, moved forward and never back (IT-3).

A moment is one column of one row, whatever hangs from it: ending a million tokens costs what ending one costs. All who
present a token, code or sign-in are asked for it in rows or views that are read for them anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import or_, select, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.client import Client
from app.models.credential import Credential
from app.models.event import RevocationReceipt
from app.models.grant import Grant
from app.models.organization import Organization
from app.models.session import Session
from app.models.user import User
from app.operations.grants import grants
from app.operations.grants.revocation import revoke_matching_grants
from app.operations.sign_in.sessions import end_sessions
from app.operations.store import clock
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.tokens.revocation_subjects import Subject
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import first_id_at
from app.rules.tokens.revocation import CLIENT, CREDENTIAL, GRANT, ORGANIZATION, SESSION, USER
from app.tenant_fence import ACROSS

REASON = "revoked_before"


def end_issued_before(actor: Actor, subject: Subject, moment: datetime, *, sessions: bool) -> None:
    """What hangs from the subject and was issued before the moment is dead once the unit under way has committed."""
    here = actor.organization_id
    if subject.kind == GRANT:
        if revoke_matching_grants(
            actor, (Grant.id == subject.row_id) & (Grant.allowed_at < moment), reason=REASON
        ):
            _log(here, "grant", subject, moment)
    elif subject.kind == SESSION:
        of_it = (Grant.session_id == subject.row_id) & (Grant.allowed_at < moment)
        revoke_matching_grants(actor, of_it, reason=REASON)
        end_sessions(here, (Session.id == subject.row_id) & (Session.created_at < moment))
    elif subject.kind == USER:
        own: Any = (User.organization_id == here) & (User.id == subject.row_id)
        _move_forward(User, "tokens_not_before", own, moment)
        if sessions:
            end_sessions(here, (Session.user_id == subject.row_id) & (Session.created_at < moment))
        _log(here, "user", subject, moment)
    elif subject.kind in {CLIENT, CREDENTIAL}:
        model: Any = Client if subject.kind == CLIENT else Credential
        own = (model.organization_id == here) & (model.id == subject.row_id)
        _move_forward(model, "tokens_not_before", own, moment)
        _log(here, subject.kind, subject, moment)
        cache_invalidation.invalidate(here)
    elif subject.kind == ORGANIZATION:
        own = Organization.id == here
        _move_forward(Organization, "tokens_not_before", own, moment)
        if sessions:
            _move_forward(Organization, "sessions_not_before", own, moment)
        grants.log_revocation(here, "organization", here.encode(), not_before=moment)
        cache_invalidation.invalidate(here)


def _move_forward(model: Any, column: str, own: Any, moment: datetime) -> None:
    standing = getattr(model, column)
    count_changed(
        update(model).where(own, or_(standing.is_(None), standing < moment)).values({standing: moment})
    )


def _log(organization_id: str, kind: str, subject: Subject, moment: datetime) -> None:
    if subject.row_id is not None:
        grants.log_revocation(organization_id, kind, subject.row_id.bytes, not_before=moment)


BATCH = 200
# So much is done by whoever revoked, before the answer; the janitor does the rest.
_AT_ONCE = 3
_MOST_RECEIPTS = 100


def begin() -> None:
    """The first sign-ins are cleared; whatever fails here the janitor does again."""
    try:
        for _, _ in zip(range(_AT_ONCE), settle(), strict=False):
            pass
    except Unavailable:
        return


def settle(batch: int = BATCH) -> Iterator[int]:
    """How many sign-ins each step cleared, until no receipt is left to settle."""
    for organization_id, receipt_id, moment in _unsettled():
        while True:
            cleared = _clear(organization_id, receipt_id, moment, batch)
            yield cleared
            if cleared < batch:
                break


@read
def _unsettled() -> list[tuple[str, UUID, datetime]]:
    rows = db.session.execute(
        select(RevocationReceipt.organization_id, RevocationReceipt.id, RevocationReceipt.issued_before)
        .where(RevocationReceipt.settled_at.is_(None))
        .order_by(RevocationReceipt.created_at)
        .limit(_MOST_RECEIPTS)
        .execution_options(**ACROSS)
    )
    return [(organization_id, receipt_id, moment) for organization_id, receipt_id, moment in rows]


@transaction
def _clear(organization_id: str, receipt_id: UUID, moment: datetime, batch: int) -> int:
    """A batch of dead sign-ins is gone, and the receipt is settled when none was left."""
    ids = db.session.scalars(
        select(Session.id)
        .where(
            Session.organization_id == organization_id,
            Session.created_at < moment,
            # Ids are ordered by time: of many living sign-ins none is looked at.
            Session.id < first_id_at(moment + timedelta(minutes=5)),
        )
        .limit(batch)
    ).all()
    if ids:
        end_sessions(organization_id, Session.id.in_(ids))
    if len(ids) < batch:
        count_changed(
            update(RevocationReceipt)
            .where(RevocationReceipt.organization_id == organization_id, RevocationReceipt.id == receipt_id)
            .values(settled_at=clock.now())
        )
    return len(ids)
