"""When clients and secrets were last used, and from which IP addresses.

Uses are sampled, so that a busy client does not update its row at every request.
"""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import UUID

from sqlalchemy import func, insert, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.models.client import Client
from app.models.credential import Credential, CredentialUse
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot
from app.operations.store import clock
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import new_id

SAMPLE_SECONDS = 60.0
RETENTION = timedelta(days=30)
_MAX_REMEMBERED = 50_000

_recorded: BoundedCache[float] = BoundedCache(_MAX_REMEMBERED)


def record_client_use(authenticated: AuthenticatedClient, ip_address: str | None) -> None:
    """Record that the client and its secret were used, at most once a minute per worker process.

    A missed sample is ignored: an unavailable database must not fail a request that issued a token.
    """
    client, credential_id = authenticated.client, authenticated.credential_id
    key = (client.client_id, credential_id.int if credential_id is not None else 0, ip_address or "")
    tick = time.monotonic()
    last = _recorded.get(client.organization.id, *key)
    if last is not None and tick - last < SAMPLE_SECONDS:
        return
    _recorded.put(client.organization.id, *key, value=tick)
    try:
        _write(Actor.system(client.organization.id), client, credential_id, ip_address)
    except (Unavailable, IntegrityError):
        return


def clear_recorded_uses() -> None:
    """Forget what this process recorded, so that the next use is written."""
    _recorded.clear()


@transaction
def _write(actor: Actor, client: ClientSnapshot, credential_id: UUID | None, ip_address: str | None) -> None:
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
            last_used_address=ip_address,
        )
    )
    if ip_address is None:
        return
    changed = count_changed(
        update(CredentialUse)
        .where(
            CredentialUse.organization_id == actor.organization_id,
            CredentialUse.credential_id == credential_id,
            CredentialUse.address == ip_address,
        )
        .values(last_used_at=now, expires_at=now + RETENTION)
    )
    if changed == 0:
        db.session.execute(
            insert(CredentialUse).values(
                organization_id=actor.organization_id,
                id=new_id(),
                credential_id=credential_id,
                address=ip_address,
                last_used_at=now,
                expires_at=now + RETENTION,
            )
        )
