"""The access of clients to APIs: give it, change it, and take it away, in the transaction of the caller.

Access to an API decides which of its scopes a client gets without a user's consent, and for an API with listed clients
also with consent. Whoever may manage the API decides. ``access_requests`` has the operations for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, insert, or_, select, update

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.client import Client, ClientAccess, Resource, Scope
from app.models.token import AccessToken
from app.operations.clients.client_records import update_client_row
from app.operations.store import audit, clock
from app.operations.store.transactions import OutdatedRead, count_changed, current_unit_of_work
from app.rules.actor import Actor
from app.rules.clients.client_access import DECLINED, GRANTED, REQUESTED, WITHDRAWN
from app.rules.clients.client_types import uses_grants_without_consent
from app.rules.clients.resource_indicators import LISTED, OPEN
from app.rules.identifiers import format_client_id, new_id, public_id

PREFIX = "acc"
# Ids in one statement.
_BATCH = 500


def grant_access(
    actor: Actor,
    client: Client,
    resource: Resource,
    scopes: Iterable[str],
    *,
    request: ClientAccess | None = None,
    message: str | None = None,
) -> UUID | None:
    """Add the scopes to the client's access to the resource, in the current transaction. Return the row's id.

    An approved ``request`` becomes the access, or is deleted if there already is one. Returns None if it was decided
    before.

    The caller holds the resource or has changed it. It has just created the client's row or raised its version, so
    that two changes of the access of one client cannot overlap and every cached copy is read again. Audit:
    ``client_access.granted``.
    """
    row, declined = find_access(client, resource, GRANTED), find_access(client, resource, DECLINED)
    if declined is not None:
        delete_access(declined, DECLINED)
    before = [] if row is None else row.scopes
    values = {"scopes": sorted({*before, *scopes}), "message": message, **_decision(actor)}
    if request is not None:
        is_pending = (
            count_changed(_update(request, REQUESTED).values(status=GRANTED, **values)) == 1
            if row is None
            else delete_access(request, REQUESTED)
        )
        if not is_pending:
            return None
    if row is None and request is not None:
        row_id = request.id
    elif row is None:
        row_id = current_unit_of_work().stable_value(f"access {client.id} {resource.id}", new_id)
        db.session.execute(
            insert(ClientAccess).values(
                organization_id=client.organization_id,
                id=row_id,
                client_id=client.id,
                resource_id=resource.id,
                status=GRANTED,
                created_at=values["decided_at"],
                created_by=values["decided_by"],
                created_by_user_id=actor.user_id,
                **values,
            )
        )
    else:
        row_id = row.id
        count_changed(_update(row, GRANTED).values(**values))
    record_change(
        actor,
        "client_access.granted",
        client,
        resource,
        row_id,
        before=None if row is None else {"scopes": before},
        after={"scopes": values["scopes"]},
    )
    return row_id


def grant_adopted_access(
    actor: Actor, resource: Resource, clients: Iterable[Client], names: Collection[str]
) -> None:
    """Give clients access to the scopes that they had before these belonged to the resource.

    They could use them without a user's consent until now. Others need no access, or request it. Audit:
    ``client_access.granted``.
    """
    for client in clients:
        if uses_grants_without_consent(client.document["grant_types"]):
            raise_client_version(client)
            grant_access(
                actor, client, resource, [name for name in client.document["scopes"] if name in names]
            )


def hold_resource(resource: Resource) -> None:
    """Keep the resource and its scopes as they were read until the current transaction ends.

    Otherwise a scope could end between the read and the access that names it, and a later scope of the same name would
    be included. Call it before the transaction writes scopes or clients, as who changes a resource does. Raises
    OutdatedRead if the resource was changed or deleted since it was read.
    """
    version = db.session.scalar(
        select(Resource.version)
        .where(has_key(Resource, resource.organization_id, resource.id))
        .with_for_update(read=True)
    )
    if version != resource.version:
        raise OutdatedRead


def raise_client_version(client: Client) -> None:
    """Lock the client's row and make every worker read it again, before a change of its access."""
    update_client_row(client, updated_at=clock.now())


def find_access(client: Client, resource: Resource, status: str) -> ClientAccess | None:
    """Return the client's row with the status, read from the database."""
    row: ClientAccess | None = db.session.scalar(
        select(ClientAccess).where(
            ClientAccess.organization_id == client.organization_id,
            ClientAccess.client_id == client.id,
            ClientAccess.resource_id == resource.id,
            ClientAccess.status == status,
        ),
        execution_options={"populate_existing": True},
    )
    return row


def find_granted_scopes(client: Client) -> frozenset[str]:
    """Return the scopes of all APIs that the client has access to."""
    rows = db.session.scalars(
        select(ClientAccess.scopes).where(
            ClientAccess.organization_id == client.organization_id,
            ClientAccess.client_id == client.id,
            ClientAccess.status == GRANTED,
        )
    )
    return frozenset(scope for scopes in rows for scope in scopes)


def find_inaccessible_scopes(client: Client, scopes: Collection[str]) -> dict[str, list[str]]:
    """Return those of the scopes that the client has no access to without a user's consent, by name of the API."""
    granted = find_granted_scopes(client)
    rows = db.session.execute(
        select(Resource.name, Scope.name)
        .join(Scope, is_same(Scope.resource_id, Resource.id))
        .where(
            Resource.organization_id == client.organization_id,
            Resource.access_policy != OPEN,
            Scope.name.in_([scope for scope in scopes if scope not in granted]),
        )
        .order_by(Resource.name, Scope.name)
    )
    found: dict[str, list[str]] = {}
    for api, scope in rows:
        found.setdefault(api, []).append(scope)
    return found


