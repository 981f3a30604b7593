"""Which sign-ins live: neither ended nor idle or older than the organization's settings allow now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, bindparam, select

from app.extensions import db
from app.models.session import Session
from app.models.user import ACTIVE, User
from app.operations import clock
from app.operations.directory import OrganizationView
from app.operations.statements import Statement


def living(organization: OrganizationView) -> ColumnElement[bool]:
    """The condition that a session row lives."""
    now = clock.now()
    return _is_living(now, *_limits(organization, now))


def find_living(organization: OrganizationView, digest: bytes) -> Any:
    """The row of the living session of an active user, with the user's e-mail, name and profile, or None."""
    now = clock.now()
    made_after, seen_after = _limits(organization, now)
    return _FIND.first(
        organization_id=organization.id,
        digest=digest,
        now=now,
        made_after=made_after,
        seen_after=seen_after,
    )


def has_been_ended(organization: OrganizationView, session_id: UUID) -> bool:
    """Whether the sign-in was ended, by whomever, rather than by its age; part of a unit of work."""
    row = db.session.execute(
        select(Session.revoked_at, Session.created_at).where(
            Session.organization_id == organization.id, Session.id == session_id
        )
    ).first()
    return row is None or row.revoked_at is not None or organization.forgot_sign_in(row.created_at)


def _limits(organization: OrganizationView, now: datetime) -> tuple[datetime, datetime]:
    """What a living sign-in was made after, and last seen after."""
    limits: Any = organization.settings["authentication"]["sessions"]
    # A timeout that was shortened counts for sign-ins made before, too.
    made_after = now - timedelta(seconds=limits["absolute_timeout_seconds"])
    for moment in (organization.tokens_valid_from, organization.sessions_not_before):
        if moment is not None:
            made_after = max(made_after, moment)
    return made_after, now - timedelta(seconds=limits["idle_timeout_seconds"])


def _is_living(now: Any, made_after: Any, seen_after: Any) -> ColumnElement[bool]:
    return and_(
        Session.revoked_at.is_(None),
        Session.expires_at > now,
        Session.created_at >= made_after,
        Session.last_seen_at > seen_after,
    )


def _moment(name: str) -> Any:
    return bindparam(name, type_=Session.expires_at.type)


_FIND = Statement(
    select(Session.__table__, User.email, User.name, User.profile)
    .join(User, (User.organization_id == Session.organization_id) & (User.id == Session.user_id))
    .where(
        Session.organization_id == bindparam("organization_id"),
        Session.digest == bindparam("digest"),
        User.status == ACTIVE,
        _is_living(_moment("now"), _moment("made_after"), _moment("seen_after")),
    )
)
