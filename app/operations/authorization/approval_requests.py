"""Approval requests: members ask administrators to approve a client. A member has at most one per client."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Select, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.database_errors import is_duplicate_key
from app.extensions import db
from app.models.base import has_key, is_same
from app.models.client import DELETED, Client, ClientRequest
from app.models.user import User
from app.operations.clients.access_records import AlreadyDecided
from app.operations.clients.client_records import ClientRecord, hold_client
from app.operations.clients.clients import (
    close_client_requests,
    decision_columns,
    get_client,
    update_client,
)
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.directory.users import parse_user_id
from app.operations.mail.notices import email_administrators, notify_user
from app.operations.store import audit, clock, rate_limits
from app.operations.store.rows import (
    Page,
    PageRequest,
    count_query,
    count_rows,
    filter_conditions,
    get_row,
    make_record,
    read_page,
)
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.authorization.consents import (
    APPROVED,
    DECLINED,
    OPEN,
    PENDING_RETENTION,
    STATUSES,
    ClientApproval,
    ClientRefusal,
    approval_after,
    check_reason,
)
from app.rules.clients.client_types import BLOCKED, UNVERIFIED, VERIFIED
from app.rules.clients.redirect_uris import get_display_hosts
from app.rules.errors import Conflict, Forbidden, NotFound, TooManyRequests
from app.rules.filters import OF_CLIENT, Filters, choice_filter, read_filters
from app.rules.identifiers import (
    HasPublicId,
    format_client_id,
    new_id,
    parse_client_id,
    parse_public_id,
    public_id,
)
from app.rules.shapes import parse_shape

MAX_EMAILS_PER_HOUR = 20
"""Emails to the administrators of one organization, who also see the pending requests in the portal."""
PREFIX = "crq"
COLUMNS: tuple[Any, ...] = (
    *ClientRequest.__table__.columns,
    Client.name.label("client_name"),
    Client.trust,
    Client.source,
    Client.document,
    Client.version.label("client_version"),
    User.email.label("user_email"),
)
FILTERS: Filters = {"status": choice_filter(STATUSES, "Requests with this status."), "client_id": OF_CLIENT}
MAX_PER_USER_PER_DAY = 10
MAX_PENDING = 1_000
"""Pending requests in one organization, so that an unread queue does not grow without bound."""
MAX_NOTIFIED = 50
"""Members notified of an approval by email. The others find out when they try again."""


def notify_administrators(actor: Actor, client: ClientSnapshot, reason: str) -> None:
    """Notify the administrators of a request by email, in the current transaction."""
    organization = get_organization_by_id(actor.organization_id)
    bucket = rate_limits.bucket_key("client request emails")
    if not rate_limits.consume_quota(organization.id, bucket, MAX_EMAILS_PER_HOUR, timedelta(hours=1)):
        return
    values = {
        "who": actor.label,
        "client": client.name,
        "reason": reason,
        "link": f"{organization.base_url}/portal/{organization.slug}/client-requests",
    }
    email_administrators(organization, "client_requested", values)


class ClientRequestRecord(HasPublicId, Struct, frozen=True):
    """A request, for the administrators who decide about it.

    ``redirect_hosts`` are the hosts of the client's redirect URIs, or their schemes for an app's private scheme.
    ``home_page`` is the client's ``client_uri``, unverified.
    """

    id_prefix = PREFIX
    id: UUID
    client_id: str
    client_name: str
    trust: str
    source: str
    home_page: str | None
    redirect_hosts: tuple[str, ...]
    client_version: int
    user_id: str
    user_email: str
    status: str
    scopes: tuple[str, ...]
    reason: str
    created_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    message: str | None

    @property
    def client_row_id(self) -> UUID:
        """The id of the client's row."""
        parsed = parse_client_id(self.client_id)
        if parsed is None:
            raise NotFound("There is no such client.")
        return parsed[1]

    @property
    def member_id(self) -> UUID:
        """The id of the member's row."""
        return parse_user_id(self.user_id)


def build_record(row: Any) -> ClientRequestRecord:
    """Return the record of a row of ``COLUMNS``."""
    return make_record(
        ClientRequestRecord,
        row,
        client_id=format_client_id(row.organization_id, row.client_id),
        home_page=row.document.get("client_uri"),
        redirect_hosts=get_display_hosts(row.document.get("redirect_uris")),
        user_id=public_id("usr", row.user_id),
        scopes=tuple(row.scope.split()),
    )


class OwnClientRequest(Struct, frozen=True):
    """A member's own request for a client. ``message`` is the administrator's, of a declined request."""

    status: str
    requested_at: datetime
    reason: str
    decided_at: datetime | None
    message: str | None


