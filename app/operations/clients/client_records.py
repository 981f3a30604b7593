"""Client rows: find, lock and update them, records and lists of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Integer, bindparam, func, select, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key
from app.models.client import DELETED, Client
from app.operations.store.rows import Page, PageQuery, PageRequest, count_query, make_record
from app.operations.store.text_search import take_search_slot
from app.operations.store.transactions import OutdatedRead, count_changed
from app.rules.actor import Actor
from app.rules.clients.client_documents import fields_of_document, from_document, to_document
from app.rules.clients.client_metadata import ClientMetadata
from app.rules.clients.client_types import (
    CLIENT_TYPES,
    PERSON,
    SOURCES,
    STATUS,
    TRUST,
)
from app.rules.errors import Busy, NotFound
from app.rules.filters import OF_OWNER, Filters, choice_filter, read_filters, sort_filter
from app.rules.identifiers import format_client_id, parse_client_id

_MAX_NAME_KEY_BYTES = 400
# Ids are ordered by time, so sorting by creation uses the id. Clock differences may swap rows slightly.
FILTERS: Filters = {
    "type": choice_filter(CLIENT_TYPES, "Clients of this type."),
    "status": choice_filter(STATUS, "Clients with this status."),
    "trust": choice_filter(TRUST, "Clients with this trust level."),
    "source": choice_filter(SOURCES, "Clients that were registered in this way."),
    "owner_id": OF_OWNER,
    "sort": sort_filter("name", "created_at"),
}


class ClientRecord(ClientMetadata, frozen=True, kw_only=True):
    """A client as administrators and developers see it. ``organization_id`` is the organization's key."""

    id: UUID
    organization_id: str
    client_id: str
    version: int
    created_at: datetime
    created_by: str | None
    owner_id: UUID | None
    updated_at: datetime
    last_used_at: datetime | None
    pkce_used_at: datetime | None = None
    pkce_omitted_at: datetime | None = None
    source: str = PERSON
    metadata_document_uri: str | None = None


def list_clients(
    actor: Actor,
    page_request: PageRequest = PageRequest(),
    *,
    query: str | None = None,
    filters: Mapping[str, str] = {},
) -> Page[ClientRecord]:
    """List the clients that the actor can see: all, or with ``clients:read:own`` the actor's own.

    ``query`` is a part of a name or a whole ``client_id``, ``filters`` are of FILTERS. Raises InvalidInput, Forbidden.
    """
    actor.require_for_own("clients:read")
    values = {**read_filters(actor, FILTERS, filters), "organization_id": actor.organization_id}
    sort, descending = values.pop("sort")
    if not actor.has_permission("clients:read"):
        # A client owns nothing: without a user this is NULL, which matches no rows.
        values["owner"] = actor.user_id
    if query:
        values |= _searched(query)
    columns = (Client.name_key, Client.id) if sort == "name" else (Client.id,)
    with take_search_slot(actor.organization_id, values.get("part")):
        page = _LIST.read(columns, page_request, descending=descending, **values)
    return page.map(to_client_record)


# The column of the owner has the name of its first meaning.
_COLUMNS = (Client.__table__, Client.owner_id.label("owner_id"))
_CONDITIONS: Mapping[str, ColumnElement[bool]] = {
    "organization_id": Client.organization_id == bindparam("organization_id"),
    "owner": Client.owner_id == bindparam("owner"),
    **{name: getattr(Client, name) == bindparam(name) for name in FILTERS if name != "sort"},
    "searched_organization_id": Client.organization_id == bindparam("searched_organization_id"),
    "row_id": Client.id == bindparam("row_id"),
    "uri": Client.metadata_document_uri == bindparam("uri"),
    # INSTR compares bytes on both engines and knows no wildcards to escape.
    "part": func.instr(Client.name_key, bindparam("part", type_=Client.name_key.type)) > 0,
}
_LIST = PageQuery(
    lambda given: select(*_COLUMNS).where(
        Client.status != DELETED, *(_CONDITIONS[name] for name in sorted(given))
    )
)


def _searched(query: str) -> dict[str, Any]:
    parsed = parse_client_id(query)
    if parsed is not None:
        return {"searched_organization_id": parsed[0], "row_id": parsed[1]}
    return {"uri": query} if query.startswith("https://") else {"part": name_key(query)}


def count_clients(organization_id: str, limit: int) -> int:
    """Count the clients of the organization, at most ``limit``, with those whose deletion is not complete."""
    return int(_COUNT.first(organization_id=organization_id, limit=limit)[0])


_COUNT = count_query(
    select(Client.id)
    .where(Client.organization_id == bindparam("organization_id"))
    .limit(bindparam("limit", type_=Integer))
)


