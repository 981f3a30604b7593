"""One's own sign-ins: the list of browsers, and ending them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.session import Session
from app.operations import audit
from app.operations.directory import OrganizationView, organization_by_id
from app.operations.people.living_sessions import living
from app.operations.people.sessions import end_sessions, end_sessions_of_user
from app.operations.transaction import read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import parse_public_id, public_id


@dataclass(frozen=True, slots=True)
class SignIn:
    """A sign-in as its owner sees it in a list."""

    public_id: str
    is_current: bool
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    address: str | None
    user_agent: str


@read
def list_sessions(actor: Actor) -> list[SignIn]:
    """The actor's own living sign-ins, this one first, then by last use."""
    organization, user_id = _own(actor)
    return sign_ins_of(organization, user_id, current=actor.session_id)


@read
def sign_ins_of(
    organization: OrganizationView, user_id: UUID, *, current: UUID | None = None
) -> list[SignIn]:
    """The living sign-ins of a user, the current one first, then by last use."""
    rows = db.session.scalars(
        select(Session)
        .where(Session.organization_id == organization.id, Session.user_id == user_id, living(organization))
        .order_by(Session.last_seen_at.desc())
        .limit(1000)
    )
    listed = [
        SignIn(
            public_id("ses", row.id),
            row.id == current,
            row.created_at,
            row.last_seen_at,
            row.expires_at,
            row.address,
            row.user_agent,
        )
        for row in rows
    ]
    return sorted(listed, key=lambda sign_in: not sign_in.is_current)


@transaction
def end_session(actor: Actor, session_id: str | None = None) -> bool:
    """The actor's own sign-in (this one when left out) is over; says whether it lived until now.

    Raises NotFound for anybody else's. Audit: ``session.ended``.
    """
    organization, user_id = _own(actor)
    row_id = actor.session_id if session_id is None else parse_public_id("ses", session_id)
    ended = end_sessions(organization.id, (Session.id == row_id) & (Session.user_id == user_id))
    if not ended and session_id is not None:
        raise NotFound("This sign-in is over already.")
    if ended and row_id is not None:
        audit.record(actor, "session.ended", target_type="session", target_id=public_id("ses", row_id))
    return bool(ended)


@transaction
def end_other_sessions(actor: Actor) -> int:
    """Every sign-in of the actor but the present one is over; returns how many. Audit: ``session.others_ended``."""
    organization, user_id = _own(actor)
    ended = end_sessions_of_user(organization.id, user_id, keep=actor.session_id)
    if ended:
        target = public_id("usr", user_id)
        audit.record(
            actor, "session.others_ended", target_type="user", target_id=target, after={"sessions": ended}
        )
    return ended


def _own(actor: Actor) -> tuple[OrganizationView, UUID]:
    """The actor's own organization and id: an account is reached from its own sign-in alone."""
    user_id = actor.own_account()
    return organization_by_id(actor.organization_id, fresh=False), user_id
