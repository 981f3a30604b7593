"""Dynamic registration without an HTTP request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.operations.clients import dynamic_registration
from app.operations.clients.dynamic_registration import Registration
from app.operations.store.transactions import transaction
from app.rules.actor import Actor


def register(actor: Actor, sent: Mapping[str, Any], token: str | None) -> Registration:
    """Register a client as the registration endpoint does."""
    permit = dynamic_registration.permit_registration(actor, sent, token)
    return transaction(dynamic_registration.register_dynamic_client)(actor, permit, sent)
