"""The list of resources: searched, narrowed, one bounded page at a time."""

from __future__ import annotations

from sqlalchemy import false, func, literal, or_, select

from app.extensions import db
from app.models.resource import Resource
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.registration.client_records import name_key
from app.operations.registration.resource_rows import ResourceRecord, records_of
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.rules.identifiers import encode_uuid
from app.rules.registration.resource_fields import STATUS


@read
def list_resources(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    query: str | None = None,
    status: str | None = None,
    descending: bool = False,
) -> Page[ResourceRecord]:
    """A page of the resources that the actor may see, by name: all, or with ``resources:read:own`` own ones.

    ``query`` is a part of a name or identifier. Raises InvalidInput for an unknown status, Forbidden.
    """
    actor.require_some("resources:read")
    statement = select(Resource).where(Resource.organization_id == actor.organization_id)
    if not actor.may("resources:read"):
        own = false() if actor.user_id is None else Resource.created_by_user_id == actor.user_id
        statement = statement.where(own)
    if status is not None:
        if status not in STATUS:
            message = f"This must be one of: {', '.join(STATUS)}."
            raise InvalidInput(message, field="status", code="not_allowed")
        statement = statement.where(Resource.status == status)
    if query:
        # INSTR compares bytes on both engines and knows no wildcards to escape.
        by_name = func.instr(Resource.name_key, literal(name_key(query), Resource.name_key.type)) > 0
        by_identifier = func.instr(Resource.identifier, literal(query, Resource.identifier.type)) > 0
        statement = statement.where(or_(by_name, by_identifier))
    limit = min(limit, MOST)
    ordered = in_order(statement, (Resource.name_key, Resource.id), after, descending=descending)
    rows = db.session.scalars(ordered.limit(limit + 1)).all()
    items = tuple(records_of(rows[:limit]))
    last = rows[limit - 1] if len(rows) > limit else None
    return Page(items, (last.name_key, encode_uuid(last.id)) if last is not None else None)


@read
def choosable_resources(actor: Actor) -> tuple[ResourceRecord, ...]:
    """The first resources by name that a form offers to the actor; none for who may see none."""
    return (
        list_resources(actor, limit=MOST, status="active").items if actor.may_some("resources:read") else ()
    )
