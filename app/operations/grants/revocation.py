"""Revoke the grants of a user or a client, with their unused authorization and device codes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import or_, select, update

from app.extensions import db
from app.models.grant import AuthorizationCode, Grant
from app.models.token import DeviceCode
from app.operations.grants import grants
from app.operations.store import clock
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor


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
def revoke_grants_of_client(actor: Actor, client_id: UUID, *, reason: str) -> int:
    """Revoke every grant of a client, unused codes included. Return how many grants were revoked."""
    _expire_codes(actor, "client_id", client_id)
    revoked = revoke_matching_grants(actor, Grant.client_id == client_id, reason=reason)
    grants.log_revocation(actor.organization_id, "client", client_id.bytes)
    return revoked


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
