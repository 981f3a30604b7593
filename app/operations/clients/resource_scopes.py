"""The scopes of one resource: added, reworded and removed as its document says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import String, delete, func, literal, or_, select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.client import DELETED, Client, Scope
from app.models.resource import Resource
from app.operations.clients.client_records import change_row, still_changing
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, is_duplicate_key
from app.rules.actor import Actor
from app.rules.clients.resource_fields import ScopeWords
from app.rules.errors import Conflict, FieldError, InvalidInput
from app.rules.identifiers import format_client_id, new_id

MOST_HOLDERS = 500
_MOST_RACES = 10
_LISTS = ("scopes", "optional_scopes", "approved_scopes", "resources")


class InUse(Conflict):
    """Clients hold what would be taken away; ``details`` say how many. Confirming takes it from them, too."""

    code = "in_use"

    def __init__(self, clients: int, is_many: bool) -> None:
        counted = f"{MOST_HOLDERS} clients or more" if is_many else f"{clients} client{'s' * (clients != 1)}"
        words = (
            "Disable the resource, and take it from them first."
            if is_many
            else "Confirm to take it from them."
        )
        super().__init__(f"This is held by {counted}. {words}", details={"clients": clients})


@dataclass(frozen=True, slots=True)
class Holder:
    """A client that holds some of it."""

    client_id: str
    name: str


def holders_of(actor: Actor, gone: Collection[str]) -> list[Holder]:
    """The clients that have any of the scopes or identifiers; one more than ``MOST_HOLDERS`` at most."""
    return [Holder(format_client_id(row.organization_id, row.id), row.name) for row in _holding(actor, gone)]


def take_from_clients(actor: Actor, gone: Collection[str], *, confirmed: bool) -> int:
    """No client has any of the scopes or identifiers; part of the transaction under way. Returns how many had.

    Raises InUse when some have and nobody ``confirmed``, or too many have. Audit: ``client.updated`` for each.
    """
    rows = _holding(actor, gone)
    if rows and (not confirmed or len(rows) > MOST_HOLDERS):
        raise InUse(min(len(rows), MOST_HOLDERS), len(rows) > MOST_HOLDERS)
    for row in rows:
        _take(actor, row, gone)
    return len(rows)


def _holding(actor: Actor, gone: Collection[str]) -> list[Client]:
    if not gone:
        return []
    # Registrations are documents: neither scopes nor identifiers hold a character that JSON would write otherwise.
    names = [func.instr(Client.document, literal(f'"{name}"', String())) > 0 for name in gone]
    rows = db.session.scalars(
        select(Client)
        .where(Client.organization_id == actor.organization_id, Client.status != DELETED, or_(*names))
        .order_by(Client.id)
        .limit(MOST_HOLDERS + 1)
        .execution_options(populate_existing=True)
    )
    return [row for row in rows if _without(row.document, gone)]


def _take(actor: Actor, row: Client, gone: Collection[str]) -> None:
    for _ in range(_MOST_RACES):
        changes = _without(row.document, gone)
        if not changes:
            return
        before = {name: row.document[name] for name in changes}
        document = {**row.document, **changes}
        if change_row(row, {"document": document, "updated_at": clock.now()}):
            client_id = format_client_id(row.organization_id, row.id)
            audit.record(
                actor,
                "client.updated",
                target_type="client",
                target_id=client_id,
                before=before,
                after=changes,
            )
            return
        db.session.refresh(row)
    raise still_changing()


def _without(document: dict[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """The lists of the document that differ without what is gone."""
    kept = {name: [item for item in document.get(name) or () if item not in gone] for name in _LISTS}
    return {name: items for name, items in kept.items() if len(items) != len(document.get(name) or ())}


MOST_OF_ORGANIZATION = 1000


def settle_scopes(actor: Actor, row: Resource, wanted: Sequence[ScopeWords], *, confirmed: bool) -> None:
    """The resource has these scopes and no others; part of the transaction under way.

    A scope that belonged to none becomes its own, if the actor may define any resource: clients that hold it get
    tokens for this one from then on. Raises InvalidInput for a scope of another resource, InUse when clients hold
    one that is left out and nobody ``confirmed``, Conflict past 1,000 scopes. Audit: ``scope.added``.
    """
    standing = _own(row)
    known = _known(actor, [words.name for words in wanted])
    _require_free(actor, row, wanted, known)
    names = {words.name for words in wanted}
    remove_scopes(actor, row, [name for name in standing if name not in names], confirmed=confirmed)
    new = [words for words in wanted if words.name not in known]
    _require_room(actor, len(new))
    _add_all(actor, row, new)
    for words in wanted:
        scope = known.get(words.name)
        if scope is not None and not _is(scope, row, words):
            scope.resource_id, scope.title, scope.description = row.id, words.title, words.description
            scope.version += 1


def remove_scopes(actor: Actor, row: Resource, names: Sequence[str], *, confirmed: bool) -> int:
    """The scopes are gone from resource and registry, and from the clients that held them; returns how many did."""
    if not names:
        return 0
    holders = take_from_clients(actor, names, confirmed=confirmed)
    forget_scopes(row, names)
    return holders


def forget_scopes(row: Resource, names: Sequence[str]) -> None:
    """The registry does not have the resource's scopes of these names any more."""
    db.session.flush()
    count_changed(
        delete(Scope).where(
            Scope.organization_id == row.organization_id,
            Scope.resource_id == row.id,
            Scope.name.in_(list(names)),
        )
    )


def _is(scope: Scope, row: Resource, words: ScopeWords) -> bool:
    return (scope.resource_id, scope.title, scope.description) == (row.id, words.title, words.description)


def _own(row: Resource) -> list[str]:
    return list(
        db.session.scalars(
            select(Scope.name).where(
                Scope.organization_id == row.organization_id, Scope.resource_id == row.id
            )
        )
    )


def _known(actor: Actor, names: list[str]) -> dict[str, Scope]:
    if not names:
        return {}
    rows = db.session.scalars(
        select(Scope)
        .where(Scope.organization_id == actor.organization_id, Scope.name.in_(names))
        .execution_options(populate_existing=True)
    )
    return {row.name: row for row in rows}


def _require_free(
    actor: Actor, row: Resource, wanted: Sequence[ScopeWords], known: Mapping[str, Scope]
) -> None:
    errors = []
    for position, words in enumerate(wanted):
        scope = known.get(words.name)
        if scope is None or scope.resource_id == row.id:
            continue
        at = f"scopes[{position}].name"
        if scope.resource_id is not None:
            errors.append(FieldError(at, "taken", "This scope belongs to another resource."))
        elif not actor.has_permission("resources:write"):
            message = (
                "This scope is there already. Only somebody who may define any resource gives it to one."
            )
            errors.append(FieldError(at, "taken", message))
    if errors:
        raise InvalidInput.of(errors)


def _require_room(actor: Actor, new: int) -> None:
    if not new:
        return
    there = db.session.scalar(
        select(func.count()).select_from(Scope).where(Scope.organization_id == actor.organization_id)
    )
    if int(there or 0) + new > MOST_OF_ORGANIZATION:
        raise Conflict(f"An organization has at most {MOST_OF_ORGANIZATION} scopes.", code="too_many")


def _add_all(actor: Actor, row: Resource, new: Sequence[ScopeWords]) -> None:
    try:
        with db.session.begin_nested():
            for words in new:
                _add(actor, row, words)
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        raise Conflict("Somebody added one of these scopes just now. Try again.", code="busy") from error


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
            created_by=actor.label[:200] or None,
        )
    )
    audit.record(actor, "scope.added", target_type="scope", target_id=words.name[:64])
