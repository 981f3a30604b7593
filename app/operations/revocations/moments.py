"""Moments before which nothing counts: set for good, moved forward and never back (IT-3).

A moment is one column of one row, whatever hangs from it: ending a million tokens costs what ending one costs. All who
present a token, code or sign-in are asked for it in rows or views that are read for them anyway.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import or_, update

from app.models.client import Client
from app.models.credential import Credential
from app.models.grant import Grant
from app.models.organization import Organization
from app.models.session import Session
from app.models.user import User
from app.operations import view_changes
from app.operations.grants import grants
from app.operations.people.sessions import end_sessions
from app.operations.revocations.subjects import Subject
from app.operations.tokens.revocation import end_grants
from app.operations.transaction import count_changed
from app.rules.actor import Actor
from app.rules.tokens.wider_revocation import CLIENT, CREDENTIAL, GRANT, ORGANIZATION, SESSION, USER

REASON = "revoked_before"


def end_issued_before(actor: Actor, subject: Subject, moment: datetime, *, sessions: bool) -> None:
    """What hangs from the subject and was issued before the moment is dead once the unit under way has committed."""
    here = actor.organization_id
    if subject.kind == GRANT:
        if end_grants(actor, (Grant.id == subject.row_id) & (Grant.allowed_at < moment), reason=REASON):
            _log(here, "grant", subject, moment)
    elif subject.kind == SESSION:
        of_it = (Grant.session_id == subject.row_id) & (Grant.allowed_at < moment)
        end_grants(actor, of_it, reason=REASON)
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
        view_changes.mark(here)
    elif subject.kind == ORGANIZATION:
        own = Organization.id == here
        _move_forward(Organization, "tokens_not_before", own, moment)
        if sessions:
            _move_forward(Organization, "sessions_not_before", own, moment)
        grants.log_revocation(here, "organization", here.encode(), not_before=moment)
        view_changes.mark(here)


def _move_forward(model: Any, column: str, own: Any, moment: datetime) -> None:
    standing = getattr(model, column)
    count_changed(
        update(model).where(own, or_(standing.is_(None), standing < moment)).values({standing: moment})
    )


def _log(organization_id: str, kind: str, subject: Subject, moment: datetime) -> None:
    if subject.row_id is not None:
        grants.log_revocation(organization_id, kind, subject.row_id.bytes, not_before=moment)
