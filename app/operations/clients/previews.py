"""Previews shown before a change to a client or its secrets.

They check the same permissions. The change itself checks them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.operations.clients.client_records import (
    ClientRecord,
    get_client_row,
    require_client_within_permissions,
    to_client_record,
)
from app.operations.clients.clients import get_client
from app.operations.clients.credentials import CredentialRecord, list_credentials
from app.operations.sign_in.reauthentication import require_fresh_sign_in, require_fresh_user_sign_in
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.errors import NotFound


@dataclass(frozen=True, slots=True)
class ClientDeletionPreview:
    """The client, and its active secrets as far as the actor can see them."""

    client: ClientRecord
    secrets: tuple[CredentialRecord, ...]


@dataclass(frozen=True, slots=True)
class ClientCredentials:
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


@dataclass(frozen=True, slots=True)
class CredentialPreview:
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
    may_see = actor.has_permission("credentials:read", owner_id=row.created_by_user_id)
    listed = list_credentials(actor, client_id) if may_see else []
    return ClientDeletionPreview(to_client_record(row), tuple(entry for entry in listed if entry.is_live))


@read
def get_client_credentials(actor: Actor, client_id: str) -> ClientCredentials:
    """Return the client with the secrets that the actor can see. Raises NotFound, Forbidden."""
    client = get_client(actor, client_id)
    owner = client.created_by_user_id
    sees = actor.has_permission("credentials:read", owner_id=owner)
    secrets = list(list_credentials(actor, client_id)) if sees else None
    return ClientCredentials(client, secrets, actor.has_permission("credentials:write", owner_id=owner))


@read
def preview_credential_creation(actor: Actor, client_id: str) -> ClientCredentials:
    """Return the existing secrets before one is created.

    Raises NotFound, Forbidden, FreshSignInRequired.
    """
    credentials = get_client_credentials(actor, client_id)
    actor.require("credentials:write", owner_id=credentials.client.created_by_user_id)
    require_fresh_sign_in(actor)
    return credentials


@read
def preview_reveal(actor: Actor, client_id: str, credential_id: str) -> CredentialPreview:
    """Return the secret that would be shown. Raises NotFound, Forbidden, FreshSignInRequired."""
    credentials = get_client_credentials(actor, client_id)
    actor.require("credentials:read", owner_id=credentials.client.created_by_user_id)
    require_fresh_sign_in(actor)
    return _preview_of(credentials, credential_id)


@read
def preview_revocation(actor: Actor, client_id: str, credential_id: str) -> CredentialPreview:
    """Return the secret that would be revoked.

    Raises NotFound, Forbidden, and FreshSignInRequired for the last active secret.
    """
    credentials = get_client_credentials(actor, client_id)
    actor.require("credentials:write", owner_id=credentials.client.created_by_user_id)
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
