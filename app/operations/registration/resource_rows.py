"""The rows of resources and their scopes: found within the actor's organization, shown as records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.client import Scope
from app.models.resource import Resource
from app.operations.registration.client_records import name_key
from app.operations.transaction import count_changed
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import parse_public_id, public_id
from app.rules.registration.resource_fields import FIELDS, ResourceFields, ScopeWords


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRecord(ResourceFields):
    """A resource as its administrators and developers see it; ``organization_id`` is the routing key."""

    id: UUID
    organization_id: str
    version: int
    created_at: datetime
    created_by: str | None
    created_by_user_id: UUID | None
    updated_at: datetime

    @property
    def public_id(self) -> str:
        """``res_…``."""
        return public_id("res", self.id)


def get_row(actor: Actor, resource_id: str, permission: str) -> Resource:
    """The resource's row, for an actor with the permission.

    Raises Forbidden before anything is looked for, and NotFound alike for what never was, what is another
    organization's and, to somebody who sees own resources alone, others'.
    """
    actor.require_some(permission)
    row_id = parse_public_id("res", resource_id)
    row = None
    if row_id is not None:
        statement = select(Resource).where(
            Resource.organization_id == actor.organization_id, Resource.id == row_id
        )
        row = db.session.scalar(statement, execution_options={"populate_existing": True})
    if row is None:
        raise NotFound("There is no such resource.")
    if not actor.may(permission, owner_id=row.created_by_user_id):
        if not actor.may("resources:read", owner_id=row.created_by_user_id):
            raise NotFound("There is no such resource.")
        actor.require(permission, owner_id=row.created_by_user_id)
    return row


def change_row(row: Resource, values: dict[str, Any]) -> bool:
    """The row has the values and the next version, if nobody changed it since it was read."""
    statement = (
        update(Resource)
        .where(
            Resource.organization_id == row.organization_id,
            Resource.id == row.id,
            Resource.version == row.version,
        )
        .values(**values, version=row.version + 1)
    )
    return count_changed(statement) == 1


def columns_of(fields: ResourceFields) -> dict[str, Any]:
    """The columns that hold the fields; scopes have rows of their own."""
    values = {name: getattr(fields, name) for name in FIELDS if name != "scopes"}
    return values | {"name_key": name_key(fields.name)}


def records_of(rows: Sequence[Resource]) -> list[ResourceRecord]:
    """The rows as records, their scopes read at once."""
    scopes: dict[UUID, list[ScopeWords]] = {row.id: [] for row in rows}
    if rows:
        found = db.session.scalars(
            select(Scope)
            .where(Scope.organization_id == rows[0].organization_id, Scope.resource_id.in_(scopes))
            .order_by(Scope.name)
            .execution_options(populate_existing=True)
        )
        for scope in found:
            if scope.resource_id is not None:
                scopes[scope.resource_id].append(ScopeWords(scope.name, scope.title, scope.description))
    return [_record(row, scopes[row.id]) for row in rows]


def _record(row: Resource, scopes: Iterable[ScopeWords]) -> ResourceRecord:
    values = {name: getattr(row, name) for name in FIELDS if name != "scopes"}
    return ResourceRecord(
        **values,
        scopes=tuple(scopes),
        id=row.id,
        organization_id=row.organization_id,
        version=row.version,
        created_at=row.created_at,
        created_by=row.created_by,
        created_by_user_id=row.created_by_user_id,
        updated_at=row.updated_at,
    )