@read
def find_latest_request(actor: Actor, client: ClientSnapshot) -> OwnClientRequest | None:
    """Return the actor's latest request for the client, or None; decided ones are kept for thirty days."""
    row = db.session.execute(
        select(
            ClientRequest.status,
            ClientRequest.created_at,
            ClientRequest.reason,
            ClientRequest.decided_at,
            ClientRequest.message,
        )
        .where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.client_id == client.id,
            ClientRequest.user_id == actor.user_id,
            ClientRequest.expires_at > clock.now(),
        )
        .order_by(ClientRequest.id.desc())
        .limit(1)
    ).first()
    return None if row is None else OwnClientRequest(*row)


@transaction
def create_client_request(actor: Actor, client: ClientSnapshot, scopes: tuple[str, ...], reason: str) -> None:
    """Create a request for the client and notify the administrators. A pending request stays as it is.

    Raises InvalidInput for an invalid reason, TooManyRequests after ten requests in a day or with a thousand pending
    ones, Forbidden for anybody but a signed-in user. Audit: ``client_request.created``.
    """
    if actor.kind != "user" or actor.user_id is None:
        raise Forbidden("Only members of the organization can ask for approval of an app.")
    checked_reason = check_reason(reason)
    latest = find_latest_request(actor, client)
    if latest is not None and latest.status == OPEN:
        return
    _enforce_limits(actor)
    now = clock.now()
    row_id: UUID = current_unit_of_work().stable_value("client request", new_id)
    values = {
        "organization_id": actor.organization_id,
        "id": row_id,
        "client_id": client.id,
        "user_id": actor.user_id,
        "is_open": True,
        "status": OPEN,
        "scope": " ".join(scopes),
        "reason": checked_reason,
        "created_at": now,
        "expires_at": now + PENDING_RETENTION,
    }
    _delete_expired(actor, client)
    try:
        with db.session.begin_nested():
            db.session.execute(insert(ClientRequest).values(**values))
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        return  # Another tab was faster.
    audit.record(
        actor,
        "client_request.created",
        "client",
        format_client_id(actor.organization_id, client.id),
        after={"request": public_id(PREFIX, row_id), "scopes": list(scopes), "reason": checked_reason},
    )
    notify_administrators(actor, client, checked_reason)


def _delete_expired(actor: Actor, client: ClientSnapshot) -> None:
    # An expired request would block a new one until the janitor deletes it.
    count_changed(
        delete(ClientRequest).where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.client_id == client.id,
            ClientRequest.user_id == actor.user_id,
            ClientRequest.is_open.is_(True),
            ClientRequest.expires_at <= clock.now(),
        )
    )


def _enforce_limits(actor: Actor) -> None:
    bucket = rate_limits.bucket_key("client requests", str(actor.user_id))
    if not rate_limits.consume_quota(actor.organization_id, bucket, MAX_PER_USER_PER_DAY, timedelta(days=1)):
        raise TooManyRequests("You requested too many apps today. Try again tomorrow.", retry_after=3600)
    pending = select(ClientRequest.id).where(
        ClientRequest.organization_id == actor.organization_id, ClientRequest.status == OPEN
    )
    if count_rows(pending, MAX_PENDING) == MAX_PENDING:
        raise TooManyRequests(
            "Your administrators already have too many pending requests. Contact them directly.",
            retry_after=3600,
        )


_COUNT_OPEN = count_query(
    select(ClientRequest.id)
    .where(
        ClientRequest.organization_id == bindparam("organization_id"),
        ClientRequest.status == OPEN,
        ClientRequest.expires_at > bindparam("now", type_=ClientRequest.expires_at.type),
    )
    .limit(100)
)


def count_open_requests(actor: Actor) -> int:
    """Return the number of pending requests, at most a hundred; 0 if the actor may not see them."""
    if not actor.has_permission("clients:read"):
        return 0
    return int(_COUNT_OPEN.first(organization_id=actor.organization_id, now=clock.now())[0])


@read
def list_client_requests(
    actor: Actor, page_request: PageRequest = PageRequest(), *, filters: Mapping[str, str] = {}
) -> Page[ClientRequestRecord]:
    """Return a page of the requests, newest first; ``filters`` are of FILTERS. Raises InvalidInput, Forbidden."""
    actor.require("clients:read")
    statement = _visible(actor).where(
        *filter_conditions(ClientRequest, read_filters(actor, FILTERS, filters))
    )
    return read_page(statement, (ClientRequest.id,), page_request).map(build_record)


@read
def get_client_request(actor: Actor, request_id: str) -> ClientRequestRecord:
    """Return one request. Raises NotFound, Forbidden."""
    actor.require("clients:read")
    return find_client_request(actor, request_id)


def find_client_request(actor: Actor, request_id: str) -> ClientRequestRecord:
    """Return the request without a permission check, for other operations. Raises NotFound."""
    statement = _visible(actor).where(ClientRequest.id == parse_public_id(PREFIX, request_id))
    return build_record(get_row(statement, "There is no such request."))


