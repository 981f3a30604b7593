"""Back-channel logout: which clients to notify when a session ends (OpenID Connect Back-Channel Logout 1.0).

Listeners are stored separately from grants, because a grant's row is deleted with its last token, possibly
long before the session ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError

from app.database_errors import is_duplicate_key
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery, ListQuery
from app.models.base import has_key
from app.models.session import Session, SessionClient
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.store import clock, outbox
from app.operations.store.transactions import count_changed
from app.rules.identifiers import format_client_id, public_id

KIND = "backchannel_logout"
_TRANSFER = CompiledQuery(
    update(SessionClient)
    .where(
        SessionClient.organization_id == bindparam("of_organization"),
        SessionClient.session_id == bindparam("from_session"),
    )
    .values(session_id=bindparam("session_id"), expires_at=bindparam("expires_at"))
)


def add_listener(client: ClientSnapshot, session_id: UUID, user_id: UUID) -> None:
    """Register a client that gets an ID token of the session for its logout notification.

    Does nothing unless the client has a ``backchannel_logout_uri``. Runs in the transaction that issues the
    token.
    """
    if not client.document.get("backchannel_logout_uri"):
        return
    organization_id = client.organization.id
    # The lock orders this against the end of the session: the second transaction sees the rows of the first.
    active_session = db.session.scalar(
        select(Session.id).where(has_key(Session, organization_id, session_id)).with_for_update(read=True)
    )
    if active_session is None:
        _enqueue(organization_id, client.id, user_id, session_id)
        return
    limits = client.organization.settings["authentication"]["sessions"]
    row = {"organization_id": organization_id, "session_id": session_id, "client_id": client.id}
    row |= {"sid": session_id, "user_id": user_id}
    if db.session.get(SessionClient, (organization_id, session_id, client.id, session_id)) is not None:
        return
    try:
        with db.session.begin_nested():
            expires_at = clock.now() + timedelta(seconds=limits["absolute_timeout_seconds"])
            db.session.add(SessionClient(**row, expires_at=expires_at))
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise


def transfer_listeners(
    organization_id: str, from_session: UUID, to_session: UUID, expires_at: datetime
) -> None:
    """Move the listeners of a session to the one that replaced it when the same user signed in again.

    They remain until that one expires.
    """
    _TRANSFER.write_later(
        of_organization=organization_id,
        from_session=from_session,
        session_id=to_session,
        expires_at=expires_at,
    )


def notify_listeners(organization_id: str, session_ids: Sequence[UUID]) -> None:
    """Queue a logout notification for every listener of the sessions that the current transaction deleted."""
    if not session_ids:
        return
    rows = _LISTENERS.rows(session_ids, organization_id=organization_id)
    if not rows:
        return
    ended = (SessionClient.organization_id == organization_id) & SessionClient.session_id.in_(session_ids)
    for client_id, user_id, sid in rows:
        _enqueue(organization_id, client_id, user_id, sid)
    count_changed(delete(SessionClient).where(ended))


_LISTENERS = ListQuery(
    select(SessionClient.client_id, SessionClient.user_id, SessionClient.sid).where(
        SessionClient.organization_id == bindparam("organization_id")
    ),
    SessionClient.session_id,
)


def _enqueue(organization_id: str, client_id: UUID, user_id: UUID, sid: UUID) -> None:
    payload = {
        "client": format_client_id(organization_id, client_id),
        "user": public_id("usr", user_id),
        "session": public_id("ses", sid),
    }
    outbox.enqueue(organization_id, KIND, payload, receiver=payload["client"])
