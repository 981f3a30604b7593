"""Changes of the scopes of a resource, and deletion of scopes: what clients have of them goes, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, String, delete, func, literal, or_, select

from app.extensions import db
from app.models.client import DELETED, Client, Resource, Scope
from app.operations.clients.client_access import grant_adopted_access, remove_scopes_from_access
from app.operations.clients.client_records import update_client_row
from app.operations.clients.scopes import enforce_scope_limit, find_scope
from app.operations.directory.lookups import get_organization_by_id, touch_organization
from app.operations.store import audit, clock
from app.operations.store.transactions import OutdatedRead, count_changed, read, savepoint, transaction
from app.rules.actor import Actor
from app.rules.clients.client_types import GRANTS_WITHOUT_CONSENT
from app.rules.clients.resource_fields import ScopeWords
from app.rules.directory.attributes import attributes_of
from app.rules.errors import Busy, Conflict, FieldError, InvalidInput
from app.rules.identifiers import format_client_id, new_id
from app.rules.languages.translation import lazy_gettext
from app.rules.versions import ExpectedVersion, require_version

MAX_HOLDERS = 500
_LISTS = ("scopes", "optional_scopes", "approved_scopes", "resources")


class ScopesInUse(Conflict):
    """Clients have what would be removed. ``details`` contain how many. Confirming removes it from them, too."""

    code = "in_use"

    def __init__(self, clients: int, is_many: bool) -> None:
        counted = f"{MAX_HOLDERS} clients or more" if is_many else f"{clients} client{'s' * (clients != 1)}"
        advice = (
            "Disable the resource and remove it from them first."
            if is_many
            else "Confirm to remove it from them."
        )
        super().__init__(f"This is used by {counted}. {advice}", details={"clients": clients})


class ScopeHolder(Struct, frozen=True):
    """A client that has at least one of the scopes or resources."""

    client_id: str
    name: str


def apply_scope_changes(
    actor: Actor, row: Resource, wanted: Sequence[ScopeWords], *, confirmed: bool
) -> None:
    """Make these the scopes of the resource, in the current transaction.

    An existing scope without a resource is assigned to this one if the actor can manage all resources.
    Clients that have it then get tokens for this resource, and keep it for tokens without a user's consent. Raises
    InvalidInput for a scope of another resource, or of an attribute of users unless the actor can manage all resources,
    ScopesInUse if clients have a removed one and it is not ``confirmed``, Conflict past 1,000 scopes or if more than
    500 clients would have to be given access. Audit: ``scope.added``, ``scope.updated`` for other texts,
    ``scope.deleted``, ``client_access.granted``.
    """
    existing = _scope_names(row)
    known = _find_scopes(actor, [words.name for words in wanted])
    _require_available(actor, row, wanted, known)
    names = {words.name for words in wanted}
    # Scopes before clients, in the order of locks: a client that is given a new scope adds it first.
    removed = [name for name in existing if name not in names]
    delete_scopes(actor, row, removed)
    new = [words for words in wanted if words.name not in known]
    enforce_scope_limit(actor.organization_id, len(new))
    _add_all(actor, row, new)
    adopted = [name for name, scope in known.items() if scope.resource_id is None]
    for words in wanted:
        scope = known.get(words.name)
        if scope is not None and not _is_unchanged(scope, row, words):
            _record_other_texts(actor, scope, words)
            scope.resource_id, scope.title, scope.description = row.id, words.title, words.description
            scope.version += 1
    db.session.flush()
    if removed:
        remove_scopes_from_clients(actor, removed, confirmed=confirmed)
        remove_scopes_from_access(row, removed)
    if adopted:
        grant_adopted_access(actor, row, _find_machine_rows(actor, adopted), adopted)


def delete_scopes(actor: Actor, row: Resource, names: Sequence[str]) -> None:
    """Delete the resource's scopes with these names. The caller then removes them from clients and their access.

    Audit: ``scope.deleted`` for each.
    """
    if not names:
        return
    db.session.flush()
    for name, scope in sorted(_find_scopes(actor, list(names)).items()):
        audit.record(actor, "scope.deleted", "scope", name[:64], before=_texts_of(scope))
    count_changed(
        delete(Scope).where(
            Scope.organization_id == row.organization_id,
            Scope.resource_id == row.id,
            Scope.name.in_(list(names)),
        )
    )


@transaction
def delete_scope(
    actor: Actor, name: str, *, expected_version: ExpectedVersion = None, confirmed: bool = False
) -> int:
    """Delete a scope of no resource. If ``confirmed``, remove it from the clients that have it; return how many.

    Tokens keep the scope until they expire. Raises NotFound, Forbidden, PreconditionFailed, ScopesInUse, and Conflict
    for a scope of a resource or of OpenID Connect. Audit: ``scope.deleted``, and ``client.updated`` for each client.
    """
    actor.require("resources:write")
    scope = find_scope(actor, name)
    require_version(scope.version, expected_version)
    if scope.resource_id is not None:
        raise Conflict("This scope belongs to an API. Remove it there.", code="belongs_to_resource")
    if scope.is_identity:
        raise Conflict("OpenID Connect defines this scope. It cannot be deleted.", code="built_in_scope")
    touch_organization(actor.organization_id)
    deleted = count_changed(
        delete(Scope).where(
            Scope.organization_id == actor.organization_id,
            Scope.name == name,
            Scope.version == scope.version,
            Scope.resource_id.is_(None),
        )
    )
    if deleted != 1:
        raise OutdatedRead
    clients = remove_scopes_from_clients(actor, [name], confirmed=confirmed)
    texts = {"title": scope.title, "description": scope.description}
    audit.record(actor, "scope.deleted", "scope", name[:64], before=texts, after={"clients": clients})
    return clients


@read
def list_scope_holders(actor: Actor, name: str) -> list[ScopeHolder]:
    """List the clients that have the scope, at most ``MAX_HOLDERS`` + 1. Raises Forbidden."""
    actor.require("resources:write")
    return find_scope_holders(actor, [name])


def find_scope_holders(actor: Actor, removed: Collection[str]) -> list[ScopeHolder]:
    """List the clients that have any of the scopes or identifiers, at most ``MAX_HOLDERS`` + 1."""
    return [to_scope_holder(row) for row in find_holder_rows(actor, removed)]


def to_scope_holder(row: Client) -> ScopeHolder:
    """Return what is shown of a client that has a scope or resource."""
    return ScopeHolder(format_client_id(row.organization_id, row.id), row.name)


def keep_access_of_holders(actor: Actor, row: Resource) -> None:
    """Give clients that already have the new resource among their own the access to it.

    Raises Conflict if more than 500 clients get tokens for it without a user's consent.
    """
    grant_adopted_access(actor, row, _find_machine_rows(actor, [row.identifier]), ())


def remove_scopes_from_clients(actor: Actor, removed: Collection[str], *, confirmed: bool) -> int:
    """Remove the scopes or identifiers from every client. Return how many clients had them.

    Runs in the current transaction. Raises ScopesInUse if clients have them and it is not ``confirmed``, or
    too many have. Audit: ``client.updated`` for each.
    """
    rows = find_holder_rows(actor, removed)
    if rows and (not confirmed or len(rows) > MAX_HOLDERS):
        raise ScopesInUse(min(len(rows), MAX_HOLDERS), len(rows) > MAX_HOLDERS)
    for row in rows:
        _remove_from_client(actor, row, removed)
    return len(rows)


def _find_machine_rows(actor: Actor, names: Collection[str]) -> list[Client]:
    """Return the clients that use the scopes or identifiers without a user's consent. Raises Conflict past 500."""
    rows = find_holder_rows(actor, names, _contains_one_of(GRANTS_WITHOUT_CONSENT))
    if len(rows) > MAX_HOLDERS:
        raise Conflict(
            lazy_gettext(
                "More than %(max)s clients that act without users have this. Remove it from some of them first.",
                max=MAX_HOLDERS,
            ),
            code="too_many_clients",
        )
    return rows


