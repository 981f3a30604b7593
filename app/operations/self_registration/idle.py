"""Clients that registered themselves and that nobody uses end by themselves; those that people made never do (DC-1).

Each has a time at which to look, so that no organization is asked for nothing: a client that was used since, or that
a longer setting keeps, is looked at again a day later.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.client import ACTIVE, Client
from app.models.registration import ClientRegistration
from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.registration.client_origin import FIRST_IDLE_CHECK
from app.operations.registration.clients import delete_client
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import client_id_of
from app.tenant_fence import ACROSS


@read
def clients_to_look_at(limit: int) -> list[tuple[str, UUID]]:
    """(organization, client row) of those whose time has come, the longest due first."""
    due = (
        select(ClientRegistration.organization_id, ClientRegistration.id)
        .where(ClientRegistration.idle_check_at < clock.now())
        .order_by(ClientRegistration.idle_check_at)
        .limit(limit)
        .execution_options(**ACROSS)
    )
    return [(organization_id, row_id) for organization_id, row_id in db.session.execute(due)]


@transaction
def end_if_idle(actor: Actor, row_id: UUID) -> bool:
    """Whether the client was idle for its organization's ``idle_ttl_seconds`` and is gone now.

    One that was disabled stays: whoever disabled it does not want it to come back. Audit: ``client.deleted``, by
    ``actor``, the service itself in that organization.
    """
    here = actor.organization_id
    row = db.session.get(Client, (here, row_id), populate_existing=True)
    now = clock.now()
    if row is not None and row.status == ACTIVE and _ends_at(row) <= now:
        delete_client(actor, client_id_of(here, row_id))
        return True
    count_changed(
        update(ClientRegistration)
        .where(ClientRegistration.organization_id == here, ClientRegistration.id == row_id)
        .values(idle_check_at=now + FIRST_IDLE_CHECK)
    )
    return False


def _ends_at(row: Client) -> datetime:
    try:
        settings = organization_by_id(row.organization_id).settings
    except NotFound:
        # A deleted organization ends as a whole, or comes back as it was.
        return datetime.max.replace(tzinfo=row.created_at.tzinfo)
    seconds: int = settings["oauth"]["dynamic_registration"]["idle_ttl_seconds"]
    return (row.last_used_at or row.created_at) + timedelta(seconds=seconds)
