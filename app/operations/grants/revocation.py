"""Revoke the grants of a user, a client or a session, with their unused authorization and device codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, or_, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery, ListQuery, list_parameters, list_values, size_of_list
from app.models.grant import AuthorizationCode, Grant
from app.models.token import DeviceCode
from app.operations.grants import grants, logout
from app.operations.store import clock
from app.operations.store.transactions import count_changed, on_commit, transaction
from app.rules.actor import Actor

_session_subscribers: list[Callable[[str, UUID, UUID], None]] = []


def subscribe_to_replaced_sessions(callback: Callable[[str, UUID, UUID], None]) -> None:
    """Call back with the organization, the replaced session and its successor, after the commit of the sign-in.

    Subscribing twice has no effect.
    """
    if callback not in _session_subscribers:
        _session_subscribers.append(callback)


def revoke_matching_grants(actor: Actor, condition: Any, *, reason: str) -> int:
    """Revoke every active grant of the actor's organization that matches the condition. Return how many.

    Runs in the current transaction. Tokens need no statement of their own, because they are checked against
    their grant.
    """
    now = clock.now()
    return count_changed(
        update(Grant)
        .where(Grant.organization_id == actor.organization_id, Grant.revoked_at.is_(None), condition)
        .values(revoked_at=now, revoked_reason=reason, sealed_answer=None)
    )


@transaction
def revoke_grants_of_user(actor: Actor, user_id: UUID, *, reason: str) -> int:
    """Revoke every grant of a user, unused codes included. Return how many grants were revoked."""
    _expire_codes(actor, "user_id", user_id)
    revoked = revoke_matching_grants(actor, Grant.user_id == user_id, reason=reason)
    grants.log_revocation(actor.organization_id, "user", user_id.bytes)
    return revoked


@transaction
def revoke_grants_of_other_sessions(actor: Actor, user_id: UUID, *, reason: str) -> int:
    """Revoke a user's grants except those of the actor's current session. Return how many were revoked."""
    _expire_codes(actor, "user_id", user_id)
    other_sessions = (
        (Grant.organization_id == actor.organization_id)
        & (Grant.user_id == user_id)
        & Grant.revoked_at.is_(None)
        & or_(Grant.session_id.is_(None), Grant.session_id != actor.session_id)
    )
    ids = db.session.scalars(select(Grant.id).where(other_sessions)).all()
    for grant_id in ids:
        grants.log_revocation(actor.organization_id, "grant", grant_id.bytes)
    return revoke_matching_grants(actor, Grant.id.in_(ids), reason=reason) if ids else 0


@transaction
def expire_codes_of_client(actor: Actor, client_id: UUID) -> None:
    """Expire a client's unused codes. The client's cutoff revokes its grants, of which there may be very many."""
    _expire_codes(actor, "client_id", client_id)
    grants.log_revocation(actor.organization_id, "client", client_id.bytes)


def _expire_codes(actor: Actor, column: str, value: UUID) -> None:
    now = clock.now()
    for model in (AuthorizationCode, DeviceCode):
        db.session.execute(
            update(model)
            .where(
                model.organization_id == actor.organization_id,
                model.used_at.is_(None),
                model.expires_at > now,
                getattr(model, column) == value,
            )
            .values(expires_at=now)
        )


def expire_codes_of_sessions(
    organization_id: str, user_ids: Sequence[UUID], session_ids: Sequence[UUID]
) -> None:
    """Expire the unused codes of these users' sessions, in the transaction that deletes the sessions, before it does.

    It waits for codes that are being redeemed, so that the grants of these are found when the sessions have ended.
    """
    users, sessions = size_of_list(user_ids), size_of_list(session_ids)
    _expire_codes_query(users, sessions).write_later(
        of_organization=organization_id,
        now=clock.now(),
        **list_values("user", user_ids, users),
        **list_values("session", session_ids, sessions),
    )


@cache
def _expire_codes_query(users: int, sessions: int) -> CompiledQuery:
    code = AuthorizationCode
    return CompiledQuery(
        update(code)
        .where(
            code.organization_id == bindparam("of_organization"),
            # There is an index of users only.
            code.user_id.in_(list_parameters("user", code.user_id, users)),
            code.session_id.in_(list_parameters("session", code.session_id, sessions)),
            code.used_at.is_(None),
            code.expires_at > bindparam("now", type_=code.expires_at.type),
        )
        .values(expires_at=bindparam("now", type_=code.expires_at.type))
    )


def on_sessions_ended(organization_id: str, session_ids: Sequence[UUID]) -> None:
    """Revoke the sessions' grants that have no refresh token, and notify listening clients.

    Runs in the transaction that deleted the sessions. Grants with a refresh token remain: clients request
    ``offline_access`` to keep access after the session.
    """
    if not session_ids:
        return
    _revoke_online_grants(organization_id, session_ids)
    logout.notify_listeners(organization_id, session_ids)


def on_session_replaced(
    organization_id: str, from_session: UUID, to_session: UUID, *, expires_at: datetime
) -> None:
    """Move grants and listeners of a session to the one that replaced it when the same user signed in again.

    ``expires_at`` is when the new one expires. Subscribers are called after the commit.
    """
    _MOVE.write_later(of_organization=organization_id, from_session=from_session, session_id=to_session)
    logout.transfer_listeners(organization_id, from_session, to_session, expires_at)
    for callback in _session_subscribers:
        on_commit(partial(callback, organization_id, from_session, to_session))


_MOVE = CompiledQuery(
    update(Grant)
    .where(
        Grant.organization_id == bindparam("of_organization"),
        Grant.session_id == bindparam("from_session"),
        Grant.refresh_digest.is_(None),
    )
    .values(session_id=bindparam("session_id"))
)


_ONLINE_GRANTS = ListQuery(
    select(Grant.id).where(
        Grant.organization_id == bindparam("organization_id"),
        Grant.refresh_digest.is_(None),
        Grant.revoked_at.is_(None),
        Grant.expires_at > bindparam("now", type_=Grant.expires_at.type),
    ),
    Grant.session_id,
)


def _revoke_online_grants(organization_id: str, session_ids: Sequence[UUID]) -> None:
    now = clock.now()
    rows = _ONLINE_GRANTS.rows(session_ids, organization_id=organization_id, now=now)
    ids = [grant_id for (grant_id,) in rows]
    if not ids:
        return
    count_changed(
        update(Grant)
        .where(Grant.organization_id == organization_id, Grant.id.in_(ids), Grant.revoked_at.is_(None))
        .values(revoked_at=now, revoked_reason="signed_out")
    )
    for grant_id in ids:
        grants.log_revocation(organization_id, "grant", grant_id.bytes)
