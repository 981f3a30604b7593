"""When and from where secrets are used: sampled, so that a busy client is no hot row (scale.md rule 9)."""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import UUID

from sqlalchemy import func, insert, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.client import Client
from app.models.credential import Credential, CredentialUse
from app.operations.bounded import Kept
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot
from app.operations.store import clock
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import new_id

EVERY_SECONDS = 60.0
KEPT = timedelta(days=30)
_MOST_REMEMBERED = 50_000

_noted: Kept[float] = Kept(_MOST_REMEMBERED)


def note_use(authenticated: AuthenticatedClient, address: str | None) -> None:
    """The client and its secret were used from the address; written at most once a minute by each worker.

    A missed sample is nothing: the database being away must not turn a token that was issued into an error.
    """
    client, credential_id = authenticated.client, authenticated.credential_id
    what = (client.client_id, credential_id.int if credential_id is not None else 0, address or "")
    tick = time.monotonic()
    last = _noted.get(client.organization.id, *what)
    if last is not None and tick - last < EVERY_SECONDS:
        return
    _noted.put(client.organization.id, *what, value=tick)
    try:
        _write(Actor.system(client.organization.id), client, credential_id, address)
    except (Unavailable, IntegrityError):
        return


def forget_noted() -> None:
    """The next use is written whatever was noted before."""
    _noted.clear()


@transaction
def _write(actor: Actor, client: ClientSnapshot, credential_id: UUID | None, address: str | None) -> None:
    now = clock.now()
    count_changed(
        update(Client)
        .where(Client.organization_id == actor.organization_id, Client.id == client.id)
        .values(last_used_at=now)
    )
    if credential_id is None:
        return
    count_changed(
        update(Credential)
        .where(Credential.organization_id == actor.organization_id, Credential.id == credential_id)
        .values(
            first_used_at=func.coalesce(Credential.first_used_at, now),
            last_used_at=now,
            last_used_address=address,
        )
    )
    if address is None:
        return
    changed = count_changed(
        update(CredentialUse)
        .where(
            CredentialUse.organization_id == actor.organization_id,
            CredentialUse.credential_id == credential_id,
            CredentialUse.address == address,
        )
        .values(last_used_at=now, expires_at=now + KEPT)
    )
    if changed == 0:
        db.session.execute(
            insert(CredentialUse).values(
                organization_id=actor.organization_id,
                id=new_id(),
                credential_id=credential_id,
                address=address,
                last_used_at=now,
                expires_at=now + KEPT,
            )
        )
