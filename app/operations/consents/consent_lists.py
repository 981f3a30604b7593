"""Consents as those see them who look after clients: who allowed what to whom until when, and the end of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, exists, or_, select

from app.extensions import db
from app.models.client import DELETED, Client
from app.models.grant import Consent
from app.models.user import User
from app.operations.consents.connected_apps import end_consent, stands
from app.operations.directory import organization_by_id
from app.operations.grants.allowances import columns_of, conditions, visible
from app.operations.grants.standing_grants import CONSENT_OF_GRANT, is_living
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.transaction import read, transaction
from app.rules.actor import Actor
from app.rules.consents.ends import end_of_consent, longest_life
from app.rules.errors import NotFound
from app.rules.identifiers import client_id_of, encode_uuid, parse_public_id, public_id

PREFIX = "con"


@dataclass(frozen=True, slots=True)
class GivenConsent:
    """One consent that stands, or that ended while the client still has a living grant."""

    id: UUID
    client_id: str
    client_name: str
    user_id: str
    user_email: str
    scopes: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None

    @property
    def public_id(self) -> str:
        """``con_…``."""
        return public_id(PREFIX, self.id)


@read
def list_given_consents(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    filters: Mapping[str, str] | None = None,
) -> Page[GivenConsent]:
    """A page of the consents, the newest first; with ``consents:read:own`` those for one's own clients.

    ``filters`` are ``client_id`` and ``user_id``, exact. Raises InvalidInput, Forbidden.
    """
    statement = _visible(actor, "consents:read")
    for condition in conditions(actor, columns_of(Consent), filters or {}):
        statement = statement.where(condition)
    limit = min(limit, MOST)
    rows = db.session.execute(in_order(statement, (Consent.id,), after).limit(limit + 1)).all()
    items = tuple(_record(row) for row in rows[:limit])
    return Page(items, (encode_uuid(items[-1].id),) if len(rows) > limit else None)


@read
def get_given_consent(actor: Actor, consent_id: str) -> GivenConsent:
    """One consent. Raises NotFound, Forbidden."""
    return _record(_get(actor, consent_id, "consents:read"))


@transaction
def withdraw_given_consent(actor: Actor, consent_id: str) -> int:
    """The client may do nothing more for that user until allowed anew (CO-3); returns how many grants ended.

    Raises NotFound, Forbidden. Audit: ``consent.withdrawn``.
    """
    return end_consent(actor, _get(actor, consent_id, "consents:write")[0])


def _get(actor: Actor, consent_id: str, permission: str) -> Any:
    statement = _visible(actor, permission)
    row_id = parse_public_id(PREFIX, consent_id)
    row = None if row_id is None else db.session.execute(statement.where(Consent.id == row_id)).first()
    if row is None:
        raise NotFound("There is no such consent.")
    return row


def _visible(actor: Actor, permission: str) -> Select[Any]:
    columns: tuple[Any, ...] = (Consent, Client.name, User.email)
    settings = _settings(actor.organization_id)
    # One that ended is there, and can be withdrawn, as long as the client may do something by a grant.
    living = exists().where(CONSENT_OF_GRANT, is_living(settings)).correlate(Consent)
    return (
        visible(actor, select(*columns), Consent, permission)
        .where(Client.status != DELETED, or_(stands(settings), living))
        .execution_options(populate_existing=True)
    )


def _settings(organization_id: str) -> Mapping[str, Any]:
    return organization_by_id(organization_id, fresh=False).settings


def _record(row: Any) -> GivenConsent:
    consent, client_name, user_email = row
    return GivenConsent(
        id=consent.id,
        client_id=client_id_of(consent.organization_id, consent.client_id),
        client_name=client_name,
        user_id=public_id("usr", consent.user_id),
        user_email=user_email,
        scopes=tuple(consent.scope.split()),
        created_at=consent.created_at,
        updated_at=consent.updated_at,
        expires_at=end_of_consent(
            consent.updated_at, consent.expires_at, longest_life(_settings(consent.organization_id))
        ),
        last_used_at=consent.last_used_at,
    )
