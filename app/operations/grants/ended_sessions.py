"""What happens when a session ends: grants without offline access are revoked and clients are notified."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.grant import Grant
from app.operations.grants import logout
from app.operations.grants.grants import log_revocation
from app.operations.store import clock
from app.operations.store.transactions import count_changed


def on_sessions_ended(organization_id: str, session_ids: Collection[UUID]) -> None:
    """Revoke the sessions' grants that have no refresh token, and notify listening clients.

    Runs in the transaction that deleted the sessions. Grants with a refresh token remain: clients request
    ``offline_access`` to keep access after the session.
    """
    if not session_ids:
        return
    _revoke_online_grants(organization_id, session_ids)
    logout.notify_listeners(organization_id, session_ids)


def on_session_replaced(organization_id: str, from_session: UUID, to_session: UUID) -> None:
    """Move grants and listeners of a session to the one that replaced it when the same user signed in again."""
    db.session.execute(
        update(Grant)
        .where(
            Grant.organization_id == organization_id,
            Grant.session_id == from_session,
            Grant.refresh_digest.is_(None),
        )
        .values(session_id=to_session)
        .execution_options(synchronize_session=False)
    )
    logout.transfer_listeners(organization_id, from_session, to_session)


def _revoke_online_grants(organization_id: str, session_ids: Collection[UUID]) -> None:
    now = clock.now()
    active = (
        (Grant.organization_id == organization_id)
        & Grant.session_id.in_(session_ids)
        & Grant.refresh_digest.is_(None)
        & Grant.revoked_at.is_(None)
        & (Grant.expires_at > now)
    )
    ids = db.session.scalars(select(Grant.id).where(active)).all()
    if not ids:
        return
    count_changed(
        update(Grant)
        .where(Grant.organization_id == organization_id, Grant.id.in_(ids), Grant.revoked_at.is_(None))
        .values(revoked_at=now, revoked_reason="signed_out")
    )
    for grant_id in ids:
        log_revocation(organization_id, "grant", grant_id.bytes)
