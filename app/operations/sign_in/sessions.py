"""Sessions of browsers: find, start, list and end them.

The row is authoritative. The cookie holds a random value of which the row has the digest (SS-1).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, Integer, and_, bindparam, delete, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery, ListQuery, insert_into
from app.models.base import has_key, is_of_user, is_same
from app.models.session import Session
from app.models.user import ACTIVE, RoleAssignment, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import hold_user
from app.operations.grants.revocation import (
    expire_codes_of_sessions,
    on_session_replaced,
    on_sessions_ended,
    revoke_grants_of_user,
)
from app.operations.sign_in.pending_sign_ins import ProviderSession, delete_pending_sign_ins_of_user
from app.operations.store import audit, clock
from app.operations.store.rows import make_record
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    read,
    transaction,
    transaction_part,
)
from app.rules.actor import Actor
from app.rules.directory.permissions import permissions_of_roles
from app.rules.errors import NotFound
from app.rules.identifiers import (
    SESSION,
    HasPublicId,
    digest,
    new_id,
    new_token,
    parse_public_id,
    parse_token,
    public_id,
)
from app.rules.sign_in.browser_names import printable_user_agent

MAX_SESSIONS_PER_USER = 100
"""Applies when the organization sets no limit, so that repeated sign-ins cannot fill the table."""
LAST_SEEN_INTERVAL = timedelta(minutes=1)
_INSERT = CompiledQuery(insert_into(Session))


class SessionRecord(HasPublicId, Struct, frozen=True):
    """An active session with its user and the user's current permissions in the organization."""

    id_prefix = "ses"
    id: UUID
    organization_id: str
    organization_slug: str
    organization_name: str
    is_root: bool
    user_id: UUID
    user_email: str
    user_name: str
    locale: str | None
    zoneinfo: str | None
    authenticated_at: datetime
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    amr: tuple[str, ...]
    roles: tuple[str, ...]
    permissions: frozenset[str]

    @property
    def began_at(self) -> datetime:
        """Return when the user was signed in: before the session if an identity provider did not ask them again."""
        return min(self.created_at, self.authenticated_at)

    @property
    def user_public_id(self) -> str:
        """Return the user's public id, ``usr_…``."""
        return public_id("usr", self.user_id)

    def actor(self, *, ip_address: str | None = None, request_id: str | None = None) -> Actor:
        """Return the actor for the session's user in their own organization."""
        return Actor(
            "user",
            self.organization_id,
            self.organization_id,
            permissions=self.permissions,
            is_root=self.is_root,
            user_id=self.user_id,
            session_id=self.id,
            label=self.user_email,
            ip_address=ip_address,
            request_id=request_id,
            authenticated_at=self.authenticated_at,
            amr=self.amr,
        )


class SessionSummary(Struct, frozen=True):
    """A session as shown to its user in a list."""

    public_id: str
    is_current: bool
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    address: str | None
    user_agent: str


def active_session_condition(organization: OrganizationSnapshot) -> ColumnElement[bool]:
    """Return the SQL condition that a session is active."""
    now = clock.now()
    return _active_condition(now, *_session_cutoffs(organization, now))


def is_session_revoked(organization: OrganizationSnapshot, session_id: UUID) -> bool:
    """Return whether a session was revoked or ended, as opposed to having expired."""
    row = db.session.execute(
        select(Session.revoked_at, Session.created_at).where(has_key(Session, organization.id, session_id))
    ).first()
    return row is None or row.revoked_at is not None or organization.invalidates_session(row.created_at)


