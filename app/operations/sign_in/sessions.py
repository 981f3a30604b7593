"""Sessions: sign-ins of browsers. The row is the truth; the cookie holds a random value whose digest it has (SS-1)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, bindparam, delete, select, update

from app.extensions import db
from app.models.session import Session
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.directory.permissions import get_user_roles
from app.operations.grants.session_ends import follow_end, hand_over
from app.operations.sign_in.pending_sign_ins import delete_pending_sign_ins_of_user
from app.operations.statements import Statement
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.directory.permissions import permissions_of_roles
from app.rules.errors import NotFound
from app.rules.identifiers import new_id, parse_public_id, public_id
from app.rules.token_values import SESSION, digest, new_token, parse_token


def active_session_condition(organization: OrganizationSnapshot) -> ColumnElement[bool]:
    """The condition that a session row lives."""
    now = clock.now()
    return _is_living(now, *_limits(organization, now))


def find_active_session_row(organization: OrganizationSnapshot, digest: bytes) -> Any:
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


def is_session_revoked(organization: OrganizationSnapshot, session_id: UUID) -> bool:
    """Whether the sign-in was ended, by whomever, rather than by its age; part of a unit of work."""
    row = db.session.execute(
        select(Session.revoked_at, Session.created_at).where(
            Session.organization_id == organization.id, Session.id == session_id
        )
    ).first()
    return row is None or row.revoked_at is not None or organization.invalidates_session(row.created_at)


def _limits(organization: OrganizationSnapshot, now: datetime) -> tuple[datetime, datetime]:
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


MAX_SESSIONS_PER_USER = 100
"""Where the organization sets no bound of its own: somebody who signs in again and again must not fill the table."""
LAST_SEEN_INTERVAL = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class SessionRecord:
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
            ip_address=address,
            request_id=request_id,
            authenticated_at=self.authenticated_at,
            amr=self.amr,
        )


def find_session(token: str) -> SessionRecord | None:
    """The living sign-in of a cookie's value, or None.

    It lives while it was neither ended nor idle or older than the organization's settings allow, and while user
    and organization are active: all decided by the database's clock at each call. ``last_seen_at`` is written at
    most once a minute.
    """
    parsed = parse_token(token)
    if parsed is None or parsed.kind != SESSION:
        return None
    try:
        organization = get_organization_by_id(parsed.organization_id, fresh=False)
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
    organization: OrganizationSnapshot,
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
    unit = current_unit_of_work()
    token = unit.stable_value("session token", lambda: new_token(SESSION, organization.id))
    session_id: UUID = unit.stable_value("session id", new_id)
    now = clock.now()
    authenticated_at = now
    if replaces is not None:
        authenticated_at = _take_place(organization.id, digest(replaces), user_id, session_id, now)
    limits = organization.settings["authentication"]["sessions"]
    _make_room(organization.id, user_id, limits["max_per_user"] or MAX_SESSIONS_PER_USER)
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
def rotate_session_token(actor: Actor) -> str | None:
    """The actor's own sign-in has a new cookie value and the old one is dead; None when it has ended meanwhile."""
    token = current_unit_of_work().stable_value(
        "session token", lambda: new_token(SESSION, actor.home_organization_id)
    )
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
    delete_pending_sign_ins_of_user(organization_id, user_id)
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


def _read_session(organization: OrganizationSnapshot, token_digest: bytes) -> SessionRecord | None:
    row = find_active_session_row(organization, token_digest)
    if row is None:
        return None
    roles = get_user_roles(organization.id, organization.id, row.user_id)
    return SessionRecord(
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
def _note_seen(view: SessionRecord) -> None:
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


def _sampling(organization: OrganizationSnapshot) -> timedelta:
    idle = timedelta(seconds=organization.settings["authentication"]["sessions"]["idle_timeout_seconds"])
    return min(LAST_SEEN_INTERVAL, idle / 10)


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A sign-in as its owner sees it in a list."""

    public_id: str
    is_current: bool
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    address: str | None
    user_agent: str


@read
def list_sessions(actor: Actor) -> list[SessionSummary]:
    """The actor's own living sign-ins, this one first, then by last use."""
    organization, user_id = _own(actor)
    return list_sessions_of_user(organization, user_id, current=actor.session_id)


@read
def list_sessions_of_user(
    organization: OrganizationSnapshot, user_id: UUID, *, current: UUID | None = None
) -> list[SessionSummary]:
    """The living sign-ins of a user, the current one first, then by last use."""
    rows = db.session.scalars(
        select(Session)
        .where(
            Session.organization_id == organization.id,
            Session.user_id == user_id,
            active_session_condition(organization),
        )
        .order_by(Session.last_seen_at.desc())
        .limit(1000)
    )
    listed = [
        SessionSummary(
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


def _own(actor: Actor) -> tuple[OrganizationSnapshot, UUID]:
    """The actor's own organization and id: an account is reached from its own sign-in alone."""
    user_id = actor.require_own_account()
    return get_organization_by_id(actor.organization_id, fresh=False), user_id
