"""Resources, the APIs of an organization: define, list, update and delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, delete, false, func, literal, or_, select, update

from app.config import current
from app.extensions import db
from app.fast_path.cache import ValidatedCache
from app.fast_path.compiled_query import CompiledQuery
from app.models import client as resource_model
from app.models.base import has_key, is_same
from app.models.client import Resource, Scope
from app.operations.clients.client_access import delete_access_to_resource
from app.operations.clients.client_records import name_key
from app.operations.clients.resource_scopes import (
    ScopeHolder,
    apply_scope_changes,
    delete_scopes,
    find_scope_holders,
    keep_access_of_holders,
    remove_scopes_from_clients,
)
from app.operations.directory.lookups import get_organization_by_id, touch_organization
from app.operations.store import audit, clock
from app.operations.store.rows import (
    MAX_LIMIT,
    Page,
    PageRequest,
    Updated,
    count_rows,
    filter_conditions,
    get_row,
    make_record,
    read_page,
)
from app.operations.store.transactions import OutdatedRead, count_changed, read, savepoint, transaction
from app.rules.actor import Actor
from app.rules.clients.resource_fields import (
    FIELDS,
    STATUS,
    ResourceFields,
    ScopeWords,
    change,
    changed_fields,
    complete,
)
from app.rules.clients.resource_indicators import STORED, Catalog, KnownResource
from app.rules.errors import Busy, Conflict, InvalidInput, NotFound
from app.rules.filters import OF_OWNER, Filters, choice_filter, read_filters, sort_filter
from app.rules.identifiers import HasPublicId, new_id, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.versions import ExpectedVersion, require_version

_RESOURCES = CompiledQuery(
    select(
        Resource.identifier,
        Resource.status,
        Resource.access_token_format,
        Resource.access_token_ttl_seconds,
        Resource.access_policy,
        Resource.access_token_storage,
    ).where(Resource.organization_id == bindparam("organization_id"))
)
_SCOPES = CompiledQuery(
    select(Scope.name, Scope.created_at, Resource.identifier)
    .outerjoin(Resource, is_same(Resource.id, Scope.resource_id))
    .where(Scope.organization_id == bindparam("organization_id"))
)
_catalogs: ValidatedCache[Catalog] = ValidatedCache()
_EMPTY_CATALOG = Catalog()
FILTERS: Filters = {
    "status": choice_filter(STATUS, "Resources with this status."),
    "owner_id": OF_OWNER,
    "sort": sort_filter("name"),
}
MAX_RESOURCES = 200


class ResourceRecord(HasPublicId, ResourceFields, frozen=True, kw_only=True):
    """A resource as administrators and developers see it. ``organization_id`` is the organization's key."""

    id_prefix = "res"
    id: UUID
    organization_id: str
    version: int
    created_at: datetime
    created_by: str | None
    owner_id: UUID | None
    updated_at: datetime


class DeletedResource(Struct, frozen=True):
    """Numbers of scopes deleted with a resource, and of clients that lost them."""

    scopes: int
    clients: int


@read
def list_resources(
    actor: Actor,
    page_request: PageRequest = PageRequest(),
    *,
    query: str | None = None,
    filters: Mapping[str, str] = {},
) -> Page[ResourceRecord]:
    """List the resources that the actor can see by name: all, or with ``resources:read:own`` the actor's own.

    ``query`` is a part of a name or identifier, ``filters`` are of FILTERS. Raises InvalidInput, Forbidden.
    """
    actor.require_for_own("resources:read")
    values = read_filters(actor, FILTERS, filters)
    _, descending = values.pop("sort")
    statement = select(Resource).where(
        Resource.organization_id == actor.organization_id, *filter_conditions(Resource, values)
    )
    if not actor.has_permission("resources:read"):
        own = false() if actor.user_id is None else Resource.owner_id == actor.user_id
        statement = statement.where(own)
    if query:
        # INSTR compares bytes on both engines and knows no wildcards to escape.
        by_name = func.instr(Resource.name_key, literal(name_key(query), Resource.name_key.type)) > 0
        by_identifier = func.instr(Resource.identifier, literal(query, Resource.identifier.type)) > 0
        statement = statement.where(or_(by_name, by_identifier))
    page = read_page(statement, (Resource.name_key, Resource.id), page_request, descending=descending)
    return Page(tuple(to_resource_records(page.items)), page.next_cursor_key)


@read
def get_resource(actor: Actor, resource_id: str) -> ResourceRecord:
    """Return the resource with its scopes. Raises NotFound, Forbidden."""
    return to_resource_records([get_resource_row(actor, resource_id, "resources:read")])[0]