def find_session(token: str) -> SessionRecord | None:
    """Find the active session for a cookie value.

    A session is active until it is revoked, idle or older than the organization's settings allow, or its user
    or organization is disabled. The database's clock decides at each call. ``last_seen_at`` is written at
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
    if view is not None and clock.now() - view.last_seen_at > _last_seen_interval(organization):
        _update_last_seen(view)
    return view


@transaction_part
def start_session(
    organization: OrganizationSnapshot,
    user_id: UUID,
    *,
    amr: str = "pwd",
    ip_address: str | None = None,
    user_agent: str = "",
    replaces: str | None = None,
    session_count: int | None = None,
    authenticated_at: datetime | None = None,
    provider: ProviderSession | None = None,
) -> tuple[str, UUID]:
    """Start a session and return its cookie value and id.

    Call it in the sign-in's transaction, which audits it. ``replaces`` is the browser's previous cookie value
    for this organization. It becomes invalid, so that a planted cookie cannot share the new session (SS-2).
    The user's oldest sessions beyond the limit end. ``session_count`` is how many there are, if the caller has counted
    them. ``authenticated_at`` is when the user was authenticated, if not now. The session ends with that of the
    ``provider``.
    """
    unit = current_unit_of_work()
    token = unit.stable_value("session token", lambda: new_token(SESSION, organization.id))
    session_id: UUID = unit.stable_value("session id", new_id)
    now = clock.now()
    since = now
    limits = organization.settings["authentication"]["sessions"]
    expires_at = now + timedelta(seconds=limits["absolute_timeout_seconds"])
    if replaces is not None:
        since = _replace_session(organization.id, digest(replaces), user_id, session_id, now, expires_at)
    max_sessions = limits["max_per_user"] or MAX_SESSIONS_PER_USER
    if session_count is None or session_count >= max_sessions:
        _enforce_session_limit(organization.id, user_id, max_sessions)
    _INSERT.write_later(
        organization_id=organization.id,
        id=session_id,
        digest=digest(token),
        user_id=user_id,
        created_at=now,
        authenticated_at=authenticated_at or since,
        amr=amr,
        last_seen_at=now,
        expires_at=expires_at,
        address=(ip_address or "")[:64] or None,
        user_agent=printable_user_agent(user_agent),
        provider_id=None if provider is None else provider.provider_id,
        provider_sid=None if provider is None else provider.sid,
    )
    return token, session_id


@transaction
def rotate_session_token(actor: Actor) -> str | None:
    """Give the actor's session a new cookie value and invalidate the old one.

    Return None if the session has ended.
    """
    token = current_unit_of_work().stable_value(
        "session token", lambda: new_token(SESSION, actor.home_organization_id)
    )
    renewed = count_changed(
        update(Session)
        .where(has_key(Session, actor.home_organization_id, actor.session_id))
        .values(digest=digest(token))
    )
    return token if renewed else None


@transaction
def end_sessions_of_user(
    organization_id: str, user_id: UUID, *conditions: ColumnElement[bool], keep: UUID | None = None
) -> int:
    """End the matching sessions of a user except ``keep``, and all pending sign-ins: the browser may have one, too.

    Call it in the transaction that audits the change. Returns the number of sessions ended.
    """
    delete_pending_sign_ins_of_user(organization_id, user_id)
    kept = () if keep is None else (Session.id != keep,)
    return end_sessions(organization_id, and_(Session.user_id == user_id, *conditions, *kept))


@transaction
def end_access_of_user(
    actor: Actor, user_id: UUID, *, reason: str, keep: UUID | None = None
) -> dict[str, int]:
    """End a user's sessions except ``keep``, and revoke their grants (SS-6).

    Call it in the transaction that audits the change. Returns the counts for its event, ``ended_sessions`` and
    ``ended_grants``.
    """
    sessions = end_sessions_of_user(actor.organization_id, user_id, keep=keep)
    return {"ended_sessions": sessions, "ended_grants": revoke_grants_of_user(actor, user_id, reason=reason)}


@transaction
def end_sessions(organization_id: str, condition: ColumnElement[bool]) -> int:
    """End the organization's matching sessions and their grants, and notify their clients.

    Call it in the transaction that audits the change, which holds the user of a single session. Returns the number of
    sessions ended.
    """
    rows = db.session.execute(
        select(Session.id, Session.user_id).where(Session.organization_id == organization_id, condition)
    ).all()
    return _end(organization_id, [row.id for row in rows], {row.user_id for row in rows}) if rows else 0


def _end(organization_id: str, ids: Sequence[UUID], user_ids: Collection[UUID]) -> int:
    expire_codes_of_sessions(organization_id, sorted(user_ids), ids)
    ended = _DELETE.write(ids, organization_id=organization_id)
    on_sessions_ended(organization_id, ids)
    return ended


_DELETE = ListQuery(
    delete(Session).where(Session.organization_id == bindparam("organization_id")), Session.id
)


@read
def list_sessions(actor: Actor) -> list[SessionSummary]:
    """List the actor's own active sessions, the current one first, then by last use."""
    user_id = actor.require_own_account()
    organization = get_organization_by_id(actor.organization_id, fresh=False)
    return list_sessions_of_user(organization, user_id, current=actor.session_id)


