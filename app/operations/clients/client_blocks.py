"""Blocking of clients: everything issued before is revoked, and stays revoked when the block is lifted."""

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


def block_cutoff(before: ClientMetadata, after: ClientMetadata) -> dict[str, Any]:
    """Return the columns that change when a client is blocked or unblocked: a cutoff for its tokens.

    Unblocking sets a cutoff too, because another worker may have issued tokens while the block began.
    """
    if (before.approval == BLOCKED) == (after.approval == BLOCKED):
        return {}
    return {"tokens_not_before": clock.now()}


def on_client_blocked(actor: Actor, row: Client, before: ClientMetadata, after: ClientMetadata) -> None:
    """Revoke the grants and close the approval requests of a client that is now blocked.

    Runs in the current transaction.
    """
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
