"""The list of clients: searched, narrowed, ordered, one bounded page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, false, func, literal, select

from app.extensions import db
from app.models.client import DELETED, Client
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.registration.client_records import ClientRecord, name_key, record_of
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import FieldError, InvalidInput
from app.rules.identifiers import encode_uuid, parse_client_id
from app.rules.registration.client_fields import SOURCES, STATUS, TRUST
from app.rules.registration.client_types import CLIENT_TYPES

# The id is time-ordered: where clocks were off a row stands a little out of place, and nothing hangs on it.
SORTS = ("name", "-name", "created_at", "-created_at")
FILTERS: Mapping[str, tuple[str, ...]] = {
    "type": tuple(CLIENT_TYPES),
    "status": STATUS,
    "trust": TRUST,
    "source": SOURCES,
}


@read
def list_clients(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    query: str | None = None,
    filters: Mapping[str, str] | None = None,
    sort: str = "name",
) -> Page[ClientRecord]:
    """A page of the clients that the actor may see: all, or with ``clients:read:own`` those they registered.

    ``query`` is a part of a name or a whole ``client_id``, ``filters`` are exact (``type``, ``status``,
    ``trust``, ``source``), ``sort`` is one of SORTS. Raises InvalidInput for an unknown filter, value or order,
    Forbidden.
    """
    actor.require_some("clients:read")
    _check(filters or {}, sort)
    statement = select(Client).where(
        Client.organization_id == actor.organization_id, Client.status != DELETED
    )
    if not actor.may("clients:read"):
        # A client registers nothing of its own: without a person behind it, ``:own`` shows nothing.
        own = false() if actor.user_id is None else Client.created_by_user_id == actor.user_id
        statement = statement.where(own)
    for name, value in (filters or {}).items():
        statement = statement.where(getattr(Client, name) == value)
    if query:
        statement = _search(statement, query)
    limit = min(limit, MOST)
    ordered = in_order(statement, _columns(sort), after, descending=sort.startswith("-"))
    rows = db.session.scalars(ordered.limit(limit + 1)).all()
    items = tuple(record_of(row) for row in rows[:limit])
    return Page(items, _key(rows[limit - 1], sort) if len(rows) > limit else None)


def _check(filters: Mapping[str, str], sort: str) -> None:
    errors = []
    for name, value in filters.items():
        allowed = FILTERS.get(name)
        if allowed is None:
            errors.append(FieldError(name, "unknown_parameter", "There is no such filter."))
        elif value not in allowed:
            errors.append(FieldError(name, "not_allowed", f"This must be one of: {', '.join(allowed)}."))
    if sort not in SORTS:
        errors.append(FieldError("sort", "not_allowed", f"This must be one of: {', '.join(SORTS)}."))
    if errors:
        raise InvalidInput.of(errors)


def _search(statement: Select[Any], query: str) -> Select[Any]:
    parsed = parse_client_id(query)
    if parsed is not None:
        return statement.where(Client.organization_id == parsed[0], Client.id == parsed[1])
    if query.startswith("https://"):
        return statement.where(Client.metadata_document_uri == query)
    # INSTR compares bytes on both engines and knows no wildcards to escape.
    return statement.where(func.instr(Client.name_key, literal(name_key(query), Client.name_key.type)) > 0)


def _columns(sort: str) -> tuple[Any, ...]:
    return (Client.name_key, Client.id) if sort.endswith("name") else (Client.id,)


def _key(row: Client, sort: str) -> CursorKey:
    return (row.name_key, encode_uuid(row.id)) if sort.endswith("name") else (encode_uuid(row.id),)
