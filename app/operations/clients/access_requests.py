"""Requests of developers for access to APIs: which APIs can be requested, request and cancel.

Who may manage an API decides about its requests (``access_decisions``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, false, insert, or_, select

from app.extensions import db
from app.models.base import has_key
from app.models.client import Client, ClientAccess, Resource
from app.operations.clients.access_records import (
    RESOURCE_OF_ACCESS,
    AccessRecord,
    of_visible_resources,
    read_access,
)
from app.operations.clients.client_access import (
    delete_access,
    find_access,
    grant_access,
    hold_resource,
    raise_client_version,
    record_change,
)
from app.operations.clients.client_permissions import require_client_within_permissions
from app.operations.clients.client_records import get_client_row
from app.operations.clients.resources import ResourceRecord, scope_names_of, to_resource_records
from app.operations.directory.lookups import get_organization_by_id, get_user_permissions
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import is_active_user
from app.operations.mail.notices import email_administrators, notify_user
from app.operations.store import clock, rate_limits
from app.operations.store.rows import count_rows
from app.operations.store.transactions import current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.clients.client_access import (
    GRANTED,
    REQUESTED,
    check_request,
    require_scopes_of_resource,
)
from app.rules.clients.resource_indicators import LISTED, OPEN
from app.rules.directory.permissions import has_permission
from app.rules.errors import Conflict, NotFound, TooManyRequests
from app.rules.identifiers import new_id, parse_public_id

MAX_REQUESTS_PER_DAY = 50
"""Requests of one developer, each of which sends an email."""
MAX_PENDING = 1_000
"""Pending requests in one organization, so that an unread queue does not grow without bound."""
MAX_EMAILS_PER_HOUR = 20


@read
def list_requestable_resources(actor: Actor, client_id: str) -> list[ResourceRecord]:
    """List the active APIs, by name, to which access can be requested for the client.

    An API for listed clients is among them only for clients that have access to it, and for those who can see it.
    Raises NotFound, Forbidden.
    """
    client = get_client_row(actor, client_id, "clients:write")
    rows = db.session.scalars(
        select(Resource)
        .where(
            Resource.organization_id == actor.organization_id,
            Resource.status == "active",
            Resource.access_policy != OPEN,
            _is_requestable(actor, client),
        )
        .order_by(Resource.name_key, Resource.id)
    ).all()
    return to_resource_records(rows)


@read
def get_requestable_resource(actor: Actor, client_id: str, resource_id: str) -> ResourceRecord:
    """Return an API to which access can be requested for the client. Raises NotFound, Forbidden."""
    client = get_client_row(actor, client_id, "clients:write")
    return to_resource_records([_get_requestable(actor, client, resource_id)])[0]


@transaction
def request_access(actor: Actor, client_id: str, resource_id: str, fields: Mapping[str, Any]) -> AccessRecord:
    """Request access to an API for a client, and notify the API's owner; replace the client's pending request.

    ``fields``: ``scopes``, ``reason``. An actor who may manage the API decides at once: access is given. Raises
    InvalidInput naming every wrong field, NotFound, also for an API that the client cannot request, Forbidden,
    Conflict for an API that is open to all clients, TooManyRequests. Audit: ``client_access.requested``.
    """
    client = get_client_row(actor, client_id, "clients:write")
    require_client_within_permissions(actor, client)
    resource = _get_requestable(actor, client, resource_id)
    scopes, reason = check_request(fields)
    hold_resource(resource)
    require_scopes_of_resource(scopes, scope_names_of(resource))
    raise_client_version(client)
    if actor.has_permission("resources:write", owner_id=resource.owner_id):
        return read_access(actor, grant_access(actor, client, resource, scopes))
    if resource.access_policy == OPEN:
        raise Conflict("This API is open to all clients. No request is needed.", code="not_needed")
    pending = find_access(client, resource, REQUESTED)
    if pending is not None:
        delete_access(pending, REQUESTED)
    else:
        _enforce_limits(actor)
    row_id: UUID = current_unit_of_work().stable_value("access request", new_id)
    db.session.execute(
        insert(ClientAccess).values(
            organization_id=actor.organization_id,
            id=row_id,
            client_id=client.id,
            resource_id=resource.id,
            status=REQUESTED,
            scopes=sorted(scopes),
            reason=reason,
            created_at=clock.now(),
            created_by=actor.author,
            created_by_user_id=actor.user_id,
        )
    )
    after = {"scopes": sorted(scopes), "reason": reason}
    record_change(actor, "client_access.requested", client, resource, row_id, after=after)
    if pending is None:
        _notify_owner(actor, client, resource, reason)
    return read_access(actor, row_id)


@transaction
def cancel_request(actor: Actor, client_id: str, resource_id: str) -> AccessRecord:
    """Delete the client's pending request for access to an API, and return it. Access that the client has stays.

    Raises NotFound, also if no request is pending, Forbidden. Audit: ``client_access.cancelled``.
    """
    client = get_client_row(actor, client_id, "clients:write")
    row_id = parse_public_id("res", resource_id)
    resource = None if row_id is None else db.session.get(Resource, (actor.organization_id, row_id))
    pending = None if resource is None else find_access(client, resource, REQUESTED)
    if resource is None or pending is None:
        raise _not_pending_error()
    record = read_access(actor, pending.id)
    if not delete_access(pending, REQUESTED):
        raise _not_pending_error()
    before = {"scopes": list(record.scopes), "reason": record.reason}
    record_change(actor, "client_access.cancelled", client, resource, record.id, before=before)
    return record


def _not_pending_error() -> NotFound:
    return NotFound("No request is pending. It may have been decided already.")


def _is_requestable(actor: Actor, client: Client) -> ColumnElement[bool]:
    has_access = (
        select(ClientAccess.id)
        .where(RESOURCE_OF_ACCESS, ClientAccess.client_id == client.id, ClientAccess.status == GRANTED)
        .exists()
    )
    can_see = of_visible_resources(actor) if actor.has_permission_for_own("resources:read") else false()
    return or_(Resource.access_policy != LISTED, has_access, can_see)


def _get_requestable(actor: Actor, client: Client, resource_id: str) -> Resource:
    row_id = parse_public_id("res", resource_id)
    resource: Resource | None = db.session.scalar(
        select(Resource).where(
            has_key(Resource, actor.organization_id, row_id),
            Resource.status == "active",
            _is_requestable(actor, client),
        )
    )
    if resource is None:
        raise NotFound("There is no such API.")
    return resource


def _enforce_limits(actor: Actor) -> None:
    who = str(actor.user_id or actor.client_id)
    bucket = rate_limits.bucket_key("access requests", who)
    if not rate_limits.consume_quota(actor.organization_id, bucket, MAX_REQUESTS_PER_DAY, timedelta(days=1)):
        raise TooManyRequests("You requested access too often today. Try again tomorrow.", retry_after=3600)
    pending = select(ClientAccess.id).where(
        ClientAccess.organization_id == actor.organization_id, ClientAccess.status == REQUESTED
    )
    if count_rows(pending, MAX_PENDING) == MAX_PENDING:
        raise TooManyRequests(
            "Too many requests are pending in this organization. Contact the API's owner directly.",
            retry_after=3600,
        )


def _notify_owner(actor: Actor, client: Client, resource: Resource, reason: str) -> None:
    """Notify the owner of the API, or the administrators if the owner may no longer manage it."""
    organization = get_organization_by_id(actor.organization_id)
    values = {
        "who": actor.label,
        "client": client.name,
        "api": resource.name,
        "reason": reason,
        "link": f"{organization.base_url}/portal/{organization.slug}/access-requests",
    }
    owner_id = resource.owner_id
    if owner_id is not None and _may_manage_own(organization, owner_id):
        notify_user(actor, owner_id, "access_requested", **values)
        return
    bucket = rate_limits.bucket_key("access request emails")
    if rate_limits.consume_quota(organization.id, bucket, MAX_EMAILS_PER_HOUR, timedelta(hours=1)):
        email_administrators(organization, "access_requested", values)


def _may_manage_own(organization: OrganizationSnapshot, user_id: UUID) -> bool:
    """Return whether the user is active and may manage APIs of their own."""
    held = get_user_permissions(organization, organization.id, user_id)
    return has_permission(held, "resources:write:own") and is_active_user(organization.id, user_id)
