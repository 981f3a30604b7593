"""When clients and secrets were last used, and previews shown before a change to a client or its secrets.

Previews check the same permissions as the change, which checks them again.
"""

from __future__ import annotations

import time
from datetime import timedelta
from functools import cache
from uuid import UUID

from msgspec import Struct
from sqlalchemy import func, update
from sqlalchemy.exc import IntegrityError

from app.fast_path.cache import BoundedCache
from app.models.base import has_key
from app.models.client import Client, Credential, CredentialUse
from app.operations.clients.client_permissions import require_client_within_permissions
from app.operations.clients.client_records import ClientRecord, get_client_row, to_client_record
from app.operations.clients.clients import get_client
from app.operations.clients.credential_rows import CredentialRecord
from app.operations.clients.credentials import list_credentials_of
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot
from app.operations.sign_in.reauthentication import require_fresh_sign_in, require_fresh_user_sign_in
from app.operations.store import clock
from app.operations.store.transactions import count_changed, insert_or_update, read, transaction
from app.operations.store.usage_counters import ACTIVE_USER, REQUESTS, TOKENS, Metrics, counters
from app.rules.actor import Actor
from app.rules.audit.usage import REJECTED, SUCCEEDED, grant_name
from app.rules.errors import NotFound, Unavailable
from app.rules.identifiers import new_id

SAMPLE_SECONDS = 60.0
RETENTION = timedelta(days=30)
_MAX_REMEMBERED = 50_000

_recorded: BoundedCache[float] = BoundedCache(_MAX_REMEMBERED)


def record_client_use(
    authenticated: AuthenticatedClient,
    ip_address: str | None,
    endpoint: str,
    has_failed: bool = False,
    grant_type: str | None = None,
    used_pkce: bool | None = None,
) -> None:
    """Count a request of the client after its commit, and set when the client and its secret were last used.

    Requests that failed after the client had authenticated count too, because the secret is in use. ``grant_type`` is
    that of issued tokens. ``used_pkce`` says whether the client redeemed a code with PKCE or without, None if it
    redeemed no code. The time is set at most once a minute per worker process. A missed sample is ignored: an
    unavailable database must not fail a request that issued a token.
    """
    client, credential_id = authenticated.client, authenticated.credential_id
    # A public client proves nothing by its name, only by what it can do.
    if (has_failed or endpoint == "revoke") and client.is_public:
        return
    organization_id = client.organization.id
    counters.add(organization_id, _metrics_of(endpoint, has_failed, grant_type), client.id, credential_id)
    secret = credential_id.int if credential_id is not None else 0
    key = (client.client_id, secret, ip_address or "", used_pkce)
    tick = time.monotonic()
    last = _recorded.get(organization_id, *key)
    if last is not None and tick - last < SAMPLE_SECONDS:
        return
    _recorded.put(organization_id, *key, value=tick)
    try:
        _write(Actor.system(organization_id), client, credential_id, ip_address, used_pkce)
    except (Unavailable, IntegrityError):
        return


def count_active_user(client: ClientSnapshot, user_id: UUID) -> None:
    """Count the user who signed in to the client."""
    counters.add(client.organization.id, ACTIVE_USER, None, user_id)


@cache
def _metrics_of(endpoint: str, has_failed: bool, grant_type: str | None) -> Metrics:
    requests = (REQUESTS, endpoint + (REJECTED if has_failed else SUCCEEDED))
    return (requests,) if grant_type is None else (requests, (TOKENS, grant_name(grant_type)))


@transaction
def _write(
    actor: Actor,
    client: ClientSnapshot,
    credential_id: UUID | None,
    ip_address: str | None,
    used_pkce: bool | None,
) -> None:
    now = clock.now()
    by_pkce = {} if used_pkce is None else {"pkce_used_at" if used_pkce else "pkce_omitted_at": now}
    count_changed(
        update(Client)
        .where(has_key(Client, actor.organization_id, client.id))
        .values(last_used_at=now, **by_pkce)
    )
    if credential_id is None:
        return
    count_changed(
        update(Credential)
        .where(has_key(Credential, actor.organization_id, credential_id))
        .values(
            first_used_at=func.coalesce(Credential.first_used_at, now),
            last_used_at=now,
            last_used_address=ip_address,
        )
    )
    if ip_address is None:
        return
    key = {"organization_id": actor.organization_id, "credential_id": credential_id, "address": ip_address}
    insert_or_update(CredentialUse, key, {"last_used_at": now, "expires_at": now + RETENTION}, id=new_id())


