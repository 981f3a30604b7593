"""The access of clients to APIs, and requests for it, as lists and pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, bindparam, false, select

from app.models.base import is_same
from app.models.client import DELETED, Client, ClientAccess, Resource
from app.operations.clients.client_access import PREFIX
from app.operations.clients.client_records import get_client_row
from app.operations.store.rows import (
    Page,
    PageRequest,
    count_query,
    filter_conditions,
    get_row,
    make_record,
    read_page,
)
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.clients.client_access import REQUESTED, STATUSES
from app.rules.errors import Conflict, HasDefaultText
from app.rules.filters import OF_CLIENT, Filters, choice_filter, id_filter, read_filters
from app.rules.identifiers import HasPublicId, format_client_id, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext

FILTERS: Filters = {
    "status": choice_filter(STATUSES, "Access with this status."),
    "client_id": OF_CLIENT,
    "resource_id": id_filter("res", "resource", "For this resource."),
}
RESOURCE_OF_ACCESS = is_same(Resource.id, ClientAccess.resource_id)
_CLIENT_OF_ACCESS = is_same(Client.id, ClientAccess.client_id)


class AlreadyDecided(HasDefaultText, Conflict):
    """The request was decided, the access withdrawn, or the client blocked, before."""

    code = "already_decided"
    default_description = lazy_gettext("Someone else has already decided about this access.")


class AccessRecord(HasPublicId, Struct, frozen=True):
    """The access of a client to an API, or a request for it."""

    id_prefix = PREFIX
    id: UUID
    client_id: str
    client_name: str
    resource_id: str
    resource_name: str
    resource_identifier: str
    resource_owner_id: UUID | None
    status: str
    scopes: tuple[str, ...]
    reason: str | None
    message: str | None
    created_at: datetime
    created_by: str | None
    decided_at: datetime | None
    decided_by: str | None


@read
def list_client_access(
    actor: Actor, page_request: PageRequest = PageRequest(), *, filters: Mapping[str, str] = {}
) -> Page[AccessRecord]:
    """List the access to the APIs that the actor can see, with requests, newest first; ``filters`` are of FILTERS.

    Raises InvalidInput, Forbidden.
    """
    actor.require_for_own("resources:read")
    conditions = filter_conditions(ClientAccess, read_filters(actor, FILTERS, filters))
    statement = _select(actor).where(of_visible_resources(actor), *conditions)
    return read_page(statement, (ClientAccess.id,), page_request).map(_record)


@read
def list_access_of_client(
    actor: Actor, client_id: str, page_request: PageRequest = PageRequest()
) -> Page[AccessRecord]:
    """List the access of a client with its requests, newest first. Raises NotFound, Forbidden."""
    client = get_client_row(actor, client_id, "clients:read")
    statement = _select(actor).where(ClientAccess.client_id == client.id)
    return read_page(statement, (ClientAccess.id,), page_request).map(_record)


@read
def get_client_access(actor: Actor, access_id: str) -> AccessRecord:
    """Return one access or request of an API that the actor can see. Raises NotFound, Forbidden."""
    actor.require_for_own("resources:read")
    return _find(actor, access_id, of_visible_resources(actor))


_PENDING = (
    select(ClientAccess.id)
    .join(Resource, RESOURCE_OF_ACCESS)
    .join(Client, _CLIENT_OF_ACCESS)
    .where(
        ClientAccess.organization_id == bindparam("organization_id"),
        ClientAccess.status == REQUESTED,
        Client.status != DELETED,
    )
    .limit(100)
)
_COUNT_PENDING = count_query(_PENDING)
_COUNT_OWN_PENDING = count_query(_PENDING.where(Resource.owner_id == bindparam("user_id")))


def count_pending_requests(actor: Actor) -> int:
    """Return the number of pending requests that the actor can decide, at most a hundred."""
    if not actor.has_permission_for_own("resources:write"):
        return 0
    if actor.has_permission("resources:write"):
        return int(_COUNT_PENDING.first(organization_id=actor.organization_id)[0])
    return int(_COUNT_OWN_PENDING.first(organization_id=actor.organization_id, user_id=actor.user_id)[0])


def _owned_by(actor: Actor) -> ColumnElement[bool]:
    return false() if actor.user_id is None else Resource.owner_id == actor.user_id


def of_visible_resources(actor: Actor) -> ColumnElement[bool]:
    """Return the condition for the APIs that the actor can see, with a permission for all or their own."""
    return Resource.id.is_not(None) if actor.has_permission("resources:read") else _owned_by(actor)


def _select(actor: Actor) -> Select[Any]:
    return (
        select(
            *ClientAccess.__table__.columns,
            Client.name.label("client_name"),
            Resource.name.label("resource_name"),
            Resource.identifier.label("resource_identifier"),
            Resource.owner_id.label("resource_owner_id"),
        )
        .join(Client, _CLIENT_OF_ACCESS)
        .join(Resource, RESOURCE_OF_ACCESS)
        .where(ClientAccess.organization_id == actor.organization_id, Client.status != DELETED)
    )


def _find(actor: Actor, access_id: str, *conditions: ColumnElement[bool]) -> AccessRecord:
    statement = _select(actor).where(ClientAccess.id == parse_public_id(PREFIX, access_id), *conditions)
    return _record(get_row(statement, "There is no such client access."))


def read_access(actor: Actor, row_id: UUID | None) -> AccessRecord:
    """Return one access, also of an API that the actor cannot see. Raises AlreadyDecided for None."""
    if row_id is None:
        raise AlreadyDecided
    return _find(actor, public_id(PREFIX, row_id))


def _record(row: Any) -> AccessRecord:
    return make_record(
        AccessRecord,
        row,
        client_id=format_client_id(row.organization_id, row.client_id),
        resource_id=public_id("res", row.resource_id),
        scopes=tuple(row.scopes),
    )