def _contains_one_of(names: Collection[str]) -> ColumnElement[bool]:
    # Metadata is stored as JSON. Neither scopes nor identifiers contain characters that JSON would escape.
    return or_(*(func.instr(Client.document, literal(f'"{name}"', String())) > 0 for name in names))


def find_holder_rows(
    actor: Actor, removed: Collection[str], *conditions: ColumnElement[bool]
) -> list[Client]:
    """Return the rows of the clients that have any of the scopes or identifiers, at most ``MAX_HOLDERS`` + 1."""
    found: list[Client] = []
    last: Client | None = None
    while removed and len(found) <= MAX_HOLDERS:
        after = () if last is None else (Client.id > last.id,)
        rows = _find_mentioning(actor, removed, *conditions, *after)
        # Other fields may have the same text, such as the response type "code".
        found += (row for row in rows if _changed_lists(row.document, removed))
        if len(rows) <= MAX_HOLDERS:
            break
        last = rows[-1]
    return found[: MAX_HOLDERS + 1]


def _find_mentioning(
    actor: Actor, names: Collection[str], *conditions: ColumnElement[bool]
) -> Sequence[Client]:
    """Return the first ``MAX_HOLDERS`` + 1 clients whose metadata have one of the names, in whichever field."""
    return db.session.scalars(
        select(Client)
        .where(
            Client.organization_id == actor.organization_id,
            Client.status != DELETED,
            _contains_one_of(names),
            *conditions,
        )
        .order_by(Client.id)
        .limit(MAX_HOLDERS + 1)
        .execution_options(populate_existing=True)
    ).all()


