"""Decisions about the access of clients to APIs: give, approve, decline and withdraw.

Whoever may manage an API decides which clients get its scopes without a user's consent. Access is checked whenever a
token is issued or used, so that a withdrawal takes effect at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import func, select

from app.extensions import db
from app.models.client import Client, ClientAccess, Resource
from app.models.token import AccessToken
from app.operations.clients.access_records import AccessRecord, AlreadyDecided, get_client_access, read_access
from app.operations.clients.client_access import (
    close_access,
    grant_access,
    hold_resource,
    raise_client_version,
    record_change,
    tokens_of_access,
)
from app.operations.clients.client_records import load_client_row
from app.operations.clients.resource_scopes import ScopeHolder, find_holder_rows, to_scope_holder
from app.operations.clients.resources import get_resource_row, scope_names_of
from app.operations.directory.lookups import get_organization_by_id, get_user_permissions
from app.operations.directory.users import is_active_user
from app.operations.mail.notices import notify_user
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.clients.client_access import (
    DECLINED,
    GRANTED,
    REQUESTED,
    WITHDRAWN,
    check_decision,
    check_grant,
    require_scopes_of_resource,
)
from app.rules.clients.client_types import begins_to_require_access
from app.rules.errors import NotFound
from app.rules.identifiers import format_client_id

MAX_COUNTED = 1000
# Of a client's active tokens, for whichever API: a preview must not read millions.
MAX_LOOKED_AT = 20_000


class WithdrawalPreview(Struct, frozen=True):
    """The impact of withdrawing access: active tokens that are revoked, at most 1,000, which means "or more"."""

    access: AccessRecord
    access_tokens: int


@transaction
def give_access(actor: Actor, resource_id: str, client_id: str, fields: Mapping[str, Any]) -> AccessRecord:
    """Give a client access to an API that the actor may manage, without a request; a pending one stays.

    ``fields``: ``scopes``. Raises InvalidInput naming every wrong field, NotFound, Forbidden.
    Audit: ``client_access.granted``.
    """
    resource = get_resource_row(actor, resource_id, "resources:write")
    client = load_client_row(actor, client_id)
    scopes = check_grant(fields)
    hold_resource(resource)
    require_scopes_of_resource(scopes, scope_names_of(resource))
    raise_client_version(client)
    return read_access(actor, grant_access(actor, client, resource, scopes))


@transaction
def approve_access(actor: Actor, access_id: str, fields: Mapping[str, Any] | None = None) -> AccessRecord:
    """Approve a request: the client gets access to the scopes that it asked for. Notify the developer.

    ``fields``: ``message``, a text for the developer. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
    ``client_access.granted``.
    """
    message = check_decision(fields or {})
    row, client, resource = _load(actor, access_id, REQUESTED)
    existing = scope_names_of(resource)
    scopes = [scope for scope in row.scopes if scope in existing]
    developer = _developer_of(actor, row, client)
    granted = grant_access(actor, client, resource, scopes, request=row, message=message)
    record = read_access(actor, granted)
    _notify(actor, developer, "access_granted", client, resource, message)
    return record


@transaction
def decline_access(actor: Actor, access_id: str, fields: Mapping[str, Any] | None = None) -> AccessRecord:
    """Decline a request and notify the owner of the client. Access that the client already has stays.

    ``fields``: ``message``, a text for the developer. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
    ``client_access.declined``.
    """
    row, client, resource, message = _close(
        actor, access_id, REQUESTED, DECLINED, fields or {}, action="client_access.declined"
    )
    _notify(actor, _developer_of(actor, row, client), "access_declined", client, resource, message)
    return read_access(actor, row.id)


@read
def preview_withdrawal(actor: Actor, access_id: str) -> WithdrawalPreview:
    """Return the impact of withdrawing the access. Raises NotFound, Forbidden."""
    row, _, resource = _find_row(actor, access_id)
    issued = select(AccessToken.audience).where(*tokens_of_access(resource, row.client_id))
    looked_at = issued.limit(MAX_LOOKED_AT).subquery()
    named = select(looked_at.c.audience).where(func.instr(looked_at.c.audience, resource.identifier) > 0)
    # The identifier of another API may begin with this one.
    count = sum(
        resource.identifier in audience.split() for audience in db.session.scalars(named.limit(MAX_COUNTED))
    )
    return WithdrawalPreview(read_access(actor, row.id), count)


@read
def preview_access_policy(actor: Actor, resource_id: str, policy: str) -> list[ScopeHolder]:
    """List the clients with the API or its scopes that would need access with this policy and do not have it.

    At most 501. Raises NotFound, Forbidden.
    """
    resource = get_resource_row(actor, resource_id, "resources:write")
    names = scope_names_of(resource)
    rows = db.session.execute(
        select(ClientAccess.client_id, ClientAccess.scopes).where(
            ClientAccess.organization_id == actor.organization_id,
            ClientAccess.resource_id == resource.id,
            ClientAccess.status == GRANTED,
        )
    )
    granted = {client_id: frozenset(scopes) for client_id, scopes in rows}
    return [
        to_scope_holder(client)
        for client in find_holder_rows(actor, [*names, resource.identifier])
        if begins_to_require_access(resource.access_policy, policy, client.document["grant_types"])
        and (
            client.id not in granted or names.intersection(client.document["scopes"]) - {*granted[client.id]}
        )
    ]


@transaction
def withdraw_access(actor: Actor, access_id: str, fields: Mapping[str, Any] | None = None) -> AccessRecord:
    """Withdraw the access of a client. Its tokens for the API are revoked, and it gets no new ones.

    Tokens that users allowed are affected only if the API is for listed clients. ``fields``: ``message``, a text for
    the client's developer, who is notified. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
    ``client_access.withdrawn``.
    """
    row, client, resource, message = _close(
        actor, access_id, GRANTED, WITHDRAWN, fields or {}, action="client_access.withdrawn"
    )
    _notify(actor, client.owner_id, "access_withdrawn", client, resource, message)
    return read_access(actor, row.id)


def _close(
    actor: Actor, access_id: str, before: str, status: str, fields: Mapping[str, Any], *, action: str
) -> tuple[ClientAccess, Client, Resource, str | None]:
    """Give the access another status, and return its rows and the checked message."""
    message = check_decision(fields)
    row, client, resource = _load(actor, access_id, before)
    if not close_access(actor, row, before, status, message=message):
        raise AlreadyDecided
    after = {"scopes": row.scopes, "message": message}
    record_change(actor, action, client, resource, row.id, after=after)
    return row, client, resource, message


def _find_row(actor: Actor, access_id: str) -> tuple[ClientAccess, Client, Resource]:
    """Return the rows of an access to an API that the actor may manage. Raises NotFound, Forbidden."""
    actor.require_for_own("resources:write")
    record = get_client_access(actor, access_id)
    resource = get_resource_row(actor, record.resource_id, "resources:write")
    client = load_client_row(actor, record.client_id)
    row = db.session.get(ClientAccess, (actor.organization_id, record.id), populate_existing=True)
    if row is None:
        raise NotFound("There is no such client access.")
    return row, client, resource


def _load(actor: Actor, access_id: str, status: str) -> tuple[ClientAccess, Client, Resource]:
    """Return the rows for a decision, those of client and resource locked. Raises AlreadyDecided for another status."""
    row, client, resource = _find_row(actor, access_id)
    if row.status != status:
        raise AlreadyDecided
    hold_resource(resource)
    raise_client_version(client)
    return row, client, resource


def _developer_of(actor: Actor, row: ClientAccess, client: Client) -> UUID | None:
    """Return who requested the access, or the owner of the client if the requester can no longer see the client."""
    requester = row.created_by_user_id
    if requester is None or requester == client.owner_id:
        return client.owner_id
    organization = get_organization_by_id(actor.organization_id)
    held = get_user_permissions(organization, organization.id, requester)
    can_see = "clients:read" in held and is_active_user(organization.id, requester)
    return requester if can_see else client.owner_id


def _notify(
    actor: Actor, user_id: UUID | None, notice: Any, client: Client, resource: Resource, message: str | None
) -> None:
    """Notify the developer, unless they did it themselves or are disabled or not in the organization any more."""
    if user_id is None or user_id == actor.user_id or not is_active_user(actor.organization_id, user_id):
        return
    organization = get_organization_by_id(actor.organization_id)
    client_id = format_client_id(client.organization_id, client.id)
    link = f"{organization.base_url}/portal/{organization.slug}/clients/{client_id}/apis"
    notify_user(
        actor,
        user_id,
        notice,
        client=client.name,
        api=resource.name,
        message=message or "",
        policy=resource.access_policy,
        link=link,
    )
