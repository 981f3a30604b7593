"""What will stop working, told before a client is deleted and under the same conditions."""

from __future__ import annotations

from dataclasses import dataclass

from app.operations.people.freshness import require_fresh_person
from app.operations.registration.client_records import ClientRecord, get_row, record_of
from app.operations.registration.client_rights import require_not_above
from app.operations.registration.credentials import CredentialRecord, list_credentials
from app.operations.transaction import read
from app.rules.actor import Actor


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
    require_fresh_person(actor)
    may_see = actor.may("credentials:read", owner_id=row.created_by_user_id)
    listed = list_credentials(actor, client_id) if may_see else []
    return ClientEnding(record_of(row), tuple(entry for entry in listed if entry.is_live))
