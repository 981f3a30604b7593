"""Account activity: what happened to one's own account, by oneself or by others, for ninety days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.audit import AuditEvent
from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.evidence.names import Named, names_of
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.evidence.account_events import ACCOUNT_EVENTS
from app.rules.identifiers import encode_uuid, first_id_at, parse_client_id, public_id

SHOWN = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Activity:
    """One thing that happened; ``client_id`` and ``client`` say which app it was about, if any."""

    id: UUID
    at: datetime
    action: str
    is_own: bool
    by: str
    address: str | None
    client_id: str | None
    client: Named | None
    after: Mapping[str, Any] | None


@read
def list_activity(
    actor: Actor, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[Activity]:
    """A page of what concerned the actor's own account, the newest first. Raises Forbidden outside of it."""
    me = public_id("usr", actor.own_account())
    limit = min(limit, MOST)
    # Two ranges, each of its own index; a union of them would be sorted whole.
    found = {
        row.id: row
        for column in (AuditEvent.actor_id, AuditEvent.target_id)
        for row in _events(actor, column == me, limit, after)
    }
    rows = sorted(found.values(), key=lambda row: row.id.bytes, reverse=True)
    clients = {client_id for row in rows[:limit] if (client_id := _client_id(row))}
    names = names_of(actor, clients) if clients else {}
    items = tuple(_activity(row, me, names) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


def _events(actor: Actor, own: Any, limit: int, after: CursorKey | None) -> list[Any]:
    settings = organization_by_id(actor.organization_id, fresh=False).settings
    kept = timedelta(days=settings["audit"]["retention_days"])
    statement = select(AuditEvent.__table__).where(
        AuditEvent.organization_id == actor.organization_id,
        own,
        AuditEvent.action.in_(ACCOUNT_EVENTS),
        AuditEvent.id >= first_id_at(clock.now() - min(SHOWN, kept)),
    )
    return list(db.session.execute(in_order(statement, (AuditEvent.id,), after).limit(limit + 1)).all())


def _client_id(row: Any) -> str | None:
    return row.target_id if row.target_type == "client" and parse_client_id(row.target_id or "") else None


def _activity(row: Any, me: str, names: Mapping[str, Named]) -> Activity:
    is_own = row.actor_id == me
    client_id = _client_id(row)
    return Activity(
        id=row.id,
        at=row.at,
        action=row.action,
        is_own=is_own,
        by=row.actor_label,
        # Where an administrator sat is no business of the account's owner.
        address=row.address if is_own or row.actor_kind == "anonymous" else None,
        client_id=client_id,
        client=names.get(client_id or ""),
        after=row.after,
    )
