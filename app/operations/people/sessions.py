"""Sessions: sign-ins of browsers. The row is the truth; the cookie holds a random value whose digest it has (SS-1)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, delete, select, update

from app.extensions import db
from app.models.session import Session
from app.operations import clock
from app.operations.directory import OrganizationView, organization_by_id
from app.operations.logout.session_ends import follow_end, hand_over
from app.operations.people.living_sessions import find_living
from app.operations.people.rights import roles_of_user
from app.operations.second_factors.pending import end_pending_of
from app.operations.transaction import count_changed, current_unit, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import new_id, public_id
from app.rules.people.permissions import permissions_of_roles
from app.rules.tokens.tokens import SESSION, digest, new_token, parse_token

MOST_PER_USER = 100
"""Where the organization sets no bound of its own: somebody who signs in again and again must not fill the table."""
SEEN_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class SessionView:
    """A living sign-in, with whose it is and what that person may do in the organization now."""

    id: UUID
    organization_id: str
    organization_slug: str
    organization_name: str
    is_root: bool
    user_id: UUID
    user_email: str
    user_name: str
    locale: str | None
    authenticated_at: datetime
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    amr: tuple[str, ...]
    roles: tuple[str, ...]
    permissions: frozenset[str]

    @property
    def public_id(self) -> str:
        """``ses_…``."""
        return public_id("ses", self.id)

    @property
    def user_public_id(self) -> str:
        """``usr_…``."""
        return public_id("usr", self.user_id)

    def actor(self, *, address: str | None = None, request_id: str | None = None) -> Actor:
        """The person behind the sign-in, in their own organization."""
        return Actor(
            "user",
            self.organization_id,
            self.organization_id,
            permissions=self.permissions,
            is_root=self.is_root,
            user_id=self.user_id,
            session_id=self.id,
            label=self.user_email,
            address=address,
            request_id=request_id,
            authenticated_at=self.authenticated_at,
            amr=self.amr,
        )


def find_session(token: str) -> SessionView | None:
    """The living sign-in of a cookie's value, or None.

    It lives while it was neither ended nor idle or older than the organization's settings allow, and while user
    and organization are active: all decided by the database's clock at each call. ``last_seen_at`` is written at
    most once a minute.
    """
    parsed = parse_token(token)
    if parsed is None or parsed.kind != SESSION:
        return None
    try:
        organization = organization_by_id(parsed.organization_id, fresh=False)
    except NotFound:
        return None
    if not organization.is_active:
        return None
    view = _read_session(organization, digest(token))
    if view is not None and clock.now() - view.last_seen_at > _sampling(organization):
        _note_seen(view)
    return view


@transaction
def start_session(
    organization: OrganizationView,
    user_id: UUID,
    *,
    amr: str = "pwd",
    address: str | None = None,
    user_agent: str = "",
    replaces: str | None = None,
) -> tuple[str, UUID]:
    """(the cookie's value, the row's id) of a new sign-in; part of the sign-in that audits it.

    ``replaces`` is the value that the browser had for this organization: it is dead afterwards, so that nobody
    who planted it shares the new one (SS-2). Beyond the bound of sign-ins per user the oldest end.
    """
    unit = current_unit()
    token = unit.once("session token", lambda: new_token(SESSION, organization.id))
    session_id: UUID = unit.once("session id", new_id)
    now = clock.now()
    authenticated_at = now
    if replaces is not None:
        authenticated_at = _take_place(organization.id, digest(replaces), user_id, session_id, now)
    limits = organization.settings["authentication"]["sessions"]
    _make_room(organization.id, user_id, limits["max_per_user"] or MOST_PER_USER)
    db.session.add(
        Session(
            organization_id=organization.id,
            id=session_id,
            digest=digest(token),
            user_id=user_id,
            created_at=now,
            authenticated_at=authenticated_at,
            amr=amr,
            last_seen_at=now,
            expires_at=now + timedelta(seconds=limits["absolute_timeout_seconds"]),
            address=(address or "")[:64] or None,
            user_agent=_printable(user_agent)[:255],
        )
    )
    return token, session_id


def _take_place(
    organization_id: str, replaced: bytes, user_id: UUID, session_id: UUID, now: datetime
) -> datetime:
    """The browser's sign-in before is over; returns the ``authenticated_at`` of the one that takes its place.

    What hung from the same person's sign-in hangs from the new one; another person's ends with all that it gave.
    ``auth_time`` counts whole seconds. A client that asked for a fresh sign-in must see it move forward, so one that
    follows within the same second is rounded up to the next.
    """
    before = db.session.execute(
        select(Session.id, Session.user_id, Session.authenticated_at).where(
            Session.organization_id == organization_id, Session.digest == replaced
        )
    ).first()
    if before is None:
        return now
    db.session.execute(
        delete(Session).where(Session.organization_id == organization_id, Session.id == before.id)
    )
    if before.user_id == user_id:
        hand_over(organization_id, before.id, session_id)
    else:
        follow_end(organization_id, [before.id])
    then: datetime = before.authenticated_at
    if int(then.timestamp()) < int(now.timestamp()):
        return now
    second = timedelta(seconds=1)
    return min(then.replace(microsecond=0) + second, now + second)


@transaction
def renew_session(actor: Actor) -> str | None:
    """The actor's own sign-in has a new cookie value and the old one is dead; None when it has ended meanwhile."""
    token = current_unit().once("session token", lambda: new_token(SESSION, actor.home_organization_id))
    renewed = count_changed(
        update(Session)
        .where(Session.organization_id == actor.home_organization_id, Session.id == actor.session_id)
        .values(digest=digest(token))
    )
    return token if renewed else None