@read
def list_sessions_of_user(
    organization: OrganizationSnapshot, user_id: UUID, *, current: UUID | None = None
) -> list[SessionSummary]:
    """List a user's active sessions, the ``current`` one first, then by last use."""
    rows = db.session.scalars(
        select(Session)
        .where(
            is_of_user(Session, organization.id, user_id),
            active_session_condition(organization),
        )
        .order_by(Session.last_seen_at.desc())
        .limit(1000)
    )
    listed = [
        make_record(SessionSummary, row, public_id=public_id("ses", row.id), is_current=row.id == current)
        for row in rows
    ]
    return sorted(listed, key=lambda sign_in: not sign_in.is_current)


@transaction
def end_session(actor: Actor, session_id: str | None = None) -> bool:
    """End one of the actor's own sessions, the current one by default, and return whether it was active.

    Raises NotFound for another user's session. Audit: ``session.ended``.
    """
    user_id = actor.require_own_account()
    row_id = actor.session_id if session_id is None else parse_public_id("ses", session_id)
    hold_user(actor.organization_id, user_id)
    ended = end_sessions_of_user(actor.organization_id, user_id, Session.id == row_id)
    if not ended and session_id is not None:
        raise NotFound("This session has already ended.")
    if ended and row_id is not None:
        audit.record(actor, "session.ended", "session", public_id("ses", row_id))
    return bool(ended)


@transaction
def end_other_sessions(actor: Actor) -> int:
    """End the actor's sessions except the current one and return how many ended.

    Audit: ``session.others_ended``.
    """
    user_id = actor.require_own_account()
    hold_user(actor.organization_id, user_id)
    ended = end_sessions_of_user(actor.organization_id, user_id, keep=actor.session_id)
    if ended:
        audit.record_user_event(actor, "session.others_ended", user_id, after={"sessions": ended})
    return ended


def _session_cutoffs(organization: OrganizationSnapshot, now: datetime) -> tuple[datetime, datetime]:
    """Return the earliest creation time and the earliest last-seen time of an active session."""
    limits: Any = organization.settings["authentication"]["sessions"]
    # A shortened timeout also applies to existing sessions.
    created_after = now - timedelta(seconds=limits["absolute_timeout_seconds"])
    for cutoff in (organization.tokens_valid_from, organization.sessions_not_before):
        if cutoff is not None:
            created_after = max(created_after, cutoff)
    return created_after, now - timedelta(seconds=limits["idle_timeout_seconds"])


def _active_condition(now: Any, created_after: Any, seen_after: Any) -> ColumnElement[bool]:
    return and_(
        Session.revoked_at.is_(None),
        Session.expires_at > now,
        Session.created_at >= created_after,
        Session.last_seen_at > seen_after,
    )


def _datetime_parameter(name: str) -> Any:
    return bindparam(name, type_=Session.expires_at.type)


