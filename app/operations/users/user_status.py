"""Disabling and enabling users."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import update

from app.extensions import db
from app.models.user import ACTIVE, DELETED, DISABLED, User
from app.operations.directory.users import UserSnapshot, get_user
from app.operations.grants.revocation import revoke_grants_of_user
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.sessions import end_sessions_of_user
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, transaction
from app.operations.users.role_assignments import require_other_administrators_everywhere
from app.rules.actor import Actor
from app.rules.identifiers import public_id


@transaction
def disable_user(actor: Actor, user_id: UUID) -> UserSnapshot:
    """Disable a user and end their sessions and grants at once (SS-6).

    A repeated call changes nothing. Raises NotFound, Forbidden when the user has a role that the actor lacks,
    LastAdministrator. Audit: ``user.disabled``.
    """
    user = require_manageable_user(actor, user_id)
    require_other_administrators_everywhere(actor.organization_id, user_id)
    if _set_status(actor, user_id, DISABLED):
        ended = end_sessions_of_user(actor.organization_id, user_id)
        grants = revoke_grants_of_user(actor, user_id, reason="user_disabled")
        after = {"status": DISABLED, "ended_sessions": ended, "ended_grants": grants}
        audit.record(actor, "user.disabled", target_type="user", target_id=user.public_id, after=after)
    return get_user(actor.organization_id, user_id)


@transaction
def enable_user(actor: Actor, user_id: UUID) -> UserSnapshot:
    """Enable a user again, without restoring sessions or grants.

    Raises NotFound, Forbidden. Audit: ``user.enabled``.
    """
    require_manageable_user(actor, user_id)
    if _set_status(actor, user_id, ACTIVE):
        target = public_id("usr", user_id)
        audit.record(actor, "user.enabled", target_type="user", target_id=target, after={"status": ACTIVE})
    return get_user(actor.organization_id, user_id)


def _set_status(actor: Actor, user_id: UUID, status: str) -> bool:
    changed = count_changed(
        update(User)
        .where(
            User.organization_id == actor.organization_id,
            User.id == user_id,
            # A user who was deleted in the meantime stays deleted.
            User.status.not_in((status, DELETED)),
        )
        .values(status=status, updated_at=clock.now(), version=User.version + 1)
    )
    db.session.expire_all()
    return changed > 0
