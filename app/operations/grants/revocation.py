"""Revocation of grants: every path that ends the grants of a user or a client."""

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


def end_grants(actor: Actor, condition: Any, *, reason: str) -> int:
    """Every living grant of the actor's organization that meets the condition is revoked; returns how many.

    Part of the transaction under way. One statement and no row count to trust: tokens ask their grant.
    """
    now = clock.now()
    return count_changed(
        update(Grant)
        .where(Grant.organization_id == actor.organization_id, Grant.revoked_at.is_(None), condition)
        .values(revoked_at=now, revoked_reason=reason, sealed_answer=None)
    )


@transaction
def revoke_grants_of_user(actor: Actor, user_id: UUID, *, reason: str) -> int:
    """Every app loses what the user allowed it, codes included; returns how many grants ended."""
    _end_codes(actor, "user_id", user_id)
    ended = end_grants(actor, Grant.user_id == user_id, reason=reason)
    grants.log_revocation(actor.organization_id, "user", user_id.bytes)
    return ended


@transaction
def revoke_grants_elsewhere(actor: Actor, user_id: UUID, *, reason: str) -> int:
    """As ``revoke_grants_of_user``, but for what was allowed in the actor's own sign-in; returns how many ended."""
    _end_codes(actor, "user_id", user_id)
    elsewhere = (
        (Grant.organization_id == actor.organization_id)
        & (Grant.user_id == user_id)
        & Grant.revoked_at.is_(None)
        & or_(Grant.session_id.is_(None), Grant.session_id != actor.session_id)
    )
    ids = db.session.scalars(select(Grant.id).where(elsewhere)).all()
    for grant_id in ids:
        grants.log_revocation(actor.organization_id, "grant", grant_id.bytes)
    return end_grants(actor, Grant.id.in_(ids), reason=reason) if ids else 0


@transaction
def revoke_grants_of_client(actor: Actor, client_id: UUID, *, reason: str) -> int:
    """Nobody's permission for the client stands any more; returns how many grants ended."""
    _end_codes(actor, "client_id", client_id)
    ended = end_grants(actor, Grant.client_id == client_id, reason=reason)
    grants.log_revocation(actor.organization_id, "client", client_id.bytes)
    return ended


def _end_codes(actor: Actor, column: str, value: UUID) -> None:
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