def _replace_session(
    organization_id: str,
    replaced: bytes,
    user_id: UUID,
    session_id: UUID,
    now: datetime,
    expires_at: datetime,
) -> datetime:
    """Delete the browser's previous session and return ``authenticated_at`` for the new one.

    Grants and logout subscriptions of the same user move to the new session. Those of a different user end
    with the old one. ``auth_time`` counts whole seconds and must increase when a client asks for a fresh
    sign-in, so a sign-in within the same second is rounded up to the next.
    """
    before = _FIND_REPLACED.first(organization_id=organization_id, digest=replaced)
    if before is None:
        return now
    expire_codes_of_sessions(organization_id, [before.user_id], [before.id])
    _DELETE.write([before.id], organization_id=organization_id)
    if before.user_id == user_id:
        on_session_replaced(organization_id, before.id, session_id, expires_at=expires_at)
    else:
        on_sessions_ended(organization_id, [before.id])
    then: datetime = before.authenticated_at
    if int(then.timestamp()) < int(now.timestamp()):
        return now
    second = timedelta(seconds=1)
    return min(then.replace(microsecond=0) + second, now + second)


def _read_session(organization: OrganizationSnapshot, token_digest: bytes) -> SessionRecord | None:
    now = clock.now()
    created_after, seen_after = _session_cutoffs(organization, now)
    rows = _FIND_SESSION.rows(
        organization_id=organization.id,
        digest=token_digest,
        now=now,
        created_after=created_after,
        seen_after=seen_after,
    )
    if not rows:
        return None
    row = rows[0]
    roles = tuple(each.role for each in rows if each.role is not None)
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
        zoneinfo=(row.profile or {}).get("zoneinfo"),
        authenticated_at=row.authenticated_at,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        expires_at=row.expires_at,
        amr=tuple(row.amr.split()),
        roles=roles,
        permissions=permissions_of_roles(roles, organization.settings, is_root=organization.is_root),
    )


@transaction
def _update_last_seen(view: SessionRecord) -> None:
    db.session.execute(
        update(Session)
        .where(has_key(Session, view.organization_id, view.id), Session.last_seen_at == view.last_seen_at)
        .values(last_seen_at=clock.now())
    )


def _enforce_session_limit(organization_id: str, user_id: UUID, max_sessions: int) -> None:
    excess = _FIND_EXCESS.rows(organization_id=organization_id, user_id=user_id, kept=max_sessions - 1)
    if excess:
        _end(organization_id, [session_id for (session_id,) in excess], [user_id])


def _last_seen_interval(organization: OrganizationSnapshot) -> timedelta:
    idle = timedelta(seconds=organization.settings["authentication"]["sessions"]["idle_timeout_seconds"])
    return min(LAST_SEEN_INTERVAL, idle / 10)


_FIND_REPLACED = CompiledQuery(
    select(Session.id, Session.user_id, Session.authenticated_at).where(
        Session.organization_id == bindparam("organization_id"), Session.digest == bindparam("digest")
    )
)
_FIND_EXCESS = CompiledQuery(
    select(Session.id)
    .where(is_of_user(Session, bindparam("organization_id"), bindparam("user_id")))
    .order_by(Session.last_seen_at.desc())
    .offset(bindparam("kept", type_=Integer))
    .limit(1000)
)
# One row for each role of the user in the organization, or one without a role.
_FIND_SESSION = CompiledQuery(
    select(
        Session.id,
        Session.user_id,
        Session.authenticated_at,
        Session.created_at,
        Session.last_seen_at,
        Session.expires_at,
        Session.amr,
        User.email,
        User.name,
        User.profile,
        RoleAssignment.role,
    )
    .join(User, is_same(User.id, Session.user_id))
    .outerjoin(
        RoleAssignment,
        (RoleAssignment.organization_id == Session.organization_id)
        & (RoleAssignment.user_organization_id == Session.organization_id)
        & (RoleAssignment.user_id == Session.user_id),
    )
    .where(
        Session.organization_id == bindparam("organization_id"),
        Session.digest == bindparam("digest"),
        User.status == ACTIVE,
        _active_condition(
            _datetime_parameter("now"),
            _datetime_parameter("created_after"),
            _datetime_parameter("seen_after"),
        ),
    )
    .order_by(RoleAssignment.role)
)