class ClientDeletionPreview(Struct, frozen=True):
    """The client, and its active secrets as far as the actor can see them."""

    client: ClientRecord
    secrets: tuple[CredentialRecord, ...]


class ClientCredentials(Struct, frozen=True):
    """A client with its secrets. ``secrets`` is None if the actor cannot see them."""

    client: ClientRecord
    secrets: list[CredentialRecord] | None
    may_change: bool

    @property
    def live(self) -> list[CredentialRecord]:
        """The active secrets."""
        return [secret for secret in self.secrets or () if secret.is_live]

    @property
    def ended(self) -> list[CredentialRecord]:
        """The revoked and expired secrets."""
        return [secret for secret in self.secrets or () if not secret.is_live]


class CredentialPreview(Struct, frozen=True):
    """One secret of a client. ``is_last`` is set if no other secret is active."""

    client: ClientRecord
    secret: CredentialRecord
    is_last: bool


@read
def preview_deletion(actor: Actor, client_id: str) -> ClientDeletionPreview:
    """Return what ``delete_client`` would delete.

    Raises NotFound, Forbidden and FreshSignInRequired, as it does.
    """
    row = get_client_row(actor, client_id, "clients:write")
    require_client_within_permissions(actor, row)
    require_fresh_user_sign_in(actor)
    may_see = actor.has_permission("credentials:read", owner_id=row.owner_id)
    listed = list_credentials_of(actor, row) if may_see else []
    return ClientDeletionPreview(to_client_record(row), tuple(entry for entry in listed if entry.is_live))


@read
def get_client_credentials(actor: Actor, client_id: str) -> ClientCredentials:
    """Return the client with the secrets that the actor can see. Raises NotFound, Forbidden."""
    client = get_client(actor, client_id)
    owner = client.owner_id
    sees = actor.has_permission("credentials:read", owner_id=owner)
    secrets = list_credentials_of(actor, client) if sees else None
    return ClientCredentials(client, secrets, actor.has_permission("credentials:write", owner_id=owner))


@read
def preview_credential_creation(actor: Actor, client_id: str) -> ClientCredentials:
    """Return the existing secrets before one is created.

    Raises NotFound, Forbidden, FreshSignInRequired.
    """
    credentials = get_client_credentials(actor, client_id)
    actor.require("credentials:write", owner_id=credentials.client.owner_id)
    require_fresh_sign_in(actor)
    return credentials


@read
def preview_reveal(actor: Actor, client_id: str, credential_id: str) -> CredentialPreview:
    """Return the secret that would be shown. Raises NotFound, Forbidden, FreshSignInRequired."""
    credentials = get_client_credentials(actor, client_id)
    actor.require("credentials:read", owner_id=credentials.client.owner_id)
    require_fresh_sign_in(actor)
    return _preview_of(credentials, credential_id)


@read
def preview_revocation(actor: Actor, client_id: str, credential_id: str) -> CredentialPreview:
    """Return the secret that would be revoked.

    Raises NotFound, Forbidden, and FreshSignInRequired for the last active secret.
    """
    credentials = get_client_credentials(actor, client_id)
    actor.require("credentials:write", owner_id=credentials.client.owner_id)
    found = _preview_of(credentials, credential_id)
    if found.is_last:
        require_fresh_sign_in(actor)
    return found


def _preview_of(credentials: ClientCredentials, credential_id: str) -> CredentialPreview:
    for secret in credentials.secrets or ():
        if secret.public_id == credential_id:
            is_last = [live.public_id for live in credentials.live] == [credential_id]
            return CredentialPreview(credentials.client, secret, is_last)
    raise NotFound("There is no such secret.")
