"""Secrets before something is done with them: who may go on, asked before a form is filled in. The doing asks again."""

from __future__ import annotations

from dataclasses import dataclass

from app.operations.clients.client_records import ClientRecord, get_row, record_of, require_not_above
from app.operations.clients.clients import ClientRecord as clients_ClientRecord
from app.operations.clients.clients import get_client
from app.operations.clients.credentials import CredentialRecord, list_credentials
from app.operations.sign_in.reauthentication import require_fresh_sign_in, require_fresh_user_sign_in
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.errors import NotFound


@dataclass(frozen=True, slots=True)
class ClientEnding:
    """The client, and its live secrets as far as the actor may see them."""

    client: ClientRecord
    secrets: tuple[CredentialRecord, ...]


@read
def preview_deletion(actor: Actor, client_id: str) -> ClientEnding:
    """What ``delete_client`` would end. Raises NotFound, Forbidden and FreshSignInRequired, as that would."""
    row = get_row(actor, client_id, "clients:write")
    require_not_above(actor, row)
    require_fresh_user_sign_in(actor)
    may_see = actor.has_permission("credentials:read", owner_id=row.created_by_user_id)
    listed = list_credentials(actor, client_id) if may_see else []
    return ClientEnding(record_of(row), tuple(entry for entry in listed if entry.is_live))


@dataclass(frozen=True, slots=True)
class Ledger:
    """A client with its secrets; ``secrets`` is None for who may not see them."""

    client: clients_ClientRecord
    secrets: list[CredentialRecord] | None
    may_change: bool

    @property
    def live(self) -> list[CredentialRecord]:
        """The secrets that work."""
        return [secret for secret in self.secrets or () if secret.is_live]

    @property
    def ended(self) -> list[CredentialRecord]:
        """The secrets that work no more."""
        return [secret for secret in self.secrets or () if not secret.is_live]


@dataclass(frozen=True, slots=True)
class SecretAtHand:
    """One secret of a client; ``is_last`` when no other one works."""

    client: clients_ClientRecord
    secret: CredentialRecord
    is_last: bool


@read
def get_ledger(actor: Actor, client_id: str) -> Ledger:
    """The client and what the actor may know of its secrets. Raises NotFound, Forbidden."""
    client = get_client(actor, client_id)
    owner = client.created_by_user_id
    sees = actor.has_permission("credentials:read", owner_id=owner)
    secrets = list(list_credentials(actor, client_id)) if sees else None
    return Ledger(client, secrets, actor.has_permission("credentials:write", owner_id=owner))


@read
def before_new_secret(actor: Actor, client_id: str) -> Ledger:
    """What a new secret would stand beside. Raises NotFound, Forbidden, FreshSignInRequired."""
    ledger = get_ledger(actor, client_id)
    actor.require("credentials:write", owner_id=ledger.client.created_by_user_id)
    require_fresh_sign_in(actor)
    return ledger


@read
def before_reveal(actor: Actor, client_id: str, credential_id: str) -> SecretAtHand:
    """The secret that would be shown. Raises NotFound, Forbidden, FreshSignInRequired."""
    ledger = get_ledger(actor, client_id)
    actor.require("credentials:read", owner_id=ledger.client.created_by_user_id)
    require_fresh_sign_in(actor)
    return _at_hand(ledger, credential_id)


@read
def before_revocation(actor: Actor, client_id: str, credential_id: str) -> SecretAtHand:
    """The secret that would be revoked. Raises NotFound, Forbidden; FreshSignInRequired for the last that works."""
    ledger = get_ledger(actor, client_id)
    actor.require("credentials:write", owner_id=ledger.client.created_by_user_id)
    found = _at_hand(ledger, credential_id)
    if found.is_last:
        require_fresh_sign_in(actor)
    return found


def _at_hand(ledger: Ledger, credential_id: str) -> SecretAtHand:
    for secret in ledger.secrets or ():
        if secret.public_id == credential_id:
            is_last = [live.public_id for live in ledger.live] == [credential_id]
            return SecretAtHand(ledger.client, secret, is_last)
    raise NotFound("There is no such secret.")
