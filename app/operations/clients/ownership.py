"""Owners of clients and APIs: users who manage them with the ``:own`` form of a permission.

Who registers a client or creates an API is its first owner. What a deleted user owned stays theirs until somebody with
the permission for everything names another owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Select, func, literal, select, true

from app.extensions import db
from app.models.client import DELETED, Client, Resource
from app.operations.clients.client_permissions import require_client_within_permissions
from app.operations.clients.client_records import (
    get_client_row,
    load_client_row,
    to_client_record,
    update_client_row,
)
from app.operations.clients.clients import UpdatedClient
from app.operations.clients.resources import (
    ResourceRecord,
    get_resource_row,
    record_resource_change,
    to_resource_records,
    update_resource_row,
)
from app.operations.directory.lookups import (
    get_organization_by_id,
    get_root_organization,
    get_user_permissions,
)
from app.operations.directory.users import SentUser, UserSnapshot, find_sent_user, get_user, parse_user_id
from app.operations.mail.notices import notify_user
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock
from app.operations.store.rows import Updated
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.directory.permissions import has_permission
from app.rules.errors import Conflict, InvalidInput, NotFound
from app.rules.identifiers import format_client_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.shapes import parse_shape
from app.rules.versions import ExpectedVersion, require_version

_BATCH = 100
_TRANSFER_PERMISSIONS = ("clients:write", "resources:write", "users:read")


class NewOwner(SentUser):
    """The new owner. Send either `user_id` or `email`."""


class Owner(Struct, frozen=True):
    """The owner of a client or API.

    ``email`` is None if the user was deleted. ``is_member`` says that they are of the organization, not of root.
    """

    id: UUID
    public_id: str
    email: str | None
    is_member: bool


class Owned(Struct, frozen=True):
    """How many clients and APIs a user owns, or got a new owner."""

    clients: int
    resources: int


@transaction
def change_client_owner(
    actor: Actor, client_id: str, fields: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> UpdatedClient:
    """Make another user the owner of a client and notify them. Its secrets and tokens stay valid.

    ``fields`` have the shape of ``NewOwner``. Raises InvalidInput for a user who can't register clients, NotFound,
    Forbidden, Conflict, PreconditionFailed, and FreshSignInRequired. Audit: ``client.updated``.
    """
    row = get_client_row(actor, client_id, "clients:write")
    require_version(row.version, expected_version)
    # Before the new owner is looked up: a request that is refused anyway must not tell who could be an owner.
    require_client_within_permissions(actor, row)
    require_fresh_user_sign_in(actor)
    owner = _find_new_owner(actor, fields, "clients:write")
    if row.owner_id == owner.id:
        return UpdatedClient(to_client_record(row), [], [])
    _set_client_owner(actor, row, owner)
    _notify(actor, owner, [row.name], f"clients/{client_id}")
    return UpdatedClient(to_client_record(load_client_row(actor, client_id)), ["owner_id"], [])


@transaction
def change_resource_owner(
    actor: Actor, resource_id: str, fields: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> Updated[ResourceRecord]:
    """Make another user the owner of an API and notify them. Its tokens, and the access of clients, stay.

    ``fields`` have the shape of ``NewOwner``. Raises InvalidInput for a user who can't create APIs, NotFound,
    Forbidden, Conflict, PreconditionFailed, and FreshSignInRequired. Audit: ``resource.updated``.
    """
    row = get_resource_row(actor, resource_id, "resources:write")
    require_version(row.version, expected_version)
    require_fresh_user_sign_in(actor)
    owner = _find_new_owner(actor, fields, "resources:write")
    if row.owner_id == owner.id:
        return Updated(to_resource_records([row])[0], [])
    _set_resource_owner(actor, row, owner)
    _notify(actor, owner, [row.name], f"apis/{resource_id}")
    db.session.refresh(row)
    return Updated(to_resource_records([row])[0], ["owner_id"])


def transfer_ownership(actor: Actor, user_id: str, fields: Mapping[str, Any]) -> Owned:
    """Make another user the owner of everything that a user owns, in batches. Return how much that was.

    ``user_id`` may be that of a deleted user. ``fields`` have the shape of ``NewOwner``. Call it again after an error
    to transfer the rest. Raises InvalidInput for a user who can't own what there is, NotFound, Forbidden unless the
    actor may change all clients and APIs and list users, Conflict, and FreshSignInRequired. Audit: ``client.updated``
    and ``resource.updated`` for each.
    """
    require_transfer_permission(actor)
    from_id = parse_user_id(user_id)
    owner, counts = _check_transfer(actor, from_id, fields)
    # Clients last, in the order of locks.
    apis = _transfer_all(actor, _RESOURCES, from_id, fields, counts.resources)
    clients = _transfer_all(actor, _CLIENTS, from_id, fields, counts.clients)
    if clients or apis:
        page = "clients" if clients else "apis"
        _notify(actor, owner, clients + apis, f"{page}?owner_id={owner.public_id}")
    return Owned(len(clients), len(apis))


def may_transfer_ownership(actor: Actor) -> bool:
    """Return whether the actor may transfer everything that a user owns."""
    return all(map(actor.has_permission, _TRANSFER_PERMISSIONS))


def require_transfer_permission(actor: Actor) -> None:
    """Raise Forbidden unless the actor may transfer everything that a user owns."""
    for permission in _TRANSFER_PERMISSIONS:
        actor.require(permission)


@read
def count_owned(actor: Actor, user_id: UUID) -> Owned:
    """Count the clients and APIs of a user, or none of those that the actor can neither see nor change."""
    counts = [
        _select_count(actor, kind, user_id).scalar_subquery()
        if any(actor.has_permission(name, owner_id=user_id) for name in (kind.read, kind.write))
        else literal(0)
        for kind in (_CLIENTS, _RESOURCES)
    ]
    return Owned(*db.session.execute(select(*counts)).one())


@read
def find_owner(actor: Actor, owner_id: UUID | None) -> Owner | None:
    """Return the owner of a client or API that the actor can see, or None if it has none."""
    if owner_id is None:
        return None
    for is_member in (True, False):
        try:
            organization_id = actor.organization_id if is_member else get_root_organization().id
            user = get_user(organization_id, owner_id)
        except NotFound:
            continue
        return Owner(owner_id, user.public_id, user.email, is_member)
    return Owner(owner_id, public_id("usr", owner_id), None, is_member=False)


def find_known_owner(actor: Actor, owner_id: UUID) -> Owner | None:
    """Return the user of an ID that anybody may have sent, or None unless the actor may list users or is that user."""
    may_know = actor.has_permission("users:read") or owner_id == actor.user_id
    return find_owner(actor, owner_id) if may_know else None


@transaction
def _check_transfer(actor: Actor, from_id: UUID, fields: Mapping[str, Any]) -> tuple[UserSnapshot, Owned]:
    """Raise what prevents the transfer of anything before the first is transferred, or return the owner and counts."""
    require_fresh_user_sign_in(actor)
    owned = Owned(
        *(db.session.scalar(_select_count(actor, kind, from_id)) or 0 for kind in (_CLIENTS, _RESOURCES))
    )
    needed = [
        kind.write for kind, count in ((_CLIENTS, owned.clients), (_RESOURCES, owned.resources)) if count
    ]
    if not needed:
        get_user(actor.organization_id, from_id)
    owner = _find_new_owner(actor, fields, *(needed or [_CLIENTS.write]), other_than=from_id)
    for row in db.session.execute(
        select(Client.name, Client.document).where(*_is_owned(actor, _CLIENTS, from_id))
    ):
        require_client_within_permissions(actor, row)
    return owner, owned


def _transfer_all(
    actor: Actor, kind: _Kind, from_id: UUID, fields: Mapping[str, Any], count: int
) -> list[str]:
    """Transfer what the user owned at the beginning, and return the names."""
    moved: list[str] = []
    while len(moved) < count and (names := _transfer_batch(actor, kind, from_id, fields)):
        moved += names
    return moved


@transaction
def _transfer_batch(actor: Actor, kind: _Kind, from_id: UUID, fields: Mapping[str, Any]) -> list[str]:
    statement = (
        select(kind.model).where(*_is_owned(actor, kind, from_id)).order_by(kind.model.id).limit(_BATCH)
    )
    rows = list(db.session.scalars(statement, execution_options={"populate_existing": True}))
    if rows:
        owner = _find_new_owner(actor, fields, kind.write, other_than=from_id)
        for row in rows:
            kind.set_owner(actor, row, owner)
    return [row.name for row in rows]


def _select_count(actor: Actor, kind: _Kind, owner_id: UUID) -> Select[int]:
    return select(func.count()).where(*_is_owned(actor, kind, owner_id))


def _is_owned(actor: Actor, kind: _Kind, owner_id: UUID) -> tuple[Any, ...]:
    model = kind.model
    return model.organization_id == actor.organization_id, model.owner_id == owner_id, kind.exists


def _set_client_owner(actor: Actor, row: Client, owner: UserSnapshot) -> None:
    require_client_within_permissions(actor, row)
    before = _owner_value(row.owner_id)
    update_client_row(row, owner_id=owner.id, updated_at=clock.now())
    client_id = format_client_id(row.organization_id, row.id)
    audit.record(actor, "client.updated", "client", client_id, before=before, after=_owner_value(owner.id))


def _set_resource_owner(actor: Actor, row: Resource, owner: UserSnapshot) -> None:
    before = _owner_value(row.owner_id)
    update_resource_row(row, owner_id=owner.id, updated_at=clock.now())
    record_resource_change(actor, "resource.updated", row, before=before, after=_owner_value(owner.id))


class _Kind(Struct, frozen=True):
    """Clients or APIs: the model, which of its rows count, and the permissions to see and to change all of them."""

    model: Any
    exists: Any
    read: str
    write: str
    set_owner: Callable[[Actor, Any, UserSnapshot], None]


_CLIENTS = _Kind(Client, Client.status != DELETED, "clients:read", "clients:write", _set_client_owner)
_RESOURCES = _Kind(Resource, true(), "resources:read", "resources:write", _set_resource_owner)


def _owner_value(owner_id: UUID | None) -> dict[str, Any]:
    return {"owner_id": owner_id and public_id("usr", owner_id)}


def _find_new_owner(
    actor: Actor, fields: Mapping[str, Any], *permissions: str, other_than: UUID | None = None
) -> UserSnapshot:
    """Return the user whom the request names, locked, if they may have things of their own with the permissions.

    Who can't list users learns no more than that a user can't be an owner, also if there is no such user.
    """
    sent = parse_shape(NewOwner, fields)
    field = "email" if sent.user_id is None else "user_id"
    try:
        # Shared: a code of theirs may be redeemed meanwhile, which holds the client first.
        user = find_sent_user(actor.organization_id, fields, shared=True)
    except (InvalidInput, Conflict) as error:
        if error.code not in ("unknown_user", "email_unverified") or actor.has_permission("users:read"):
            raise
        raise _cannot_own(field, permissions) from None
    if user.id == other_than:
        raise InvalidInput("This user is the owner already.", field=field, code="same_owner")
    organization = get_organization_by_id(actor.organization_id)
    held = get_user_permissions(organization, organization.id, user.id)
    if not user.is_active or not all(has_permission(held, f"{name}:own") for name in permissions):
        raise _cannot_own(field, permissions)
    return user


def _cannot_own(field: str, permissions: Sequence[str]) -> InvalidInput:
    message = lazy_gettext(
        "Only an active user who has the permission %(permission)s can be the owner.",
        permission=", ".join(f"{name}:own" for name in permissions),
    )
    return InvalidInput(message, field=field, code="cannot_own")


def _notify(actor: Actor, owner: UserSnapshot, names: Sequence[str], path: str) -> None:
    if owner.id == actor.user_id:
        return
    organization = get_organization_by_id(actor.organization_id)
    notify_user(
        actor,
        owner.id,
        "owner_changed",
        who=actor.label,
        name=names[0],
        others=str(len(names) - 1) if len(names) > 1 else "",
        link=f"{organization.base_url}/portal/{organization.slug}/{path}",
    )
