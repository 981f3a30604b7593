"""Client rows: permissions to change them, conversion to records, and lists.

Users cannot give a client scopes or trust that they do not have themselves (TN-11).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, bindparam, false, func, literal, select, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.fast_path.compiled_query import CompiledQuery
from app.models.client import ACTIVE, DELETED, PERSON, Client, Scope
from app.operations.clients.scopes import add_scopes, list_offered_scopes
from app.operations.store.transactions import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    CursorKey,
    Page,
    count_changed,
    paginate,
    read,
)
from app.rules.actor import Actor
from app.rules.clients.client_metadata import (
    ClientMetadata,
    changed_fields,
    fields_of_document,
    from_document,
    to_document,
)
from app.rules.clients.client_types import (
    ALLOWED,
    CLIENT_TYPES,
    PRE_APPROVED,
    SOURCES,
    STATUS,
    TRUST,
    uses_grants_without_consent,
)
from app.rules.directory.permissions import ALL_PERMISSIONS, PERMISSIONS, ROOT_ONLY, missing_permissions
from app.rules.errors import Conflict, FieldError, Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.identifiers import encode_uuid, format_client_id, parse_client_id
from app.rules.languages.translation import lazy_gettext
from app.rules.scopes import IDENTITY_SCOPES
from app.rules.versions import ExpectedVersion, is_expected

UNVERIFIED = "unverified"
_APPROVAL_FIELDS = ("approval", "approved_scopes")
_MAX_LISTED_SCOPES = 30
# Fields that a developer can change in a trusted client, because they do not affect consent.
_UNAFFECTED_BY_TRUST = frozenset({"description", "contacts", "metadata", "status", "trust", "app_roles"})
# Fields that a metadata document cannot set.
_NOT_IN_DOCUMENT = frozenset(
    {
        *("description", "metadata", "status", "trust", "resources", "optional_scopes"),
        *("access_token_format", "token_exchange", "approval", "approved_scopes", "require_pkce"),
        *("id_token_claims", "app_roles", "claim_mappings"),
    }
)
_MAX_NAME_KEY_BYTES = 400
# Ids are ordered by time, so sorting by creation uses the id. Clock differences may swap rows slightly.
SORTS = ("name", "-name", "created_at", "-created_at")
FILTERS: Mapping[str, tuple[str, ...]] = {
    "type": tuple(CLIENT_TYPES),
    "status": STATUS,
    "trust": TRUST,
    "source": SOURCES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord(ClientMetadata):
    """A client as administrators and developers see it. ``organization_id`` is the organization's key."""

    id: UUID
    organization_id: str
    client_id: str
    version: int
    created_at: datetime
    created_by: str | None
    created_by_user_id: UUID | None
    updated_at: datetime
    last_used_at: datetime | None
    pkce_used_at: datetime | None = None
    pkce_omitted_at: datetime | None = None
    source: str = PERSON
    metadata_document_uri: str | None = None


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
    """List the clients that the actor can see: all, or with ``clients:read:own`` the actor's own.

    ``query`` is a part of a name or a whole ``client_id``, ``filters`` are exact (``type``, ``status``,
    ``trust``, ``source``), ``sort`` is one of SORTS. Raises InvalidInput for an unknown filter, value or
    order, Forbidden.
    """
    actor.require_for_own("clients:read")
    _validate_list_parameters(filters or {}, sort)
    statement = select(Client.__table__).where(
        Client.organization_id == actor.organization_id, Client.status != DELETED
    )
    if not actor.has_permission("clients:read"):
        # A client owns nothing, so without a user ``:own`` matches no rows.
        own = false() if actor.user_id is None else Client.created_by_user_id == actor.user_id
        statement = statement.where(own)
    for name, value in (filters or {}).items():
        statement = statement.where(getattr(Client, name) == value)
    if query:
        statement = _search(statement, query)
    limit = min(limit, MAX_LIMIT)
    ordered = paginate(statement, _sort_columns(sort), after, descending=sort.startswith("-"))
    rows = db.session.execute(ordered.limit(limit + 1)).all()
    items = tuple(to_client_record(row) for row in rows[:limit])
    return Page(items, _cursor_key(rows[limit - 1], sort) if len(rows) > limit else None)


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
    select(Client.__table__).where(
        Client.organization_id == bindparam("organization_id"),
        Client.id == bindparam("row_id"),
        Client.status != DELETED,
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


def _require_permission(actor: Actor, row: Any, permission: str) -> None:
    if not actor.has_permission(permission, owner_id=row.created_by_user_id):
        if not actor.has_permission("clients:read", owner_id=row.created_by_user_id):
            raise NotFound("There is no such client.")
        actor.require(permission, owner_id=row.created_by_user_id)


def hold_client(actor: Actor, client_id: str, *, shared: bool = False) -> Client:
    """Return the client's row as it remains until the current transaction ends. Raises NotFound.

    ``shared`` is for a transaction that does not change the row; others may hold it too.
    """
    row = load_client_row(actor, client_id)
    statement = select(Client).where(
        Client.organization_id == row.organization_id, Client.id == row.id, Client.status != DELETED
    )
    held = db.session.scalar(
        statement.with_for_update(read=shared), execution_options={"populate_existing": True}
    )
    if held is None:
        raise NotFound("There is no such client.")
    return held


def update_client_row(row: Client, values: Mapping[str, Any]) -> bool:
    """Set the values and raise the version. Return False if the row was changed since it was read.

    Everything that depends on the client's state, also the number of its secrets, goes through here first. Of
    two callers that read the same version, one has to read again.
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
        cache_invalidation.invalidate(row.organization_id)
    return changed


def require_client_version(row: Client, expected: ExpectedVersion) -> None:
    """Raise PreconditionFailed unless the row has the version that the caller read."""
    if not is_expected(row.version, expected):
        raise PreconditionFailed("The client was changed since you read it. Read it again.")


def client_busy_error() -> Conflict:
    """Return the error for an update that lost several races in a row."""
    return Conflict("The client is being changed by others right now. Try again.", code="busy")


def to_client_record(row: Any) -> ClientRecord:
    """Return the row as a record."""
    columns = {"name": row.name, "type": row.type, "trust": row.trust, "status": row.status}
    return ClientRecord(
        **{**fields_of_document(row.document), **columns},
        id=row.id,
        organization_id=row.organization_id,
        client_id=format_client_id(row.organization_id, row.id),
        version=row.version,
        created_at=row.created_at,
        created_by=row.created_by,
        created_by_user_id=row.created_by_user_id,
        updated_at=row.updated_at,
        last_used_at=row.last_used_at,
        pkce_used_at=row.pkce_used_at,
        pkce_omitted_at=row.pkce_omitted_at,
        source=row.source,
        metadata_document_uri=row.metadata_document_uri,
    )


def to_client_metadata(row: Any) -> ClientMetadata:
    """Return the row's client metadata."""
    return from_document(row.document, name=row.name, type=row.type, trust=row.trust, status=row.status)


def to_client_columns(metadata: ClientMetadata) -> dict[str, Any]:
    """Return the columns that store the metadata."""
    return {
        "name": metadata.name,
        "name_key": name_key(metadata.name),
        "type": metadata.type,
        "status": metadata.status,
        "trust": metadata.trust,
        "document": to_document(metadata),
    }


def name_key(name: str) -> str:
    """Return the normalized form of a name for sorting and search.

    Case, width and composition are folded. It has at most 400 bytes.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return folded.encode()[:_MAX_NAME_KEY_BYTES].decode("utf-8", "ignore")


def resolve_client_scopes(
    actor: Actor,
    metadata: ClientMetadata,
    *,
    before: Iterable[str],
    is_root: bool,
    granted: Collection[str] = (),
) -> list[str]:
    """Check that the organization knows the client's scopes and the actor can grant them.

    Returns warnings for the caller. Management scopes need ``clients:trust``, and the actor must have them.
    For a caller with ``resources:write`` unknown scopes are added to the organization. Otherwise InvalidInput
    lists the existing ones. Scopes that the client had ``before`` are not checked again. ``granted`` are
    scopes that it has access to: those of an API for listed clients are unknown to other clients.
    """
    new = [scope for scope in metadata.scopes if scope not in frozenset(before)]
    management = [scope for scope in new if scope in ALL_PERMISSIONS]
    _require_grant_permission(actor, metadata, management, is_root=is_root)
    named = [scope for scope in new if scope not in ALL_PERMISSIONS and scope not in IDENTITY_SCOPES]
    unknown = _find_unknown(actor, named, granted)
    if not unknown:
        return []
    if not actor.has_permission("resources:write"):
        raise InvalidInput.of(_unknown_scope_errors(actor, metadata, unknown))
    added = add_scopes(actor, unknown)
    return [
        f'The scope "{name}" is new in this organization. Add a title for the consent page.' for name in added
    ]


def require_known_scopes(
    actor: Actor, metadata: ClientMetadata, *, before: Iterable[str], granted: Collection[str] = ()
) -> None:
    """Raise InvalidInput for new scopes that the organization does not know, and for management scopes."""
    new = [name for name in metadata.scopes if name not in frozenset(before) and name not in IDENTITY_SCOPES]
    unknown = _find_unknown(actor, new, granted)
    if unknown:
        raise InvalidInput.of(_unknown_scope_errors(actor, metadata, unknown))


def grantable_permissions(actor: Actor) -> Mapping[str, str]:
    """Return the management scopes, with descriptions, that the actor can offer to a client."""
    return PERMISSIONS if actor.has_permission("clients:trust") else {}


def require_trust_permission(actor: Actor, before: str, after: str) -> None:
    """Raise Forbidden if ``trust`` changes and the actor cannot change it."""
    if before != after and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "You need the permission clients:trust to change the trust of a client.",
            permission="clients:trust",
            field="trust",
        )


def require_approval_permission(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden if the administrators' approval changes and the actor cannot change it."""
    changed = [name for name in changed_fields(before, after) if name in _APPROVAL_FIELDS]
    if changed and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "You need the permission clients:trust to change the approval of a client.",
            permission="clients:trust",
            errors=[
                FieldError(name, "not_allowed", "You need the permission clients:trust.") for name in changed
            ],
        )


