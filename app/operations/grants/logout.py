"""Which clients hear of the end of a sign-in: those that were told of it and have a ``backchannel_logout_uri``.

They are kept apart from grants: a grant's row goes with its last token, long before the sign-in may end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.session import Session, SessionClient
from app.operations.directory.lookups import ClientSnapshot
from app.operations.store import clock, outbox
from app.operations.store.transactions import is_duplicate_key
from app.rules.identifiers import format_client_id, public_id

KIND = "backchannel_logout"


def add_listener(client: ClientSnapshot, session_id: UUID, user_id: UUID) -> None:
    """The client gets an ID token of the sign-in and hears of its end; part of the unit that makes the token."""
    if not client.document.get("backchannel_logout_uri"):
        return
    organization_id = client.organization.id
    # The lock decides which comes first, this or the end of the sign-in; whoever is second sees the other's rows.
    lives = db.session.scalar(
        select(Session.id)
        .where(Session.organization_id == organization_id, Session.id == session_id)
        .with_for_update(read=True)
    )
    if lives is None:
        _enqueue(organization_id, client.id, user_id, session_id)
        return
    limits = client.organization.settings["authentication"]["sessions"]
    row = {"organization_id": organization_id, "session_id": session_id, "client_id": client.id}
    row |= {"sid": session_id, "user_id": user_id}
    if db.session.get(SessionClient, (organization_id, session_id, client.id, session_id)) is not None:
        return
    try:
        with db.session.begin_nested():
            ends = clock.now() + timedelta(seconds=limits["absolute_timeout_seconds"])
            db.session.add(SessionClient(**row, expires_at=ends))
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise


def hand_over(organization_id: str, from_session: UUID, to_session: UUID) -> None:
    """Who would hear of the one sign-in's end hears of the other's: the same person signed in anew in its place."""
    db.session.execute(
        update(SessionClient)
        .where(SessionClient.organization_id == organization_id, SessionClient.session_id == from_session)
        .values(session_id=to_session)
        .execution_options(synchronize_session=False)
    )


def announce_end(organization_id: str, session_ids: Collection[UUID]) -> None:
    """Every listener of the sign-ins hears of their end; part of the unit that has just deleted them."""
    if not session_ids:
        return
    ended = (SessionClient.organization_id == organization_id) & SessionClient.session_id.in_(session_ids)
    rows: Sequence[Any] = db.session.execute(
        select(SessionClient.client_id, SessionClient.user_id, SessionClient.sid).where(ended)
    ).all()
    if not rows:
        return
    for client_id, user_id, sid in rows:
        _enqueue(organization_id, client_id, user_id, sid)
    db.session.execute(delete(SessionClient).where(ended).execution_options(synchronize_session=False))


def _enqueue(organization_id: str, client_id: UUID, user_id: UUID, sid: UUID) -> None:
    payload = {
        "client": format_client_id(organization_id, client_id),
        "user": public_id("usr", user_id),
        "session": public_id("ses", sid),
    }
    outbox.enqueue(organization_id, KIND, payload, receiver=payload["client"])
