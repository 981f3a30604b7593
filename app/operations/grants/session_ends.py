"""What ends with a sign-in: the tokens it gave without offline access, and what clients believe of it."""

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


def follow_end(organization_id: str, session_ids: Collection[UUID]) -> None:
    """Grants without a refresh token are over, and listeners will hear; part of the unit that deleted the sign-ins.

    A refresh token needs ``offline_access``: it was asked for to outlive the sign-in.
    """
    if not session_ids:
        return
    _end_online_grants(organization_id, session_ids)
    logout.announce_end(organization_id, session_ids)


def hand_over(organization_id: str, from_session: UUID, to_session: UUID) -> None:
    """What would end with the one sign-in ends with the other: the same person signed in anew in its place."""
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
    logout.hand_over(organization_id, from_session, to_session)


def _end_online_grants(organization_id: str, session_ids: Collection[UUID]) -> None:
    now = clock.now()
    living = (
        (Grant.organization_id == organization_id)
        & Grant.session_id.in_(session_ids)
        & Grant.refresh_digest.is_(None)
        & Grant.revoked_at.is_(None)
        & (Grant.expires_at > now)
    )
    ids = db.session.scalars(select(Grant.id).where(living)).all()
    if not ids:
        return
    count_changed(
        update(Grant)
        .where(Grant.organization_id == organization_id, Grant.id.in_(ids), Grant.revoked_at.is_(None))
        .values(revoked_at=now, revoked_reason="signed_out")
    )
    for grant_id in ids:
        log_revocation(organization_id, "grant", grant_id.bytes)
