"""Resources: the APIs of an organization, defined, listed, changed and deleted; every face calls these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError

from app.config import current
from app.extensions import db
from app.models.resource import Resource
from app.operations import audit, clock
from app.operations.database_errors import is_duplicate_key
from app.operations.directory import touch_organization
from app.operations.registration.resource_holders import Holder, holders_of, take_from_clients
from app.operations.registration.resource_lists import list_resources
from app.operations.registration.resource_rows import (
    ResourceRecord,
    change_row,
    columns_of,
    get_row,
    records_of,
)
from app.operations.registration.resource_scopes import forget_scopes, settle_scopes
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, PreconditionFailed
from app.rules.identifiers import new_id, public_id
from app.rules.registration.resource_fields import FIELDS, ResourceFields, change, changed_fields, complete

__all__ = [
    "DeletedResource",
    "ResourceRecord",
    "UpdatedResource",
    "define_resource",
    "delete_resource",
    "get_resource",
    "holders_of_resource",
    "list_resources",
    "update_resource",
]

MOST_OF_ORGANIZATION = 200
_MOST_RACES = 10


@dataclass(frozen=True, slots=True)
class UpdatedResource:
    """The resource after a change, and the names of the fields that differ."""

    resource: ResourceRecord
    changed: list[str]


@dataclass(frozen=True, slots=True)
class DeletedResource:
    """How much ended with a resource."""

    scopes: int
    clients: int


@transaction
def define_resource(actor: Actor, fields: Mapping[str, Any]) -> ResourceRecord:
    """The resource stands in the actor's organization with its scopes; clients may ask for it at once.

    Raises InvalidInput naming every wrong field, Forbidden, Conflict when the identifier is taken or there are 200
    resources. Audit: ``resource.defined``.
    """
    actor.require_some("resources:write")
    wanted = complete(fields, current().base_url)
    _require_room(actor)
    now = clock.now()
    row = Resource(
        organization_id=actor.organization_id,
        id=new_id(),
        version=1,
        created_at=now,
        created_by=actor.label[:200] or None,
        created_by_user_id=actor.user_id,
        updated_at=now,
        **columns_of(wanted),
    )
    try:
        with db.session.begin_nested():
            db.session.add(row)
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        raise Conflict(
            "There is a resource with this identifier already.", code="taken", field="identifier"
        ) from error
    settle_scopes(actor, row, wanted.scopes, confirmed=False)
    touch_organization(actor.organization_id)
    _record(actor, "resource.defined", row, after=_facts(wanted, list(FIELDS)))
    db.session.flush()
    return records_of([row])[0]


@read
def get_resource(actor: Actor, resource_id: str) -> ResourceRecord:
    """The resource with its scopes. Raises NotFound, Forbidden."""
    return records_of([get_row(actor, resource_id, "resources:read")])[0]


@transaction
def update_resource(
    actor: Actor,
    resource_id: str,
    fields: Mapping[str, Any],
    *,
    expected_version: int | None = None,
    confirmed: bool = False,
) -> UpdatedResource:
    """The fields sent are replaced, ``null`` returns to the default, the others keep their value.

    A scope that is left out of ``scopes`` is gone, from the clients that held it too when that is ``confirmed``.
    Raises InvalidInput naming every wrong field, NotFound, Forbidden, PreconditionFailed, InUse. Audit:
    ``resource.updated`` with the changed fields.
    """
    for _ in range(_MOST_RACES):
        row = get_row(actor, resource_id, "resources:write")
        _require_version(row, expected_version)
        before = records_of([row])[0]
        after = change(before, fields, current().base_url)
        changed = changed_fields(before, after)
        if not changed:
            return UpdatedResource(before, [])
        if change_row(row, {**columns_of(after), "updated_at": clock.now()}):
            if "scopes" in changed:
                settle_scopes(actor, row, after.scopes, confirmed=confirmed)
            touch_organization(actor.organization_id)
            _record(actor, "resource.updated", row, _facts(before, changed), _facts(after, changed))
            db.session.flush()
            db.session.refresh(row)
            return UpdatedResource(records_of([row])[0], changed)
    raise _still_changing()


@transaction
def delete_resource(
    actor: Actor, resource_id: str, *, expected_version: int | None = None, confirmed: bool = False
) -> DeletedResource:
    """The resource and its scopes are gone; no client gets a token for it from now on.

    Clients that hold its scopes or name it lose both when that is ``confirmed``. Tokens for it end by themselves;
    introspection no longer tells its resource servers of them. Raises NotFound, Forbidden, PreconditionFailed,
    InUse. Audit: ``resource.deleted``.
    """
    for _ in range(_MOST_RACES):
        row = get_row(actor, resource_id, "resources:write")
        _require_version(row, expected_version)
        record = records_of([row])[0]
        names = [scope.name for scope in record.scopes]
        if not change_row(row, {"updated_at": clock.now()}):
            continue
        clients = take_from_clients(actor, [*names, row.identifier], confirmed=confirmed)
        forget_scopes(row, names)
        count_changed(
            delete(Resource).where(Resource.organization_id == row.organization_id, Resource.id == row.id)
        )
        touch_organization(actor.organization_id)
        _record(actor, "resource.deleted", row, _facts(record, list(FIELDS)), {"clients": clients})
        return DeletedResource(len(names), clients)
    raise _still_changing()


@read
def holders_of_resource(actor: Actor, resource_id: str) -> list[Holder]:
    """The clients that hold scopes of the resource or name it, at most 501. Raises NotFound, Forbidden."""
    row = get_row(actor, resource_id, "resources:write")
    record = records_of([row])[0]
    return holders_of(actor, [*(scope.name for scope in record.scopes), record.identifier])


def _require_room(actor: Actor) -> None:
    there = db.session.scalar(
        select(func.count()).select_from(Resource).where(Resource.organization_id == actor.organization_id)
    )
    if int(there or 0) >= MOST_OF_ORGANIZATION:
        raise Conflict(f"An organization has at most {MOST_OF_ORGANIZATION} resources.", code="too_many")


def _require_version(row: Resource, expected: int | None) -> None:
    if expected is not None and row.version != expected:
        raise PreconditionFailed("The resource was changed since you read it. Read it again.")


def _still_changing() -> Conflict:
    return Conflict("The resource is being changed by others right now. Try again.", code="busy")


def _facts(fields: ResourceFields, names: list[str]) -> dict[str, Any]:
    values = {name: getattr(fields, name) for name in names}
    if "scopes" in values:
        values["scopes"] = [scope.name for scope in fields.scopes]
    return values


def _record(
    actor: Actor,
    action: str,
    row: Resource,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    audit.record(
        actor,
        action,
        target_type="resource",
        target_id=public_id("res", row.id),
        before=before,
        after=after,
    )