def require_trusted_client_permission(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden if the actor cannot change this trusted client or enable this disabled one.

    Trust was given to this name, these redirect URIs and these scopes. With others, codes would be issued
    without consent to an unverified client. A disabled client can be enabled only with full
    ``clients:write``.
    """
    changed = [name for name in changed_fields(before, after) if name not in _UNAFFECTED_BY_TRUST]
    is_trusted = before.trust != UNVERIFIED or before.approval in (ALLOWED, PRE_APPROVED)
    if is_trusted and changed and not actor.has_permission("clients:trust"):
        raise Forbidden(
            lazy_gettext(
                "This client is trusted. You need the permission clients:trust to change its %(changed)s.",
                changed=", ".join(changed),
            ),
            permission="clients:trust",
            errors=[
                FieldError(name, "trusted", "You need the permission clients:trust.") for name in changed
            ],
        )
    if before.status != ACTIVE and after.status == ACTIVE and not actor.has_permission("clients:write"):
        raise Forbidden(
            "This client is disabled. You need the permission clients:write for all clients to enable it.",
            permission="clients:write",
            field="status",
        )


def require_not_in_metadata_document(actor: Actor, row: Client, changed: Iterable[str]) -> None:
    """Raise Conflict if a user changes fields that the client's metadata document sets.

    The next refresh of the document would overwrite them.
    """
    fixed = [name for name in changed if name not in _NOT_IN_DOCUMENT]
    if row.metadata_document_uri is not None and actor.kind in ("user", "client") and fixed:
        raise Conflict(
            lazy_gettext(
                "These fields are set by the client's metadata document: %(fixed)s.", fixed=", ".join(fixed)
            ),
            code="in_metadata_document",
            errors=[
                FieldError(name, "in_metadata_document", "This is set by the client's metadata document.")
                for name in fixed
            ],
        )


def require_token_exchange_permission(actor: Actor, before: str | None, after: str | None) -> None:
    """Raise Forbidden if the actor lets the client exchange tokens without the permission to trust clients.

    The client could then obtain tokens of users who never consented.
    """
    if after is not None and before != after and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "You need the permission clients:trust to let a client exchange tokens.",
            permission="clients:trust",
            field="token_exchange",
        )


def require_resources_permission(actor: Actor, before: Iterable[str], after: Iterable[str]) -> None:
    """Raise Forbidden if the actor adds resources but may neither trust clients nor manage resources.

    A resource's audience decides who can read the tokens.
    """
    new = frozenset(after) - frozenset(before)
    if new and not actor.has_permission("clients:trust") and not actor.has_permission("resources:write"):
        raise Forbidden(
            "You need the permission resources:write or clients:trust to add resources to a client.",
            permission="resources:write",
            field="resources",
        )


def require_shared_scope_permission(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden if the actor lets the client use scopes of no API for itself, but may not decide about them.

    Such a scope fits every API, so only those who manage all APIs or trust clients may give it to a client that gets
    tokens without a user's consent.
    """
    if not uses_grants_without_consent(after.grant_types):
        return
    if actor.has_permission("resources:write") or actor.has_permission("clients:trust"):
        return
    known = before.scopes if uses_grants_without_consent(before.grant_types) else ()
    new = [scope for scope in after.scopes if scope not in known]
    shared = set(
        db.session.scalars(
            select(Scope.name).where(
                Scope.organization_id == actor.organization_id,
                Scope.name.in_(new),
                Scope.resource_id.is_(None),
                Scope.is_identity.is_(False),
            )
        )
    )
    if shared:
        message = "This scope belongs to no API. It needs the permission resources:write or clients:trust."
        raise Forbidden(
            "Only those who manage all APIs can give a client that acts without users scopes of no API. "
            "Ask an administrator to add them.",
            permission="resources:write",
            errors=[_scope_error(after, name, "not_allowed", message) for name in new if name in shared],
        )


def require_client_within_permissions(actor: Actor, row: Client) -> None:
    """Raise Forbidden if the client has management scopes that the actor lacks.

    Anyone who can change the client's secrets or redirect URIs could use those scopes.
    """
    scopes = [scope for scope in row.document.get("scopes", ()) if scope in ALL_PERMISSIONS]
    missing = [] if actor.kind == "system" else missing_permissions(actor.permissions, scopes)
    if missing:
        raise Forbidden(
            lazy_gettext(
                "This client has permissions that you don't have: %(missing)s.", missing=", ".join(missing)
            ),
            permission=missing[0],
        )


def _require_grant_permission(
    actor: Actor, metadata: ClientMetadata, scopes: list[str], *, is_root: bool
) -> None:
    if not scopes:
        return
    if not actor.has_permission("clients:trust"):
        raise Forbidden(
            lazy_gettext(
                "To grant a client %(scopes)s you need the permission clients:trust.",
                scopes=", ".join(scopes),
            ),
            permission="clients:trust",
            errors=[_scope_error(metadata, scopes[0], "not_allowed", "This scope manages the organization.")],
        )
    if not is_root and any(scope in ROOT_ONLY for scope in scopes):
        errors = [
            _scope_error(
                metadata, scope, "invalid_scope", "Only clients of the root organization can have this scope."
            )
            for scope in scopes
            if scope in ROOT_ONLY
        ]
        raise InvalidInput.of(errors)
    missing = [] if actor.kind == "system" else missing_permissions(actor.permissions, scopes)
    if missing:
        raise Forbidden(
            lazy_gettext(
                "You can't grant permissions that you don't have: %(missing)s.", missing=", ".join(missing)
            ),
            permission=missing[0],
            errors=[
                _scope_error(metadata, missing[0], "not_allowed", "You do not have this permission yourself.")
            ],
        )


def _find_unknown(actor: Actor, names: list[str], granted: Collection[str]) -> list[str]:
    if not names:
        return []
    found = {scope.name for scope in list_offered_scopes(actor, also=granted)}
    return [name for name in names if name not in found]


def _unknown_scope_errors(actor: Actor, metadata: ClientMetadata, unknown: list[str]) -> list[FieldError]:
    listed = [scope.name for scope in list_offered_scopes(actor)]
    names = ", ".join(listed[:_MAX_LISTED_SCOPES]) + (", …" if len(listed) > _MAX_LISTED_SCOPES else "")
    message = f"This scope does not exist in the organization. Existing scopes: {names}."
    return [_scope_error(metadata, name, "unknown_scope", message) for name in unknown]


def _scope_error(metadata: ClientMetadata, scope: str, code: str, message: str) -> FieldError:
    return FieldError(f"scopes[{metadata.scopes.index(scope)}]", code, message)


def _validate_list_parameters(filters: Mapping[str, str], sort: str) -> None:
    errors = []
    for name, value in filters.items():
        allowed = FILTERS.get(name)
        if allowed is None:
            errors.append(FieldError(name, "unknown_parameter", "There is no such filter."))
        elif value not in allowed:
            errors.append(
                FieldError(
                    name,
                    "not_allowed",
                    lazy_gettext("This must be one of: %(allowed)s.", allowed=", ".join(allowed)),
                )
            )
    if sort not in SORTS:
        errors.append(
            FieldError(
                "sort", "not_allowed", lazy_gettext("This must be one of: %(sorts)s.", sorts=", ".join(SORTS))
            )
        )
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


def _sort_columns(sort: str) -> tuple[Any, ...]:
    return (Client.name_key, Client.id) if sort.endswith("name") else (Client.id,)


def _cursor_key(row: Any, sort: str) -> CursorKey:
    return (row.name_key, encode_uuid(row.id)) if sort.endswith("name") else (encode_uuid(row.id),)
