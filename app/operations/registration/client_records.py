"""The rows of clients: found within the actor's organization, shown as records, changed by compare-and-set."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.client import DELETED, PERSON, Client
from app.operations import view_changes
from app.operations.transaction import count_changed
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound, PreconditionFailed
from app.rules.identifiers import client_id_of, parse_client_id
from app.rules.registration.client_metadata import ClientMetadata, from_document, to_document

_LONGEST_NAME_KEY = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord(ClientMetadata):
    """A client as its administrators and developers see it; ``organization_id`` is the routing key."""

    id: UUID
    organization_id: str
    client_id: str
    version: int
    created_at: datetime
    created_by: str | None
    created_by_user_id: UUID | None
    updated_at: datetime
    last_used_at: datetime | None
    source: str = PERSON
    metadata_document_uri: str | None = None


def find_row(actor: Actor, client_id: str) -> Client:
    """The client's row as the database has it now.

    Raises NotFound alike for what never was, what was deleted and what belongs to another organization.
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


def get_row(actor: Actor, client_id: str, permission: str) -> Client:
    """The client's row, for an actor with the permission.

    The permission is asked first, so that who lacks it learns nothing of which clients exist. For somebody who
    holds it for own clients alone those of others do not exist either, unless they may be read.
    """
    actor.require_some(permission)
    row = find_row(actor, client_id)
    if not actor.may(permission, owner_id=row.created_by_user_id):
        if not actor.may("clients:read", owner_id=row.created_by_user_id):
            raise NotFound("There is no such client.")
        actor.require(permission, owner_id=row.created_by_user_id)
    return row


def change_row(row: Client, values: Mapping[str, Any]) -> bool:
    """The row has the values and the next version, if nobody changed it since it was read.

    Everything that depends on the client's state, its number of secrets too, goes through here first: of two that
    read the same version one is told to read again.
    """
    statement = (
        update(Client)
        .where(
            Client.organization_id == row.organization_id,
            Client.id == row.id,
            Client.version == row.version,
            Client.status != DELETED,
        )
        .values(**values, version=row.version + 1)
    )
    changed = count_changed(statement) == 1
    if changed:
        view_changes.mark(row.organization_id)
    return changed


def require_version(row: Client, expected: int | None) -> None:
    """Raise PreconditionFailed unless the row is at the version that the caller read."""
    if expected is not None and row.version != expected:
        raise PreconditionFailed("The client was changed since you read it. Read it again.")


def still_changing() -> Conflict:
    """The refusal after several lost races in a row."""
    return Conflict("The client is being changed by others right now. Try again.", code="busy")


def metadata_of(row: Client) -> ClientMetadata:
    """What the row says of the client."""
    return from_document(row.document, name=row.name, type=row.type, trust=row.trust, status=row.status)


def record_of(row: Client) -> ClientRecord:
    """The row as a record."""
    metadata = metadata_of(row)
    return ClientRecord(
        **{name: getattr(metadata, name) for name in ClientMetadata.__dataclass_fields__},
        id=row.id,
        organization_id=row.organization_id,
        client_id=client_id_of(row.organization_id, row.id),
        version=row.version,
        created_at=row.created_at,
        created_by=row.created_by,
        created_by_user_id=row.created_by_user_id,
        updated_at=row.updated_at,
        last_used_at=row.last_used_at,
        source=row.source,
        metadata_document_uri=row.metadata_document_uri,
    )


def columns_of(metadata: ClientMetadata) -> dict[str, Any]:
    """The columns that hold the metadata."""
    return {
        "name": metadata.name,
        "name_key": name_key(metadata.name),
        "type": metadata.type,
        "status": metadata.status,
        "trust": metadata.trust,
        "document": to_document(metadata),
    }


def name_key(name: str) -> str:
    """The form of a name that order and search use: case, width and composition folded, at most 400 bytes."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return folded.encode()[:_LONGEST_NAME_KEY].decode("utf-8", "ignore")