@transaction
def end_sessions_of_user(organization_id: str, user_id: UUID, *, keep: UUID | None = None) -> int:
    """Every sign-in of the user but ``keep`` is over, and none waits for a second step any more.

    Part of the change that audits it. Returns how many ended.
    """
    end_pending_of(organization_id, user_id)
    condition = Session.user_id == user_id
    if keep is not None:
        condition &= Session.id != keep
    return end_sessions(organization_id, condition)


@transaction
def end_sessions(organization_id: str, condition: ColumnElement[bool]) -> int:
    """The organization's sign-ins that fit are over, with what they gave; clients that knew of them will hear.

    Part of the change that audits it. Returns how many lived until now.
    """
    ids = db.session.scalars(
        select(Session.id).where(Session.organization_id == organization_id, condition)
    ).all()
    if not ids:
        return 0
    ended = count_changed(
        delete(Session).where(Session.organization_id == organization_id, Session.id.in_(ids))
    )
    follow_end(organization_id, ids)
    return ended


def _read_session(organization: OrganizationView, token_digest: bytes) -> SessionView | None:
    row = find_living(organization, token_digest)
    if row is None:
        return None
    roles = roles_of_user(organization.id, organization.id, row.user_id)
    return SessionView(
        id=row.id,
        organization_id=organization.id,
        organization_slug=organization.slug,
        organization_name=organization.name,
        is_root=organization.is_root,
        user_id=row.user_id,
        user_email=row.email,
        user_name=row.name,
        locale=(row.profile or {}).get("locale"),
        authenticated_at=row.authenticated_at,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        expires_at=row.expires_at,
        amr=tuple(row.amr.split()),
        roles=roles,
        permissions=permissions_of_roles(roles, organization.settings, is_root=organization.is_root),
    )


@transaction
def _note_seen(view: SessionView) -> None:
    db.session.execute(
        update(Session)
        .where(
            Session.organization_id == view.organization_id,
            Session.id == view.id,
            Session.last_seen_at == view.last_seen_at,
        )
        .values(last_seen_at=clock.now())
    )


def _make_room(organization_id: str, user_id: UUID, most: int) -> None:
    standing = db.session.scalars(
        select(Session.id)
        .where(Session.organization_id == organization_id, Session.user_id == user_id)
        .order_by(Session.last_seen_at.desc())
        .offset(most - 1)
        .limit(1000)
    ).all()
    if standing:
        end_sessions(organization_id, Session.id.in_(standing))


def _sampling(organization: OrganizationView) -> timedelta:
    idle = timedelta(seconds=organization.settings["authentication"]["sessions"]["idle_timeout_seconds"])
    return min(SEEN_EVERY, idle / 10)


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())
