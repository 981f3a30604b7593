"""The end of what an app holds for a user: codes on their way, and grants with all that hangs from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.device import DeviceCode
from app.models.grant import AuthorizationCode, Grant
from app.operations import clock
from app.operations.grants import grants
from app.operations.grants.standing_grants import outlives_moments
from app.rules.actor import Actor
from app.rules.authorization.claims_parameter import scopes_of


def end_access(actor: Actor, user_id: UUID | None, client_id: UUID) -> tuple[int, list[str]]:
    """Nothing that the client holds for the user counts any more; part of the transaction under way.

    Returns how many grants ended, and the scopes that they had. The audit event is the caller's.
    """
    living = _living(actor, user_id, client_id)
    for model in (AuthorizationCode, DeviceCode):
        db.session.execute(
            update(model)
            .where(
                model.organization_id == actor.organization_id,
                model.client_id == client_id,
                model.user_id == user_id,
                model.used_at.is_(None),
            )
            .values(expires_at=clock.now())
        )
    ended = sum(grants.revoke(actor, grant.id, reason="consent_withdrawn") for grant in living)
    return ended, list(dict.fromkeys(scope for grant in living for scope in grant.scope.split()))


def end_access_with(actor: Actor, user_id: UUID, client_id: UUID, scopes: Collection[str]) -> int:
    """The same for what has one of the scopes, or claims that only one of them releases; the rest goes on.

    A grant cannot be narrowed: tokens that it gave say what they are for. The app comes again for what is left.
    """
    now = clock.now()
    living = _living(actor, user_id, client_id)
    for model in (AuthorizationCode, DeviceCode):
        claims = (AuthorizationCode.claims,) if model is AuthorizationCode else ()
        waiting = db.session.execute(
            select(model.id, model.scope, *claims).where(
                model.organization_id == actor.organization_id,
                model.client_id == client_id,
                model.user_id == user_id,
                model.used_at.is_(None),
                model.expires_at > now,
            )
        ).all()
        over = [row.id for row in waiting if _holds(row.scope, getattr(row, "claims", None), scopes)]
        if over:
            db.session.execute(
                update(model)
                .where(
                    model.organization_id == actor.organization_id,
                    model.id.in_(over),
                    model.used_at.is_(None),
                )
                .values(expires_at=now)
                .execution_options(synchronize_session=False)
            )
    return sum(
        grants.revoke(actor, grant.id, reason="scope_withdrawn")
        for grant in living
        if _holds(grant.scope, grant.claims, scopes)
    )


def _living(actor: Actor, user_id: UUID | None, client_id: UUID) -> Sequence[Any]:
    # Also those that refresh no more: an access token of theirs may be alive. No more than grants.MOST_LIVING.
    return db.session.execute(
        select(Grant.id, Grant.scope, Grant.claims).where(
            Grant.organization_id == actor.organization_id,
            Grant.user_id == user_id,
            Grant.client_id == client_id,
            Grant.revoked_at.is_(None),
            Grant.expires_at > clock.now(),
            outlives_moments(),
        )
    ).all()


def _holds(scope: str, claims: Mapping[str, Any] | None, scopes: Collection[str]) -> bool:
    return not {*scope.split(), *scopes_of(claims)}.isdisjoint(scopes)
