"""Client access to APIs as a workflow: list, request, approve, decline, give and withdraw.

Whoever may manage an API decides which clients get its scopes without a user's consent. Access is checked whenever a
token is issued or used, so that a withdrawal takes effect at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, false, func, insert, or_, select

from app.extensions import db
from app.models.client import DELETED, Client, ClientAccess, Resource
from app.models.token import AccessToken
from app.operations.clients.client_access import (
    PREFIX,
    close_access,
    delete_access,
    find_access,
    grant_access,
    hold_resource,
    raise_client_version,
    record_change,
)
from app.operations.clients.client_records import (
    get_client_row,
    load_client_row,
    require_client_within_permissions,
)
from app.operations.clients.resources import ResourceRecord, get_resource_row, to_resource_records
from app.operations.directory.lookups import get_organization_by_id, get_user_permissions
from app.operations.mail.notices import email_administrators, notify_user
from app.operations.store import clock, rate_limits
from app.operations.store.transactions import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    CursorKey,
    Page,
    current_unit_of_work,
    paginate,
    read,
    transaction,
)
from app.rules.actor import Actor
from app.rules.clients.client_access import (
    DECLINED,
    GRANTED,
    REQUESTED,
    STATUSES,
    WITHDRAWN,
    check_decision,
    check_grant,
    check_request,
    require_scopes_of_resource,
)
from app.rules.clients.resource_indicators import LISTED, OPEN
from app.rules.directory.permissions import has_permission
from app.rules.errors import Conflict, InvalidInput, NotFound, TooManyRequests
from app.rules.fields import ValidationErrors, find_unknown
from app.rules.identifiers import (
    encode_uuid,
    format_client_id,
    new_id,
    parse_client_id,
    parse_public_id,
    public_id,
)

FILTERS = ("status", "client_id", "resource_id")
MAX_REQUESTS_PER_DAY = 50
"""Requests of one developer, each of which sends an email."""
MAX_PENDING = 1_000
"""Pending requests in one organization, so that an unread queue does not grow without bound."""
MAX_EMAILS_PER_HOUR = 20
MAX_COUNTED = 1000


class AlreadyDecided(Conflict):
    """The request was decided, or the access withdrawn, before."""

    code = "already_decided"


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """The access of a client to an API, or a request for it."""

    id: UUID
    client_id: str
    client_name: str
    resource_id: str
    resource_name: str
    resource_identifier: str
    status: str
    scopes: tuple[str, ...]
    reason: str | None
    message: str | None
    created_at: datetime
    created_by: str | None
    decided_at: datetime | None
    decided_by: str | None

    @property
    def public_id(self) -> str:
        """``acc_…``."""
        return public_id(PREFIX, self.id)


@dataclass(frozen=True, slots=True)
class WithdrawalPreview:
    """What stops when access is withdrawn: active tokens, at most 1,000, which means "or more"."""

    access: AccessRecord
    access_tokens: int


@read
def list_client_access(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    filters: Mapping[str, str] | None = None,
) -> Page[AccessRecord]:
    """List the access to the APIs that the actor can see, with requests, newest first; ``filters`` are of FILTERS.

    Raises InvalidInput, Forbidden.
    """
    actor.require_for_own("resources:read")
    statement = _select(actor).where(_of_visible_resources(actor), *_conditions(actor, filters or {}))
    return _page(statement, limit, after)


@read
def list_access_of_client(
    actor: Actor, client_id: str, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[AccessRecord]:
    """List the access of a client with its requests, newest first. Raises NotFound, Forbidden."""
    client = get_client_row(actor, client_id, "clients:read")
    return _page(_select(actor).where(ClientAccess.client_id == client.id), limit, after)


@read
def get_client_access(actor: Actor, access_id: str) -> AccessRecord:
    """Return one access or request of an API that the actor can see. Raises NotFound, Forbidden."""
    actor.require_for_own("resources:read")
    return _find(actor, access_id, _of_visible_resources(actor))


@read
def count_pending_requests(actor: Actor) -> int:
    """Return the number of pending requests that the actor can decide, at most a hundred."""
    if not actor.has_permission_for_own("resources:write"):
        return 0
    pending = (
        select(ClientAccess.id)
        .join(Resource, _RESOURCE_OF)
        .join(Client, _CLIENT_OF)
        .where(
            ClientAccess.organization_id == actor.organization_id,
            ClientAccess.status == REQUESTED,
            Client.status != DELETED,
        )
    )
    if not actor.has_permission("resources:write"):
        pending = pending.where(_created_by(actor))
    return int(db.session.scalar(select(func.count()).select_from(pending.limit(100).subquery())) or 0)


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
    require_scopes_of_resource(scopes, _scope_names(resource))
    raise_client_version(client)
    if actor.has_permission("resources:write", owner_id=resource.created_by_user_id):
        return _read(actor, grant_access(actor, client, resource, scopes))
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
            created_by=actor.label[:200] or None,
            created_by_user_id=actor.user_id,
        )
    )
    after = {"scopes": sorted(scopes), "reason": reason}
    record_change(actor, "client_access.requested", client, resource, row_id, after=after)
    if pending is None:
        _notify_owner(actor, client, resource, reason)
    return _read(actor, row_id)


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
    require_scopes_of_resource(scopes, _scope_names(resource))
    raise_client_version(client)
    return _read(actor, grant_access(actor, client, resource, scopes))


@read
def get_requestable_resource(actor: Actor, client_id: str, resource_id: str) -> ResourceRecord:
    """Return an API to which access can be requested for the client. Raises NotFound, Forbidden."""
    client = get_client_row(actor, client_id, "clients:write")
    return to_resource_records([_get_requestable(actor, client, resource_id)])[0]


@transaction
def approve_access(actor: Actor, access_id: str, fields: Mapping[str, Any] | None = None) -> AccessRecord:
    """Approve a request: the client gets access to the scopes that it asked for. Notify who requested it.

    ``fields``: ``message``, a text for the developer. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
    ``client_access.granted``.
    """
    message = check_decision(fields or {})
    row, client, resource = _load(actor, access_id, REQUESTED)
    existing = _scope_names(resource)
    scopes = [scope for scope in row.scopes if scope in existing]
    requested_by = row.created_by_user_id
    granted = grant_access(actor, client, resource, scopes, request=row, message=message)
    record = _read(actor, granted)
    _notify(actor, requested_by, "access_granted", client, resource, message)
    return record


@transaction
def decline_access(actor: Actor, access_id: str, fields: Mapping[str, Any] | None = None) -> AccessRecord:
    """Decline a request and notify who requested it. Access that the client already has stays.

    ``fields``: ``message``, a text for the developer. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
    ``client_access.declined``.
    """
    message = check_decision(fields or {})
    row, client, resource = _load(actor, access_id, REQUESTED)
    if not close_access(actor, row, REQUESTED, DECLINED, message=message):
        raise _already_decided()
    after = {"scopes": row.scopes, "message": message}
    record_change(actor, "client_access.declined", client, resource, row.id, after=after)
    _notify(actor, row.created_by_user_id, "access_declined", client, resource, message)
    return _read(actor, row.id)


@read
def preview_withdrawal(actor: Actor, access_id: str) -> WithdrawalPreview:
    """Return what stops when the access is withdrawn. Raises NotFound, Forbidden."""
    row, _, resource = _find_row(actor, access_id)
    issued = (
        select(AccessToken.audience)
        .where(
            AccessToken.organization_id == actor.organization_id,
            AccessToken.client_id == row.client_id,
            AccessToken.revoked_at.is_(None),
            AccessToken.expires_at > clock.now(),
            func.instr(AccessToken.audience, resource.identifier) > 0,
        )
        .limit(MAX_COUNTED)
    )
    if resource.access_policy != LISTED:
        # Tokens that a user allowed stay valid.
        issued = issued.where(or_(AccessToken.grant_id.is_(None), AccessToken.parent_id.is_not(None)))
    # The identifier of another API may begin with this one.
    count = sum(resource.identifier in audience.split() for audience in db.session.scalars(issued))
    return WithdrawalPreview(_read(actor, row.id), count)


@transaction
def withdraw_access(actor: Actor, access_id: str, fields: Mapping[str, Any] | None = None) -> AccessRecord:
    """Withdraw the access of a client. Its tokens for the API are revoked, and it gets no new ones.

    Tokens that users allowed are affected only if the API is for listed clients. ``fields``: ``message``, a text for
    the client's developer, who is notified. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
    ``client_access.withdrawn``.
    """
    message = check_decision(fields or {})
    row, client, resource = _load(actor, access_id, GRANTED)
    if not close_access(actor, row, GRANTED, WITHDRAWN, message=message):
        raise _already_decided()
    after = {"scopes": row.scopes, "message": message}
    record_change(actor, "client_access.withdrawn", client, resource, row.id, after=after)
    _notify(actor, client.created_by_user_id, "access_withdrawn", client, resource, message)
    return _read(actor, row.id)


_RESOURCE_OF = and_(
    Resource.organization_id == ClientAccess.organization_id, Resource.id == ClientAccess.resource_id
)
_CLIENT_OF = and_(Client.organization_id == ClientAccess.organization_id, Client.id == ClientAccess.client_id)


def _select(actor: Actor) -> Select[Any]:
    return (
        select(
            *ClientAccess.__table__.columns,
            Client.name.label("client_name"),
            Resource.name.label("resource_name"),
            Resource.identifier.label("resource_identifier"),
        )
        .join(Client, _CLIENT_OF)
        .join(Resource, _RESOURCE_OF)
        .where(ClientAccess.organization_id == actor.organization_id, Client.status != DELETED)
    )


def _created_by(actor: Actor) -> ColumnElement[bool]:
    return false() if actor.user_id is None else Resource.created_by_user_id == actor.user_id


def _of_visible_resources(actor: Actor) -> ColumnElement[bool]:
    return Resource.id.is_not(None) if actor.has_permission("resources:read") else _created_by(actor)


def _is_requestable(actor: Actor, client: Client) -> ColumnElement[bool]:
    has_access = (
        select(ClientAccess.id)
        .where(_RESOURCE_OF, ClientAccess.client_id == client.id, ClientAccess.status == GRANTED)
        .exists()
    )
    can_see = _of_visible_resources(actor) if actor.has_permission_for_own("resources:read") else false()
    return or_(Resource.access_policy != LISTED, has_access, can_see)


def _conditions(actor: Actor, filters: Mapping[str, str]) -> list[ColumnElement[bool]]:
    errors = ValidationErrors()
    find_unknown(errors, filters, FILTERS, noun="filter")
    errors.raise_if_any()
    conditions: list[ColumnElement[bool]] = []
    if "status" in filters:
        if filters["status"] not in STATUSES:
            raise InvalidInput(f"This must be one of: {', '.join(STATUSES)}.", field="status")
        conditions.append(ClientAccess.status == filters["status"])
    if "client_id" in filters:
        client = parse_client_id(filters["client_id"])
        if client is None:
            raise InvalidInput("This is not a valid client ID.", field="client_id")
        is_here = client[0] == actor.organization_id
        conditions.append(ClientAccess.client_id == client[1] if is_here else false())
    if "resource_id" in filters:
        resource_id = parse_public_id("res", filters["resource_id"])
        if resource_id is None:
            raise InvalidInput("This is not a valid resource ID.", field="resource_id")
        conditions.append(ClientAccess.resource_id == resource_id)
    return conditions


def _page(statement: Select[Any], limit: int, after: CursorKey | None) -> Page[AccessRecord]:
    limit = min(limit, MAX_LIMIT)
    rows = db.session.execute(paginate(statement, (ClientAccess.id,), after).limit(limit + 1)).all()
    items = tuple(_record(row) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


def _find(actor: Actor, access_id: str, *conditions: ColumnElement[bool]) -> AccessRecord:
    row_id = parse_public_id(PREFIX, access_id)
    row = None
    if row_id is not None:
        row = db.session.execute(_select(actor).where(ClientAccess.id == row_id, *conditions)).first()
    if row is None:
        raise NotFound("There is no such client access.")
    return _record(row)


def _read(actor: Actor, row_id: UUID | None) -> AccessRecord:
    if row_id is None:
        raise _already_decided()
    return _find(actor, public_id(PREFIX, row_id))


def _record(row: Any) -> AccessRecord:
    return AccessRecord(
        id=row.id,
        client_id=format_client_id(row.organization_id, row.client_id),
        client_name=row.client_name,
        resource_id=public_id("res", row.resource_id),
        resource_name=row.resource_name,
        resource_identifier=row.resource_identifier,
        status=row.status,
        scopes=tuple(row.scopes),
        reason=row.reason,
        message=row.message,
        created_at=row.created_at,
        created_by=row.created_by,
        decided_at=row.decided_at,
        decided_by=row.decided_by,
    )


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
        raise _already_decided()
    hold_resource(resource)
    raise_client_version(client)
    return row, client, resource


def _already_decided() -> AlreadyDecided:
    return AlreadyDecided("Someone else has already decided about this access.")


def _get_requestable(actor: Actor, client: Client, resource_id: str) -> Resource:
    row_id = parse_public_id("res", resource_id)
    resource: Resource | None = db.session.scalar(
        select(Resource).where(
            Resource.organization_id == actor.organization_id,
            Resource.id == row_id,
            Resource.status == "active",
            _is_requestable(actor, client),
        )
    )
    if resource is None:
        raise NotFound("There is no such API.")
    return resource


def _scope_names(resource: Resource) -> frozenset[str]:
    return frozenset(scope.name for scope in to_resource_records([resource])[0].scopes)


def _enforce_limits(actor: Actor) -> None:
    who = str(actor.user_id or actor.client_id)
    bucket = rate_limits.bucket_key("access requests", who)
    if not rate_limits.consume_quota(actor.organization_id, bucket, MAX_REQUESTS_PER_DAY, timedelta(days=1)):
        raise TooManyRequests("You requested access too often today. Try again tomorrow.", retry_after=3600)
    pending = select(ClientAccess.id).where(
        ClientAccess.organization_id == actor.organization_id, ClientAccess.status == REQUESTED
    )
    count = db.session.scalar(select(func.count()).select_from(pending.limit(MAX_PENDING).subquery()))
    if count == MAX_PENDING:
        raise TooManyRequests(
            "Too many requests are pending in this organization. Contact the API's owner directly.",
            retry_after=3600,
        )


def _notify_owner(actor: Actor, client: Client, resource: Resource, reason: str) -> None:
    """Notify whoever created the API, or the administrators if that user may not manage it any more."""
    organization = get_organization_by_id(actor.organization_id)
    values = {
        "who": actor.label,
        "client": client.name,
        "api": resource.name,
        "reason": reason,
        "link": f"{organization.base_url}/portal/{organization.slug}/access-requests",
    }
    owner_id = resource.created_by_user_id
    held = get_user_permissions(organization, organization.id, owner_id) if owner_id is not None else ()
    if owner_id is not None and has_permission(held, "resources:write:own"):
        try:
            notify_user(actor, owner_id, "access_requested", **values)
        except NotFound:
            pass
        else:
            return
    bucket = rate_limits.bucket_key("access request emails")
    if rate_limits.consume_quota(organization.id, bucket, MAX_EMAILS_PER_HOUR, timedelta(hours=1)):
        email_administrators(organization, "access_requested", values)


def _notify(
    actor: Actor, user_id: UUID | None, notice: Any, client: Client, resource: Resource, message: str | None
) -> None:
    """Notify the developer, unless they did it themselves or are not in the organization any more."""
    if user_id is None or user_id == actor.user_id:
        return
    organization = get_organization_by_id(actor.organization_id)
    client_id = format_client_id(client.organization_id, client.id)
    link = f"{organization.base_url}/portal/{organization.slug}/clients/{client_id}/apis"
    try:
        notify_user(
            actor, user_id, notice, client=client.name, api=resource.name, message=message or "", link=link
        )
    except NotFound:
        return
