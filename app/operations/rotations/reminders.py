"""Reminders: administrators hear once that a secret ends soon while it is still in use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from sqlalchemy import literal, select, true, tuple_, update

from app.extensions import db
from app.models.client import ACTIVE, Client
from app.models.credential import Credential
from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.mail.administrator_notices import notify_administrators
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import client_id_of, public_id
from app.rules.registration.rotation_verdict import EARLIEST_REMINDER, reminder_due
from app.tenant_fence import ACROSS

BATCH = 200
_Position = tuple[datetime, str, UUID]
_KINDS = (Credential.expires_at.type, Credential.organization_id.type, Credential.id.type)


def remind(actor: Actor, batch: int = BATCH) -> Iterator[int]:
    """Whether each secret that is due gave rise to a reminder, 1 or 0; none is given twice for the same end.

    ``actor`` is the janitor.
    """
    after: _Position | None = None
    while True:
        due, after = _page(batch, after)
        for organization_id, credential_id in due:
            yield int(_remind(Actor.system(organization_id, actor.label), credential_id))
        if after is None:
            return


@read
def _page(batch: int, after: _Position | None) -> tuple[list[tuple[str, UUID]], _Position | None]:
    """(the secrets of a page that are due, where the next page begins): others' that are not yet due hide none."""
    now = clock.now()
    position = tuple_(Credential.expires_at, Credential.organization_id, Credential.id)
    begin = true() if after is None else position > tuple_(*map(literal, after, _KINDS))
    rows = db.session.execute(
        select(
            Credential.organization_id,
            Credential.id,
            Credential.created_at,
            Credential.retiring_since,
            Credential.expires_at,
            Credential.last_used_at,
        )
        .where(
            Credential.expires_at > now,
            Credential.expires_at < now + EARLIEST_REMINDER,
            Credential.revoked_at.is_(None),
            Credential.notified_at.is_(None),
            Credential.last_used_at > now - EARLIEST_REMINDER,
            begin,
        )
        .order_by(Credential.expires_at, Credential.organization_id, Credential.id)
        .limit(batch)
        .execution_options(**ACROSS)
    ).all()
    due = [
        (row.organization_id, row.id)
        for row in rows
        if reminder_due(
            now,
            began_at=row.retiring_since or row.created_at,
            ends_at=row.expires_at,
            last_used_at=row.last_used_at,
        )
    ]
    last = rows[-1] if len(rows) == batch else None
    return due, None if last is None else (last.expires_at, last.organization_id, last.id)


@transaction
def _remind(actor: Actor, credential_id: UUID) -> bool:
    organization_id = actor.organization_id
    now = clock.now()
    claimed = count_changed(
        update(Credential)
        .where(
            Credential.organization_id == organization_id,
            Credential.id == credential_id,
            Credential.notified_at.is_(None),
            Credential.revoked_at.is_(None),
            Credential.expires_at > now,
        )
        .values(notified_at=now)
    )
    if claimed != 1:
        return False
    row = db.session.execute(
        select(
            Credential.name,
            Credential.expires_at,
            Credential.last_used_at,
            Client.name.label("client"),
            Client.id,
        )
        .join(
            Client,
            (Client.organization_id == Credential.organization_id) & (Client.id == Credential.client_id),
        )
        .where(
            Credential.organization_id == organization_id,
            Credential.id == credential_id,
            Client.status == ACTIVE,
        )
    ).first()
    try:
        organization = organization_by_id(organization_id)
    except NotFound:
        return False
    if row is None or not organization.is_active:
        return False
    client_id = client_id_of(organization_id, row.id)
    told = {
        "client": row.client,
        "secret": row.name,
        "ends": row.expires_at.isoformat(),
        "used": row.last_used_at.isoformat(),
        "link": f"{organization.base_url}/portal/{organization.slug}/clients/{client_id}/credentials",
    }
    notify_administrators(actor, "secret_ends", public_id("sec", credential_id), told)
    return True
