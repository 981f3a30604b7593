"""What a client may be given: nobody grants scopes or trust that they do not hold (TN-11)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, false, func, literal, select, update

from app.extensions import db
from app.models.client import ACTIVE, DELETED, PERSON, Client, Scope
from app.operations import view_changes
from app.operations.clients.scopes import add_scopes, list_scopes
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, paginate
from app.operations.store.transactions import count_changed, read
from app.rules.actor import Actor
from app.rules.clients.client_fields import SOURCES, STATUS, TRUST
from app.rules.clients.client_metadata import ClientMetadata, changed_fields, from_document, to_document
from app.rules.clients.client_types import ALLOWED, CLIENT_TYPES, PRE_APPROVED
from app.rules.directory.permissions import ALL_PERMISSIONS, PERMISSIONS, ROOT_ONLY, missing_permissions
from app.rules.errors import Conflict, FieldError, Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.identifiers import encode_uuid, format_client_id, parse_client_id
from app.rules.scopes import IDENTITY_SCOPES

UNVERIFIED = "unverified"
_APPROVAL = ("approval", "approved_scopes")
_MOST_NAMED = 30
# What a developer may change in a client that others vouched for: nobody is asked for consent by these.
_BESIDE_TRUST = frozenset({"description", "contacts", "metadata", "status", "trust"})
# What a metadata document does not speak of.
_BESIDE_DOCUMENT = frozenset(
    {
        *("description", "metadata", "status", "trust", "resources", "optional_scopes"),
        *("access_token_format", "token_exchange", "approval", "approved_scopes"),
    }
)


def settle_scopes(
    actor: Actor, metadata: ClientMetadata, *, before: Iterable[str], is_root: bool
) -> list[str]:
    """Every scope of the client is one that the organization knows; returns warnings for who registers it.

    Management scopes need ``clients:trust`` and must be held by the actor. An unknown scope is added to the
    registry for a caller with ``resources:write``; anybody else gets InvalidInput, naming those that exist.
    Scopes that the client had ``before`` stay as they are.
    """
    new = [scope for scope in metadata.scopes if scope not in frozenset(before)]
    management = [scope for scope in new if scope in ALL_PERMISSIONS]
    _require_to_grant(actor, metadata, management, is_root=is_root)
    named = [scope for scope in new if scope not in ALL_PERMISSIONS and scope not in IDENTITY_SCOPES]
    unknown = _unknown(actor, named)
    if not unknown:
        return []
    if not actor.has_permission("resources:write"):
        raise InvalidInput.of(_unknown_errors(actor, metadata, unknown))
    added = add_scopes(actor, unknown)
    return [f'The scope "{name}" is new here and wants words for the consent page.' for name in added]


def grantable_permissions(actor: Actor) -> Mapping[str, str]:
    """The management scopes, with their words, that the actor is offered to give a client."""
    return PERMISSIONS if actor.has_permission("clients:trust") else {}


def require_trust(actor: Actor, before: str, after: str) -> None:
    """Raise Forbidden when the change of ``trust`` is not the actor's to make."""
    if before != after and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "Only somebody with the permission clients:trust decides which clients are trusted.",
            permission="clients:trust",
            field="trust",
        )


def require_approval(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden when the change of what administrators decided about the client is not the actor's to make."""
    changed = [name for name in changed_fields(before, after) if name in _APPROVAL]
    if changed and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "Only somebody with the permission clients:trust decides who may allow a client.",
            permission="clients:trust",
            errors=[
                FieldError(name, "not_allowed", "This needs the permission clients:trust.")
                for name in changed
            ],
        )


def require_keeping_trust(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden when the actor changes what somebody else vouched for, or undoes somebody's stop.

    Trust was given to this name, these addresses and these scopes: with others behind it, codes would go out
    without consent to whoever wrote them. A client that was disabled is enabled by full ``clients:write`` alone.
    """
    changed = [name for name in changed_fields(before, after) if name not in _BESIDE_TRUST]
    is_trusted = before.trust != UNVERIFIED or before.approval in (ALLOWED, PRE_APPROVED)
    if is_trusted and changed and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "This client is trusted. Only somebody with the permission clients:trust changes its "
            f"{', '.join(changed)}.",
            permission="clients:trust",
            errors=[
                FieldError(name, "trusted", "This needs the permission clients:trust.") for name in changed
            ],
        )
    if before.status != ACTIVE and after.status == ACTIVE and not actor.has_permission("clients:write"):
        raise Forbidden(
            "This client is disabled. Only somebody with the permission clients:write for all clients enables it.",
            permission="clients:write",
            field="status",
        )


def require_document_agrees(actor: Actor, row: Client, changed: Iterable[str]) -> None:
    """Raise Conflict when somebody changes what the client's own metadata document says: it would come back."""
    fixed = [name for name in changed if name not in _BESIDE_DOCUMENT]
    if row.metadata_document_uri is not None and actor.kind in ("user", "client") and fixed:
        raise Conflict(
            f"This client's metadata document says what these are: {', '.join(fixed)}.",
            code="in_metadata_document",
            errors=[
                FieldError(name, "in_metadata_document", "This stands in the client's metadata document.")
                for name in fixed
            ],
        )


def require_exchange(actor: Actor, before: str | None, after: str | None) -> None:
    """Raise Forbidden when the client is given leave to exchange tokens by somebody who decides no trust.

    It could then have tokens of users that nobody asked for consent.
    """
    if after is not None and before != after and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "Only somebody with the permission clients:trust lets a client exchange tokens.",
            permission="clients:trust",
            field="token_exchange",
        )