def load_client_row(actor: Actor, client_id: str) -> Client:
    """Read the client's row from the database.

    Raises NotFound for a client that does not exist, was deleted or belongs to another organization.
    """
    parsed = parse_client_id(client_id)
    row = None
    if parsed is not None and parsed[0] == actor.organization_id:
        statement = select(Client).where(
            Client.organization_id == actor.organization_id, Client.id == parsed[1], Client.status != DELETED
        )
        row = db.session.scalar(statement, execution_options={"populate_existing": True})
    if row is None:
        raise NotFound("There is no such client.")
    return row


def get_client_row(actor: Actor, client_id: str, permission: str) -> Client:
    """Return the client's row for an actor with the permission.

    The permission is checked first, so that an actor without it cannot learn which clients exist. For an
    actor with only the ``:own`` permission other users' clients do not exist either, unless they can be read.
    """
    actor.require_for_own(permission)
    row = load_client_row(actor, client_id)
    _require_permission(actor, row, permission)
    return row


_READ = CompiledQuery(
    select(*_COLUMNS).where(
        has_key(Client, bindparam("organization_id"), bindparam("row_id")), Client.status != DELETED
    )
)


def get_client_record(actor: Actor, client_id: str) -> ClientRecord:
    """Return the client, only to be shown. Raises NotFound, Forbidden, as ``get_client_row`` does."""
    actor.require_for_own("clients:read")
    parsed = parse_client_id(client_id)
    record = None
    if parsed is not None and parsed[0] == actor.organization_id:
        record = find_client_record(*parsed)
    if record is None:
        raise NotFound("There is no such client.")
    _require_permission(actor, record, "clients:read")
    return record


def find_client_record(organization_id: str, row_id: UUID) -> ClientRecord | None:
    """Return the client with this primary key for an operation that has its own rule about who may see it."""
    row = _READ.first(organization_id=organization_id, row_id=row_id)
    return None if row is None else to_client_record(row)


def find_client_owner(organization_id: str, row_id: UUID) -> UUID | None:
    """Return the user who owns the client, if it has an owner."""
    return db.session.scalar(select(Client.owner_id).where(has_key(Client, organization_id, row_id)))


def _require_permission(actor: Actor, row: Any, permission: str) -> None:
    if not actor.has_permission(permission, owner_id=row.owner_id):
        if not actor.has_permission("clients:read", owner_id=row.owner_id):
            raise NotFound("There is no such client.")
        actor.require(permission, owner_id=row.owner_id)


def hold_client(actor: Actor, client_id: str, *, shared: bool = False) -> Client:
    """Return the client's row as it remains until the current transaction ends. Raises NotFound.

    ``shared`` is for a transaction that does not change the row; others may hold it too.
    """
    row = load_client_row(actor, client_id)
    statement = select(Client).where(has_key(Client, row.organization_id, row.id), Client.status != DELETED)
    held = db.session.scalar(
        statement.with_for_update(read=shared), execution_options={"populate_existing": True}
    )
    if held is None:
        raise NotFound("There is no such client.")
    return held


def update_client_row(row: Client, **values: Any) -> None:
    """Set the values and raise the version. Raises OutdatedRead if the row was changed since it was read.

    Everything that depends on the client's state, also the number of its secrets, goes through here first. Of
    two callers that read the same version, one has to read again.
    """
    statement = (
        update(Client)
        .where(
            has_key(Client, row.organization_id, row.id),
            Client.version == row.version,
            Client.status != DELETED,
        )
        .values(**values, version=row.version + 1)
    )
    if count_changed(statement) != 1:
        raise OutdatedRead(Busy("The client is being changed by others right now. Try again."))
    cache_invalidation.invalidate(row.organization_id)


def to_client_record(row: Any) -> ClientRecord:
    """Return the row as a record."""
    columns = {"name": row.name, "type": row.type, "trust": row.trust, "status": row.status}
    return make_record(
        ClientRecord,
        row,
        **{**fields_of_document(row.document), **columns},
        client_id=format_client_id(row.organization_id, row.id),
    )


def to_client_metadata(row: Any) -> ClientMetadata:
    """Return the row's client metadata."""
    return from_document(row.document, name=row.name, type=row.type, trust=row.trust, status=row.status)


def to_client_columns(metadata: ClientMetadata, stored: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return the columns that store the metadata in place of the ``stored`` document."""
    return {
        "name": metadata.name,
        "name_key": name_key(metadata.name),
        "type": metadata.type,
        "status": metadata.status,
        "trust": metadata.trust,
        "document": to_document(metadata, stored),
    }


def name_key(name: str) -> str:
    """Return the normalized form of a name for sorting and search.

    Case, width and composition are folded. It has at most 400 bytes.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return folded.encode()[:_MAX_NAME_KEY_BYTES].decode("utf-8", "ignore")
