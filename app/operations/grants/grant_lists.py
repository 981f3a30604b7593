"""List active grants and revoke one, for users and administrators with the permission to see them.

Tokens are not listed individually. They are valid only as long as their grant.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Select, false, select

from app.models.base import is_same
from app.models.client import Client
from app.models.grant import Grant
from app.models.user import User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.grants import grants
from app.operations.grants.grants import is_active_grant, is_consented
from app.operations.store import audit, clock
from app.operations.store.rows import Page, PageRequest, filter_conditions, get_row, make_record, read_page
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.filters import OF_CLIENT, OF_USER, Filters, read_filters
from app.rules.identifiers import HasPublicId, format_client_id, parse_public_id, public_id
from app.rules.organizations.settings import refresh_token_expiry

FILTERS: Filters = {"client_id": OF_CLIENT, "user_id": OF_USER}
PREFIX = "grt"
_COLUMNS: tuple[Any, ...] = (
    *(Grant.id, Grant.organization_id, Grant.client_id, Grant.user_id, Grant.scope, Grant.resource),
    Grant.allowed_at,
    *(Grant.created_at, Grant.expires_at, Grant.idle_expires_at, Grant.refreshed_at, Grant.generation),
    Grant.refresh_digest,
    Client.name.label("client_name"),
    User.email.label("user_email"),
)


class GrantRecord(HasPublicId, Struct, frozen=True):
    """One active grant. ``revoked_at`` is set only in the response to its revocation.

    ``expires_at`` is when it expires at the latest, even if it is not refreshed.
    """

    id_prefix = PREFIX
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


@read
def list_grants(
    actor: Actor, page_request: PageRequest = PageRequest(), *, filters: Mapping[str, str] = {}
) -> Page[GrantRecord]:
    """List active grants, newest first. With ``tokens:read:own`` only those of the actor's own clients.

    ``filters`` are of FILTERS. Raises InvalidInput, Forbidden.
    """
    statement = _visible(actor, "tokens:read").where(
        *filter_conditions(Grant, read_filters(actor, FILTERS, filters))
    )
    return read_page(statement, (Grant.id,), page_request).map(_record)


@read
def get_grant(actor: Actor, public_grant_id: str, permission: str = "tokens:read") -> GrantRecord:
    """Return one active grant that the actor may access with the permission. Raises NotFound, Forbidden."""
    statement = _visible(actor, permission).where(Grant.id == parse_public_id(PREFIX, public_grant_id))
    return _record(get_row(statement, "There is no such active grant."))


@transaction
def revoke_grant(actor: Actor, public_grant_id: str, *, client_id: str | None = None) -> GrantRecord:
    """Revoke a grant and every token issued under it, refresh token included.

    The user's consent remains, so the app can request access again. Raises NotFound if the grant is no longer
    active or, where ``client_id`` is given, belongs to another client, and Forbidden. Audit:
    ``grant.revoked``.
    """
    record = get_grant(actor, public_grant_id, "tokens:revoke")
    if client_id not in {None, record.client_id}:
        raise NotFound("There is no such active grant.")
    if not grants.revoke_grant_by_id(actor, record.id, reason="revoked"):
        raise NotFound("There is no such active grant.")
    audit.record(
        actor,
        "grant.revoked",
        "grant",
        record.public_id,
        after={"client_id": record.client_id, "user": record.user_id},
    )
    return replace(record, revoked_at=clock.now())


def restrict_to_visible(actor: Actor, statement: Select[Any], model: Any, permission: str) -> Select[Any]:
    """Join the client and user of the model's rows and restrict the query to rows the actor can access.

    Raises Forbidden.
    """
    statement = (
        statement.join(Client, is_same(Client.id, model.client_id))
        .join(User, is_same(User.id, model.user_id))
        .where(model.organization_id == actor.organization_id)
    )
    return restrict_to_own_clients(actor, statement, permission)


def restrict_to_own_clients(actor: Actor, statement: Select[Any], permission: str) -> Select[Any]:
    """Restrict a query that joins Client to the actor's clients if they have only ``:own``.

    Raises Forbidden.
    """
    actor.require_for_own(permission)
    if actor.has_permission(permission):
        return statement
    # A client owns nothing, so without a user ``:own`` matches no rows.
    return statement.where(false() if actor.user_id is None else Client.owner_id == actor.user_id)


def _visible(actor: Actor, permission: str) -> Select[Any]:
    settings = get_organization_by_id(actor.organization_id, fresh=False).settings
    columns = (*_COLUMNS, is_consented(settings).label("is_consented"))
    return restrict_to_visible(actor, select(*columns), Grant, permission).where(is_active_grant(settings))


def _record(row: Any) -> GrantRecord:
    expires_at = row.expires_at
    if row.refresh_digest is not None:
        expires_at = refresh_token_expiry(
            get_organization_by_id(row.organization_id, fresh=False).settings,
            created_at=row.created_at,
            expires_at=row.expires_at,
            refreshed_at=row.refreshed_at,
            idle_expires_at=row.idle_expires_at,
            allowed_at=row.allowed_at,
            is_consented=bool(row.is_consented),
        )
    return make_record(
        GrantRecord,
        row,
        client_id=format_client_id(row.organization_id, row.client_id),
        user_id=public_id("usr", row.user_id),
        scopes=tuple(row.scope.split()),
        resources=tuple(row.resource.split()),
        expires_at=expires_at,
        is_refreshable=row.refresh_digest is not None,
        refreshes=row.generation,
        revoked_at=None,
    )