def _remove_from_client(actor: Actor, row: Client, removed: Collection[str]) -> None:
    changes = _changed_lists(row.document, removed)
    before = {name: row.document[name] for name in changes}
    update_client_row(row, document={**row.document, **changes}, updated_at=clock.now())
    client_id = format_client_id(row.organization_id, row.id)
    audit.record(actor, "client.updated", "client", client_id, before=before, after=changes)


def _changed_lists(document: dict[str, Any], removed: Collection[str]) -> dict[str, Any]:
    """Return the lists of the document that change when these names are removed."""
    remaining = {name: [item for item in document.get(name) or () if item not in removed] for name in _LISTS}
    return {name: items for name, items in remaining.items() if len(items) != len(document.get(name) or ())}


def _texts_of(scope: Scope | ScopeWords) -> dict[str, str | None]:
    return {"title": scope.title, "description": scope.description}


def _record_other_texts(actor: Actor, scope: Scope, words: ScopeWords) -> None:
    """Record the texts of a scope that change: users read them when they consent. Audit: ``scope.updated``."""
    before, after = _texts_of(scope), _texts_of(words)
    changed = [name for name in after if before[name] != after[name]]
    if changed:
        old, new = ({name: texts[name] for name in changed} for texts in (before, after))
        audit.record(actor, "scope.updated", "scope", words.name[:64], before=old, after=new)


def _is_unchanged(scope: Scope, row: Resource, words: ScopeWords) -> bool:
    return (scope.resource_id, scope.title, scope.description) == (row.id, words.title, words.description)


def _scope_names(row: Resource) -> list[str]:
    return list(
        db.session.scalars(
            select(Scope.name).where(
                Scope.organization_id == row.organization_id, Scope.resource_id == row.id
            )
        )
    )


def _find_scopes(actor: Actor, names: list[str]) -> dict[str, Scope]:
    if not names:
        return {}
    rows = db.session.scalars(
        select(Scope)
        .where(Scope.organization_id == actor.organization_id, Scope.name.in_(names))
        .execution_options(populate_existing=True)
    )
    return {row.name: row for row in rows}


def _require_available(
    actor: Actor, row: Resource, wanted: Sequence[ScopeWords], known: Mapping[str, Scope]
) -> None:
    errors = []
    manages_all = actor.has_permission("resources:write")
    # Perhaps only the settings know such a scope. Its title says what users allow.
    releasing = () if manages_all else _scopes_of_attributes(actor)
    for position, words in enumerate(wanted):
        scope = known.get(words.name)
        if scope is not None and scope.resource_id == row.id:
            continue
        at = f"scopes[{position}].name"
        if scope is not None and scope.resource_id is not None:
            errors.append(FieldError(at, "taken", "This scope belongs to another resource."))
        elif scope is not None and not manages_all:
            message = "This scope exists already. You need the permission resources:write for all resources to use it."
            errors.append(FieldError(at, "taken", message))
        elif words.name in releasing:
            message = (
                "This scope releases attributes of users. You need the permission resources:write for all "
                "resources to use it."
            )
            errors.append(FieldError(at, "taken", message))
    if errors:
        raise InvalidInput.of(errors)


def _scopes_of_attributes(actor: Actor) -> frozenset[str]:
    settings = get_organization_by_id(actor.organization_id).settings
    return frozenset(attribute.scope for attribute in attributes_of(settings))


def _add_all(actor: Actor, row: Resource, new: Sequence[ScopeWords]) -> None:
    duplicate = Busy("One of these scopes was added at the same time. Try again.")
    with savepoint(on_duplicate=duplicate):
        for words in new:
            _add(actor, row, words)


def _add(actor: Actor, row: Resource, words: ScopeWords) -> None:
    db.session.add(
        Scope(
            organization_id=row.organization_id,
            id=new_id(),
            name=words.name,
            title=words.title,
            description=words.description,
            resource_id=row.id,
            created_at=clock.now(),
            created_by=actor.author,
        )
    )
    audit.record(actor, "scope.added", "scope", words.name[:64])