@transaction
def define_resource(actor: Actor, fields: Mapping[str, Any]) -> ResourceRecord:
    """Create a resource with its scopes in the actor's organization.

    Raises InvalidInput naming every wrong field, also for an identifier that clients have if the actor cannot manage
    all resources, Forbidden, Conflict if the identifier is taken or there are 200 resources. Audit:
    ``resource.defined``.
    """
    actor.require_for_own("resources:write")
    wanted = complete(fields, current().base_url, allow_unstored=_allows_unstored(actor))
    touch_organization(actor.organization_id)
    _enforce_resource_limit(actor)
    _require_free_identifier(actor, wanted.identifier)
    now = clock.now()
    row = Resource(
        organization_id=actor.organization_id,
        id=new_id(),
        version=1,
        created_at=now,
        created_by=actor.author,
        owner_id=actor.user_id,
        updated_at=now,
        **_to_columns(wanted),
    )
    duplicate = Conflict("A resource with this identifier already exists.", code="taken", field="identifier")
    with savepoint(on_duplicate=duplicate):
        db.session.add(row)
    apply_scope_changes(actor, row, wanted.scopes, confirmed=False)
    keep_access_of_holders(actor, row)
    record_resource_change(actor, "resource.defined", row, after=_audit_values(wanted, list(FIELDS)))
    db.session.flush()
    return to_resource_records([row])[0]


@transaction
def update_resource(
    actor: Actor,
    resource_id: str,
    fields: Mapping[str, Any],
    *,
    expected_version: ExpectedVersion = None,
    confirmed: bool = False,
) -> Updated[ResourceRecord]:
    """Replace the given fields. ``null`` restores a default, and fields not given keep their value.

    A scope left out of ``scopes`` is deleted, and removed from clients that have it if ``confirmed``. Raises
    InvalidInput naming every wrong field, NotFound, Forbidden, PreconditionFailed, ScopesInUse. Audit:
    ``resource.updated`` with the changed fields, and as ``apply_scope_changes``.
    """
    row = get_resource_row(actor, resource_id, "resources:write")
    require_version(row.version, expected_version)
    before = to_resource_records([row])[0]
    after = change(before, fields, current().base_url, allow_unstored=_allows_unstored(actor))
    changed = changed_fields(before, after)
    if not changed:
        return Updated(before, [])
    touch_organization(actor.organization_id)
    update_resource_row(row, **_to_columns(after), updated_at=clock.now())
    if "scopes" in changed:
        apply_scope_changes(actor, row, after.scopes, confirmed=confirmed)
    record_resource_change(
        actor,
        "resource.updated",
        row,
        before=_audit_values(before, changed),
        after=_audit_values(after, changed),
    )
    db.session.flush()
    db.session.refresh(row)
    return Updated(to_resource_records([row])[0], changed)


@transaction
def delete_resource(
    actor: Actor, resource_id: str, *, expected_version: ExpectedVersion = None, confirmed: bool = False
) -> DeletedResource:
    """Delete the resource and its scopes. Clients can no longer get tokens for it.

    If ``confirmed``, the resource and its scopes are removed from clients that have them. Issued tokens
    remain valid until they expire, but introspection no longer shows them to its resource servers. Raises
    NotFound, Forbidden, PreconditionFailed, ScopesInUse. Audit: ``resource.deleted``, ``scope.deleted``.
    """
    row = get_resource_row(actor, resource_id, "resources:write")
    require_version(row.version, expected_version)
    record = to_resource_records([row])[0]
    names = [scope.name for scope in record.scopes]
    touch_organization(actor.organization_id)
    update_resource_row(row, updated_at=clock.now())
    delete_scopes(actor, row, names)
    clients = remove_scopes_from_clients(actor, [*names, row.identifier], confirmed=confirmed)
    delete_access_to_resource(row)
    count_changed(delete(Resource).where(has_key(Resource, row.organization_id, row.id)))
    record_resource_change(
        actor,
        "resource.deleted",
        row,
        before=_audit_values(record, list(FIELDS)),
        after={"clients": clients},
    )
    return DeletedResource(len(names), clients)


@read
def list_selectable_resources(actor: Actor) -> tuple[ResourceRecord, ...]:
    """Return the first resources by name for a form, or none if the actor can see none."""
    return (
        list_resources(actor, PageRequest(MAX_LIMIT), filters={"status": "active"}).items
        if actor.has_permission_for_own("resources:read")
        else ()
    )


