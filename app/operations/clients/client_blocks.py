"""The block of a client: what it held is dead from that moment, and does not come back when the block is lifted."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update

from app.models.client import Client, ClientRequest
from app.operations.grants.revocation import revoke_grants_of_client
from app.operations.store import clock
from app.operations.store.transactions import count_changed
from app.rules.actor import Actor
from app.rules.authorization.consents import DECLINED, KEPT_DECIDED
from app.rules.clients.client_metadata import ClientMetadata
from app.rules.clients.client_types import BLOCKED


def moment_of_block(before: ClientMetadata, after: ClientMetadata) -> dict[str, Any]:
    """The columns that change with a block: what was issued until then never counts again.

    Its end is such a moment, too: what another worker still gave out while it began is not alive afterwards.
    """
    if (before.approval == BLOCKED) == (after.approval == BLOCKED):
        return {}
    return {"tokens_not_before": clock.now()}


def follow_block(actor: Actor, row: Client, before: ClientMetadata, after: ClientMetadata) -> None:
    """What hung from a client that is blocked now ends with it; part of the transaction under way."""
    if after.approval != BLOCKED or before.approval == BLOCKED:
        return
    revoke_grants_of_client(actor, row.id, reason="client_blocked")
    now = clock.now()
    count_changed(
        update(ClientRequest)
        .where(
            ClientRequest.organization_id == row.organization_id,
            ClientRequest.client_id == row.id,
            ClientRequest.is_open.is_(True),
        )
        .values(
            status=DECLINED,
            is_open=None,
            decided_at=now,
            decided_by=actor.label[:200] or None,
            expires_at=now + KEPT_DECIDED,
        )
    )