def _visible(actor: Actor) -> Select[Any]:
    return (
        select(*COLUMNS)
        .join(Client, is_same(Client.id, ClientRequest.client_id))
        .join(User, is_same(User.id, ClientRequest.user_id))
        .where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.expires_at > clock.now(),
            Client.status != DELETED,
        )
    )


@transaction
def delete_requests_of_user(actor: Actor, user_id: UUID) -> None:
    """Delete the user's requests with their reasons, when the account is deleted."""
    count_changed(
        delete(ClientRequest).where(
            ClientRequest.organization_id == actor.organization_id, ClientRequest.user_id == user_id
        )
    )


class ClientChanged(Conflict):
    """The client changed after the administrator reviewed it."""

    code = "client_changed"


@transaction
def approve_client_request(
    actor: Actor, request_id: str, fields: Mapping[str, Any] | None = None
) -> ClientRequestRecord:
    """Approve the client for all members, close all requests for it, and notify their members.

    ``fields``: ``verified`` also marks the client as verified; ``client_version`` is the version that was reviewed.
    Raises NotFound, Forbidden, InvalidInput, AlreadyDecided, ClientChanged, and Conflict for a blocked client.
    Audit: ``client_request.approved``, ``client.updated``.
    """
    actor.require("clients:trust")
    approval = parse_shape(ClientApproval, fields or {})
    request = find_client_request(actor, request_id)
    # The permission to decide about clients includes these changes, even without the permission to edit clients.
    decider = replace(actor, permissions=actor.permissions | {"clients:read", "clients:write"})
    # Before the request, which others close after they changed the client. Closing it locks the client in shared mode.
    hold_client(decider, request.client_id)
    client = get_client(decider, request.client_id)
    if client.approval == BLOCKED:
        raise Conflict("This client is blocked. Unblock it on its page first.", code="client_blocked")
    if approval.client_version not in {None, client.version}:
        raise ClientChanged(
            "The client has changed since you opened this page. Review it again before you decide."
        )
    _decide(actor, request, APPROVED, None)
    changes: dict[str, Any] = {"approval": approval_after(client.approval)}
    if approval.verified and client.trust == UNVERIFIED:
        changes["trust"] = VERIFIED
    # At the version that was read, so that a concurrent block is not undone.
    update_client(decider, client.client_id, changes, expected_version=client.version)
    others = _close_others(actor, client)
    _record(actor, request, "client_request.approved", {**changes, "closed_beside": len(others)})
    for member in [request.member_id, *others][:MAX_NOTIFIED]:
        notify_user(actor, member, "client_request_approved", client=client.name)
    return find_client_request(actor, request_id)


@transaction
def decline_client_request(
    actor: Actor, request_id: str, fields: Mapping[str, Any] | None = None
) -> ClientRequestRecord:
    """Decline the request and notify the member. The client does not change.

    ``fields``: ``message``, a text for the member. Raises NotFound, Forbidden, InvalidInput, AlreadyDecided. Audit:
    ``client_request.declined``.
    """
    actor.require("clients:trust")
    message = parse_shape(ClientRefusal, fields or {}).message or None
    request = find_client_request(actor, request_id)
    hold_client(actor, request.client_id)
    _decide(actor, request, DECLINED, message)
    _record(actor, request, "client_request.declined", {"message": message})
    notify_user(
        actor,
        request.member_id,
        "client_request_declined",
        client=request.client_name,
        message=message or "",
    )
    return find_client_request(actor, request_id)


def _decide(actor: Actor, request: ClientRequestRecord, status: str, message: str | None) -> None:
    """Close the request. Raises AlreadyDecided if another decision was first."""
    changed = count_changed(
        update(ClientRequest)
        .where(has_key(ClientRequest, actor.organization_id, request.id), ClientRequest.is_open.is_(True))
        .values(**decision_columns(actor, status), message=message)
    )
    if changed != 1:
        raise AlreadyDecided("Another administrator has already approved or declined this request.")


def _close_others(actor: Actor, client: ClientRecord) -> list[UUID]:
    """Approve all other pending requests for the client; return some of their members."""
    members = select(ClientRequest.user_id).where(
        ClientRequest.organization_id == actor.organization_id,
        ClientRequest.client_id == client.id,
        ClientRequest.is_open.is_(True),
    )
    found = list(db.session.scalars(members.limit(MAX_NOTIFIED)))
    close_client_requests(actor, client.id, APPROVED)
    return found


def _record(actor: Actor, request: ClientRequestRecord, action: str, after: Mapping[str, Any]) -> None:
    audit.record(
        actor,
        action,
        "client_request",
        request.public_id,
        before={"client_id": request.client_id, "user": request.user_id, "reason": request.reason},
        after=dict(after),
    )