def require_resources(actor: Actor, before: Iterable[str], after: Iterable[str]) -> None:
    """Raise Forbidden when the actor gives the client an audience and decides neither on trust nor on resources.

    Whoever names a resource may read the tokens meant for it.
    """
    new = frozenset(after) - frozenset(before)
    if new and not actor.has_permission("clients:trust") and not actor.has_permission("resources:write"):
        raise Forbidden(
            "Only somebody with the permission resources:write or clients:trust gives a client resources.",
            permission="resources:write",
            field="resources",
        )


def require_not_above(actor: Actor, row: Client) -> None:
    """Raise Forbidden when the client may do in this API what the actor may not.

    Its secrets and addresses are its rights: whoever could change them would hold those, too.
    """
    scopes = [scope for scope in row.document.get("scopes", ()) if scope in ALL_PERMISSIONS]
    missing = [] if actor.kind == "system" else missing_permissions(actor.permissions, scopes)
    if missing:
        raise Forbidden(
            f"This client may do more here than you: {', '.join(missing)}.", permission=missing[0]
        )


def _require_to_grant(actor: Actor, metadata: ClientMetadata, scopes: list[str], *, is_root: bool) -> None:
    if not scopes:
        return
    if not actor.has_permission("clients:trust"):
        raise Forbidden(
            f"To grant a client {', '.join(scopes)} you need the permission clients:trust.",
            permission="clients:trust",
            errors=[_at(metadata, scopes[0], "not_allowed", "This scope manages the organization.")],
        )
    if not is_root and any(scope in ROOT_ONLY for scope in scopes):
        errors = [
            _at(
                metadata, scope, "invalid_scope", "Only clients of the root organization can have this scope."
            )
            for scope in scopes
            if scope in ROOT_ONLY
        ]
        raise InvalidInput.of(errors)
    missing = [] if actor.kind == "system" else missing_permissions(actor.permissions, scopes)
    if missing:
        raise Forbidden(
            f"You cannot grant what you do not hold: {', '.join(missing)}.",
            permission=missing[0],
            errors=[_at(metadata, missing[0], "not_allowed", "You do not hold this permission yourself.")],
        )


def _unknown(actor: Actor, names: list[str]) -> list[str]:
    if not names:
        return []
    known = db.session.scalars(
        select(Scope.name).where(Scope.organization_id == actor.organization_id, Scope.name.in_(names))
    )
    found = set(known)
    return [name for name in names if name not in found]


def _unknown_errors(actor: Actor, metadata: ClientMetadata, unknown: list[str]) -> list[FieldError]:
    listed = [scope.name for scope in list_scopes(actor)]
    names = ", ".join(listed[:_MOST_NAMED]) + (", …" if len(listed) > _MOST_NAMED else "")
    message = f"This organization does not know this scope. It knows: {names}."
    return [_at(metadata, name, "unknown_scope", message) for name in unknown]


def _at(metadata: ClientMetadata, scope: str, code: str, message: str) -> FieldError:
    return FieldError(f"scopes[{metadata.scopes.index(scope)}]", code, message)


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
    actor.require_for_own(permission)
    row = find_row(actor, client_id)
    if not actor.has_permission(permission, owner_id=row.created_by_user_id):
        if not actor.has_permission("clients:read", owner_id=row.created_by_user_id):
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
        client_id=format_client_id(row.organization_id, row.id),
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
    actor.require_for_own("clients:read")
    _check(filters or {}, sort)
    statement = select(Client).where(
        Client.organization_id == actor.organization_id, Client.status != DELETED
    )
    if not actor.has_permission("clients:read"):
        # A client registers nothing of its own: without a person behind it, ``:own`` shows nothing.
        own = false() if actor.user_id is None else Client.created_by_user_id == actor.user_id
        statement = statement.where(own)
    for name, value in (filters or {}).items():
        statement = statement.where(getattr(Client, name) == value)
    if query:
        statement = _search(statement, query)
    limit = min(limit, MAX_LIMIT)
    ordered = paginate(statement, _columns(sort), after, descending=sort.startswith("-"))
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
