"""Living grants as those who may see them do: who allowed which client what, and the end of one.

Tokens themselves are nobody's to see; they live and end with their grant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, false, select

from app.extensions import db
from app.models.client import Client
from app.models.grant import Grant
from app.models.user import User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.grants import grants
from app.operations.grants.grants import is_active_grant, is_consented
from app.operations.store import audit, clock
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, paginate
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.errors import InvalidInput, NotFound
from app.rules.fields import Findings, find_unknown
from app.rules.identifiers import (
    encode_uuid,
    format_client_id,
    parse_client_id,
    parse_public_id,
    public_id,
)
from app.rules.organizations.settings_effects import end_of_family

FILTERS = ("client_id", "user_id")
# Beside client_id, which names its organization: the prefix of each filter's ids, and what they are ids of.
_IDS = {"user_id": ("usr", "user"), "credential_id": ("sec", "secret")}


def visible(actor: Actor, statement: Select[Any], model: Any, permission: str) -> Select[Any]:
    """The statement with client and user of the model's rows, narrowed to what the actor may see or end.

    Raises Forbidden.
    """
    statement = (
        statement.join(
            Client, (Client.organization_id == model.organization_id) & (Client.id == model.client_id)
        )
        .join(User, (User.organization_id == model.organization_id) & (User.id == model.user_id))
        .where(model.organization_id == actor.organization_id)
    )
    return of_own_clients(actor, statement, permission)


def of_own_clients(actor: Actor, statement: Select[Any], permission: str) -> Select[Any]:
    """The statement, which joins Client, as it is, or with ``:own`` of the permission narrowed to the person's own.

    Raises Forbidden.
    """
    actor.require_for_own(permission)
    if actor.has_permission(permission):
        return statement
    # A client registers nothing of its own: without a person behind it, ``:own`` shows nothing.
    return statement.where(false() if actor.user_id is None else Client.created_by_user_id == actor.user_id)


def conditions(
    actor: Actor, columns: Mapping[str, Any], filters: Mapping[str, str]
) -> Iterator[ColumnElement[bool]]:
    """What the filters, exact public ids, say of the columns of their names. Raises InvalidInput naming a wrong one."""
    findings = Findings()
    find_unknown(findings, filters, tuple(columns), noun="filter")
    findings.raise_if_any()
    for name, value in filters.items():
        if name == "client_id":
            client = parse_client_id(value)
            if client is None:
                raise InvalidInput("This is no client_id of ours.", field=name)
            yield columns[name] == client[1] if client[0] == actor.organization_id else false()
            continue
        prefix, noun = _IDS[name]
        row_id = parse_public_id(prefix, value)
        if row_id is None:
            raise InvalidInput(f"This is no id of a {noun}.", field=name)
        yield columns[name] == row_id


def columns_of(model: Any) -> dict[str, Any]:
    """The columns that FILTERS narrow."""
    return {name: getattr(model, name) for name in FILTERS}


PREFIX = "grt"
_COLUMNS: tuple[Any, ...] = (
    *(Grant.id, Grant.organization_id, Grant.client_id, Grant.user_id, Grant.scope, Grant.resource),
    Grant.allowed_at,
    *(Grant.created_at, Grant.expires_at, Grant.idle_expires_at, Grant.refreshed_at, Grant.generation),
    Grant.refresh_digest,
    Client.name.label("client_name"),
    User.email.label("user_email"),
)


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """One living grant; ``revoked_at`` is set in the answer of its end alone.

    ``expires_at`` is when it ends at the latest: by its own life or because nobody refreshes it.
    """

    id: UUID
    client_id: str
    client_name: str
    user_id: str
    user_email: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    is_refreshable: bool
    refreshes: int
    revoked_at: datetime | None = None

    @property
    def public_id(self) -> str:
        """``grt_…``."""
        return public_id(PREFIX, self.id)


@read
def list_grants(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    filters: Mapping[str, str] | None = None,
) -> Page[GrantRecord]:
    """A page of the living grants, the newest first; with ``tokens:read:own`` those of one's own clients.

    ``filters`` are ``client_id`` and ``user_id``, exact. Raises InvalidInput, Forbidden.
    """
    statement = _visible(actor, "tokens:read")
    for condition in conditions(actor, columns_of(Grant), filters or {}):
        statement = statement.where(condition)
    limit = min(limit, MAX_LIMIT)
    rows = db.session.execute(paginate(statement, (Grant.id,), after).limit(limit + 1)).all()
    items = tuple(_record(row) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


@read
def get_grant(actor: Actor, public: str) -> GrantRecord:
    """One living grant. Raises NotFound, Forbidden."""
    return _get(actor, public, "tokens:read")


@transaction
def revoke_grant(actor: Actor, public: str, *, client_id: str | None = None) -> GrantRecord:
    """The grant is over, and no token under it is accepted any more, refresh token included.

    The user's consent stays: the app may ask again. Raises NotFound for one that is over already and, where
    ``client_id`` is given, for another client's; Forbidden. Audit: ``grant.revoked``.
    """
    record = _get(actor, public, "tokens:revoke")
    if client_id not in {None, record.client_id}:
        raise _not_found()
    if not grants.revoke(actor, record.id, reason="revoked"):
        raise _not_found()
    audit.record(
        actor,
        "grant.revoked",
        target_type="grant",
        target_id=record.public_id,
        after={"client_id": record.client_id, "user": record.user_id},
    )
    return replace(record, revoked_at=clock.now())


def _get(actor: Actor, public: str, permission: str) -> GrantRecord:
    row_id = parse_public_id(PREFIX, public)
    statement = _visible(actor, permission)
    row = None if row_id is None else db.session.execute(statement.where(Grant.id == row_id)).first()
    if row is None:
        raise _not_found()
    return _record(row)


def _not_found() -> NotFound:
    return NotFound("There is no such living grant.")


def _visible(actor: Actor, permission: str) -> Select[Any]:
    settings = get_organization_by_id(actor.organization_id, fresh=False).settings
    columns = (*_COLUMNS, is_consented(settings).label("is_consented"))
    return visible(actor, select(*columns), Grant, permission).where(is_active_grant(settings))


def _record(row: Any) -> GrantRecord:
    ends_at = row.expires_at
    if row.refresh_digest is not None:
        ends_at = end_of_family(
            get_organization_by_id(row.organization_id, fresh=False).settings,
            created_at=row.created_at,
            expires_at=row.expires_at,
            refreshed_at=row.refreshed_at,
            idle_expires_at=row.idle_expires_at,
            allowed_at=row.allowed_at,
            is_consented=bool(row.is_consented),
        )
    return GrantRecord(
        id=row.id,
        client_id=format_client_id(row.organization_id, row.client_id),
        client_name=row.client_name,
        user_id=public_id("usr", row.user_id),
        user_email=row.user_email,
        scopes=tuple(row.scope.split()),
        resources=tuple(row.resource.split()),
        created_at=row.created_at,
        expires_at=ends_at,
        is_refreshable=row.refresh_digest is not None,
        refreshes=row.generation,
    )