@read
def list_resource_holders(actor: Actor, resource_id: str) -> list[ScopeHolder]:
    """List the clients that have the resource or one of its scopes, at most 501.

    Raises NotFound, Forbidden.
    """
    row = get_resource_row(actor, resource_id, "resources:write")
    record = to_resource_records([row])[0]
    return find_scope_holders(actor, [*(scope.name for scope in record.scopes), record.identifier])


def get_catalog(organization_id: str) -> Catalog:
    """Return the organization's resources and their scopes. Usually cached, without a query."""
    cached = _catalogs.get(organization_id)
    if cached is not None:
        return cached
    return _catalogs.load(organization_id, load=lambda: _read_catalog(organization_id)) or _EMPTY_CATALOG


def get_resource_row(actor: Actor, resource_id: str, permission: str) -> Resource:
    """Return the resource's row for an actor with the permission.

    Raises Forbidden before querying, and NotFound for a resource that does not exist, belongs to another
    organization or, for an actor with only ``:own``, to another user.
    """
    actor.require_for_own(permission)
    key = has_key(Resource, actor.organization_id, parse_public_id("res", resource_id))
    row: Resource = get_row(select(Resource).where(key), "There is no such resource.")
    if not actor.has_permission(permission, owner_id=row.owner_id):
        if not actor.has_permission("resources:read", owner_id=row.owner_id):
            raise NotFound("There is no such resource.")
        actor.require(permission, owner_id=row.owner_id)
    return row


def update_resource_row(row: Resource, **values: Any) -> None:
    """Set the values and raise the version. Raises OutdatedRead if the row was changed since it was read."""
    statement = (
        update(Resource)
        .where(has_key(Resource, row.organization_id, row.id), Resource.version == row.version)
        .values(**values, version=row.version + 1)
    )
    if count_changed(statement) != 1:
        raise OutdatedRead(Busy("The resource is being changed by others right now. Try again."))


def _to_columns(fields: ResourceFields) -> dict[str, Any]:
    """Return the columns that store the fields. Scopes have rows of their own."""
    values = {name: getattr(fields, name) for name in FIELDS if name != "scopes"}
    return values | {"name_key": name_key(fields.name)}


def to_resource_records(rows: Sequence[Resource]) -> list[ResourceRecord]:
    """Return the rows as records, with one query for all scopes."""
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
    return [make_record(ResourceRecord, row, scopes=tuple(scopes[row.id])) for row in rows]


def scope_names_of(row: Resource) -> frozenset[str]:
    """Return the names of the resource's scopes."""
    return frozenset(scope.name for scope in to_resource_records([row])[0].scopes)


def _read_catalog(organization_id: str) -> Catalog:
    resources = {
        identifier: KnownResource(identifier, status == resource_model.ACTIVE, *settings)
        for identifier, status, *settings in _RESOURCES.rows(organization_id=organization_id)
    }
    owners: dict[str, str] = {}
    created: dict[str, datetime] = {}
    for scope, created_at, identifier in _SCOPES.rows(organization_id=organization_id):
        created[scope] = created_at
        if identifier is not None:
            owners[scope] = identifier
    return Catalog(resources, owners, created)


def _enforce_resource_limit(actor: Actor) -> None:
    if (
        count_rows(select(Resource.id).where(Resource.organization_id == actor.organization_id))
        >= MAX_RESOURCES
    ):
        raise Conflict(
            lazy_gettext("An organization has at most %(max)s resources.", max=MAX_RESOURCES), code="too_many"
        )


def _require_free_identifier(actor: Actor, identifier: str) -> None:
    """Raise InvalidInput if clients have the identifier and the actor cannot manage all resources.

    An administrator gave it to them, for an API without an entry here. The owner of an entry decides who gets tokens
    for that API, and can remove it from clients.
    """
    if not actor.has_permission("resources:write") and find_scope_holders(actor, [identifier]):
        raise InvalidInput(
            "Clients have this identifier already. You need the permission resources:write for all resources.",
            field="identifier",
            code="taken",
        )


def offers_token_storage(actor: Actor, current: str) -> bool:
    """Return whether an API whose tokens are stored as ``current`` may choose: always back to ``stored``."""
    return current != STORED or _allows_unstored(actor)


def _allows_unstored(actor: Actor) -> bool:
    settings = get_organization_by_id(actor.organization_id).settings
    return bool(settings["oauth"]["access_token"]["allow_unstored"])


def _audit_values(fields: ResourceFields, names: list[str]) -> dict[str, Any]:
    values = {name: getattr(fields, name) for name in names}
    if "scopes" in values:
        values["scopes"] = [scope.name for scope in fields.scopes]
    return values


def record_resource_change(actor: Actor, action: str, row: Resource, **values: Any) -> None:
    audit.record(actor, action, "resource", public_id("res", row.id), **values)
