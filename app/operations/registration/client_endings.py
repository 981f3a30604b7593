"""The end of a client: everything that hangs from it is dead in the transaction that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select, update

from app.extensions import db
from app.models.client import Client
from app.models.grant import Consent, Grant
from app.models.registration import ClientRegistration
from app.operations import clock
from app.operations.registration import logos
from app.operations.registration.credential_rows import living_tokens, revoke_all_secrets
from app.operations.tokens.revocation import revoke_grants_of_client
from app.operations.transaction import count_changed
from app.rules.actor import Actor

CEILING = 1000


@dataclass(frozen=True, slots=True)
class DeletedClient:
    """How much ended with a client; each figure stops at 1,000, which then means "or more"."""

    access_tokens: int
    grants: int
    consents: int
    credentials: int


def end_everything_of(actor: Actor, row: Client) -> DeletedClient:
    """Part of the transaction under way. Access tokens and consents end with the client's status, which every
    look-up asks; the janitor removes their rows in batches."""
    here, now = row.organization_id, clock.now()
    tokens = _count(living_tokens(here, row.id, now))
    consents = _count(select(Consent.id).where(Consent.organization_id == here, Consent.client_id == row.id))
    grants = _count(
        select(Grant.id).where(
            Grant.organization_id == here,
            Grant.client_id == row.id,
            Grant.revoked_at.is_(None),
            Grant.expires_at > now,
        )
    )
    credentials = revoke_all_secrets(actor, row)
    _release(row)
    logos.forget(row)
    revoke_grants_of_client(actor, row.id, reason="client_deleted")
    return DeletedClient(tokens, grants, consents, credentials)


def _release(row: Client) -> None:
    """Its registration access token is dead, and the address of its metadata may be registered anew."""
    count_changed(
        update(ClientRegistration)
        .where(ClientRegistration.organization_id == row.organization_id, ClientRegistration.id == row.id)
        .values(access_digest=None, address_digest=None, idle_check_at=None)
    )


def _count(rows: Select[Any]) -> int:
    bounded = rows.limit(CEILING).subquery()
    return int(db.session.scalar(select(func.count()).select_from(bounded)) or 0)
