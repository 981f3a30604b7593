"""Reminders: administrators hear once that a secret ends soon while it is still in use."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from sqlalchemy import select, update

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


def remind(batch: int = BATCH) -> Iterator[int]:
    """How many reminders each page of ending secrets gave rise to; none is given twice for the same end."""
    for organization_id, credential_id in _due(batch):
        yield int(_remind(organization_id, credential_id))


@read
def _due(batch: int) -> list[tuple[str, UUID]]:
    now = clock.now()
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
        )
        .order_by(Credential.expires_at)
        .limit(batch)
        .execution_options(**ACROSS)
    ).all()
    return [
        (row.organization_id, row.id)
        for row in rows
        if reminder_due(
            now,
            began_at=row.retiring_since or row.created_at,
            ends_at=row.expires_at,
            last_used_at=row.last_used_at,
        )
    ]


@transaction
def _remind(organization_id: str, credential_id: UUID) -> bool:
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
        "ends": f"{row.expires_at:%-d %B %Y, %H:%M} UTC",
        "used": f"{row.last_used_at:%-d %B %Y, %H:%M} UTC",
        "link": f"{organization.base_url}/portal/{organization.slug}/clients/{client_id}/credentials",
    }
    system = Actor.system(organization_id)
    notify_administrators(system, "secret_ends", public_id("sec", credential_id), told)
    return True