def close_access(
    actor: Actor, row: ClientAccess, before: str, status: str, *, message: str | None = None
) -> bool:
    """Change a request to declined, or an access to withdrawn. Return False if it no longer has the status ``before``.

    It replaces the last rejection or withdrawal.
    """
    count_changed(
        delete(ClientAccess).where(
            ClientAccess.organization_id == row.organization_id,
            ClientAccess.client_id == row.client_id,
            ClientAccess.resource_id == row.resource_id,
            ClientAccess.status == status,
        )
    )
    changes = {"status": status, "message": message, **_decision(actor)}
    return count_changed(_update(row, before).values(**changes)) == 1


def delete_access(row: ClientAccess, status: str) -> bool:
    """Delete a request or a rejection. Return False if it was changed before."""
    return (
        count_changed(
            delete(ClientAccess).where(
                has_key(ClientAccess, row.organization_id, row.id), ClientAccess.status == status
            )
        )
        == 1
    )


def delete_access_requests(client: Client) -> None:
    """Delete the pending requests of a client, in the transaction that deletes it: nobody could decide about them."""
    count_changed(
        delete(ClientAccess).where(
            ClientAccess.organization_id == client.organization_id,
            ClientAccess.client_id == client.id,
            ClientAccess.status == REQUESTED,
        )
    )


def remove_scopes_from_access(resource: Resource, names: Collection[str]) -> None:
    """Remove deleted scopes from the access of clients, so that a new scope of the same name is not included."""
    rows = db.session.scalars(
        select(ClientAccess).where(
            ClientAccess.organization_id == resource.organization_id,
            ClientAccess.resource_id == resource.id,
            ClientAccess.status.in_((REQUESTED, GRANTED)),
        ),
        execution_options={"populate_existing": True},
    ).all()
    for row in rows:
        remaining = [scope for scope in row.scopes if scope not in names]
        if len(remaining) < len(row.scopes):
            count_changed(_update(row, row.status).values(scopes=remaining))


def delete_access_to_resource(resource: Resource) -> None:
    """Delete every access and request, in the transaction that deletes the resource.

    Stored tokens that ended with a withdrawal are revoked: the row that ended them is deleted here.
    """
    own = (ClientAccess.organization_id == resource.organization_id) & (
        ClientAccess.resource_id == resource.id
    )
    if resource.access_policy != OPEN:
        for client_id, withdrawn_at in _find_withdrawals(own).items():
            _revoke_tokens(resource, client_id, withdrawn_at)
    count_changed(delete(ClientAccess).where(own))


def _find_withdrawals(own: ColumnElement[bool]) -> dict[UUID, datetime]:
    """Return until when tokens ended with a withdrawal, by client: until now, unless access was given again."""
    found = select(ClientAccess.client_id, ClientAccess.status, ClientAccess.decided_at).where(
        own, ClientAccess.status.in_((GRANTED, WITHDRAWN))
    )
    rows, now = db.session.execute(found).all(), clock.now()
    granted = {row.client_id for row in rows if row.status == GRANTED}
    return {
        row.client_id: (row.decided_at or now) if row.client_id in granted else now
        for row in rows
        if row.status == WITHDRAWN
    }


def tokens_of_access(resource: Resource, client_id: UUID) -> list[ColumnElement[bool]]:
    """Return the conditions of the client's active tokens that end with its access, whichever resource they are for."""
    conditions: list[ColumnElement[bool]] = [
        AccessToken.organization_id == resource.organization_id,
        AccessToken.client_id == client_id,
        AccessToken.revoked_at.is_(None),
        AccessToken.expires_at > clock.now(),
    ]
    if resource.access_policy != LISTED:
        # Tokens that a user allowed stay valid.
        conditions.append(or_(AccessToken.grant_id.is_(None), AccessToken.parent_id.is_not(None)))
    return conditions


def _revoke_tokens(resource: Resource, client_id: UUID, issued_before: datetime) -> None:
    own = tokens_of_access(resource, client_id)
    rows = db.session.execute(
        select(AccessToken.id, AccessToken.audience).where(
            *own,
            AccessToken.issued_at < issued_before,
            func.instr(AccessToken.audience, resource.identifier) > 0,
        )
    ).all()
    # The identifier of another API may begin with this one.
    ids = [row.id for row in rows if resource.identifier in row.audience.split()]
    for start in range(0, len(ids), _BATCH):
        count_changed(
            update(AccessToken)
            .where(*own, AccessToken.id.in_(ids[start : start + _BATCH]))
            .values(revoked_at=clock.now())
        )


def record_change(
    actor: Actor,
    action: str,
    client: Client,
    resource: Resource,
    row_id: UUID,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record an audit event that names the client and the resource."""
    named = {
        "client_id": format_client_id(client.organization_id, client.id),
        "resource": resource.identifier,
    }
    audit.record(
        actor,
        action,
        "client_access",
        public_id(PREFIX, row_id),
        before=before,
        after={**named, **(after or {})},
    )


def _update(row: ClientAccess, status: str) -> Any:
    # The status that the caller expects, not that of the object, which another query may have read again.
    return update(ClientAccess).where(
        has_key(ClientAccess, row.organization_id, row.id), ClientAccess.status == status
    )


def _decision(actor: Actor) -> dict[str, Any]:
    return {"decided_at": clock.now(), "decided_by": actor.author}
