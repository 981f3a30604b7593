"""Requests for clients: a member asks, one at a time for each client, and whoever decides about clients answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, false, func, insert, select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.client import DELETED, Client
from app.models.client_request import ClientRequest
from app.models.user import User
from app.operations import audit, clock
from app.operations.consents.client_request_records import (
    COLUMNS,
    PREFIX,
    ClientRequestRecord,
    record_of,
)
from app.operations.consents.request_letters import tell_administrators
from app.operations.database_errors import is_duplicate_key
from app.operations.directory import ClientView
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.people import attempts
from app.operations.transaction import current_unit, read, transaction
from app.rules.actor import Actor
from app.rules.consents.client_requests import OPEN, STATUSES, WAITS, check_reason
from app.rules.errors import Forbidden, InvalidInput, NotFound, TooManyRequests
from app.rules.fields import Findings, find_unknown
from app.rules.identifiers import (
    client_id_of,
    encode_uuid,
    new_id,
    parse_client_id,
    parse_public_id,
    public_id,
)

__all__ = [
    "ClientRequestRecord",
    "ask_for_client",
    "find_asked",
    "find_client_request",
    "forget_requests_of",
    "get_client_request",
    "list_client_requests",
]

FILTERS = ("status", "client_id")
MOST_A_DAY = 10
MOST_OPEN = 1_000
"""Of an organization: a queue that nobody reads must not grow for ever."""


@dataclass(frozen=True, slots=True)
class AskedClient:
    """A request that the member has open for a client."""

    asked_at: datetime
    reason: str


@read
def find_asked(actor: Actor, client: ClientView) -> AskedClient | None:
    """What the actor has open for the client, or None."""
    row = db.session.execute(
        select(ClientRequest.created_at, ClientRequest.reason).where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.client_id == client.id,
            ClientRequest.user_id == actor.user_id,
            ClientRequest.is_open.is_(True),
            ClientRequest.expires_at > clock.now(),
        )
    ).first()
    return None if row is None else AskedClient(row.created_at, row.reason)


@transaction
def ask_for_client(actor: Actor, client: ClientView, scopes: tuple[str, ...], reason: str) -> None:
    """The member's request waits for whoever decides about clients, who hear of it by mail.

    One that is open already stays as it is. Raises InvalidInput for a reason that is none, TooManyRequests after ten
    in a day or when a thousand wait, Forbidden for anybody but a signed-in user. Audit: ``client_request.created``.
    """
    if actor.kind != "user" or actor.user_id is None:
        raise Forbidden("Only a member of the organization asks for an app.")
    said = check_reason(reason)
    if find_asked(actor, client) is not None:
        return
    _require_room(actor)
    now = clock.now()
    row_id: UUID = current_unit().once("client request", new_id)
    values = {
        "organization_id": actor.organization_id,
        "id": row_id,
        "client_id": client.id,
        "user_id": actor.user_id,
        "is_open": True,
        "status": OPEN,
        "scope": " ".join(scopes),
        "reason": said,
        "created_at": now,
        "expires_at": now + WAITS,
    }
    _drop_ended(actor, client)
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
        target_type="client",
        target_id=client_id_of(actor.organization_id, client.id),
        after={"request": public_id(PREFIX, row_id), "scopes": list(scopes), "reason": said},
    )
    tell_administrators(actor, client, said)


def _drop_ended(actor: Actor, client: ClientView) -> None:
    # One that nobody answered in time would hold the place until the janitor has been.
    db.session.execute(
        delete(ClientRequest)
        .where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.client_id == client.id,
            ClientRequest.user_id == actor.user_id,
            ClientRequest.is_open.is_(True),
            ClientRequest.expires_at <= clock.now(),
        )
        .execution_options(synchronize_session=False)
    )


def _require_room(actor: Actor) -> None:
    bucket = attempts.bucket_of("client requests", str(actor.user_id))
    if not attempts.is_within(actor.organization_id, bucket, MOST_A_DAY, timedelta(days=1)):
        raise TooManyRequests("You asked for many apps today. Try again tomorrow.", retry_after=3600)
    waiting = select(ClientRequest.id).where(
        ClientRequest.organization_id == actor.organization_id, ClientRequest.status == OPEN
    )
    counted = db.session.scalar(select(func.count()).select_from(waiting.limit(MOST_OPEN).subquery()))
    if counted == MOST_OPEN:
        raise TooManyRequests(
            "Too many requests wait for your administrators. Tell them directly.", retry_after=3600
        )


@read
def count_open_requests(actor: Actor) -> int:
    """How many requests wait, a hundred at most; none for somebody who may not see them."""
    if not actor.may("clients:read"):
        return 0
    waiting = select(ClientRequest.id).where(
        ClientRequest.organization_id == actor.organization_id,
        ClientRequest.status == OPEN,
        ClientRequest.expires_at > clock.now(),
    )
    return int(db.session.scalar(select(func.count()).select_from(waiting.limit(100).subquery())) or 0)


@read
def list_client_requests(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    filters: Mapping[str, str] | None = None,
) -> Page[ClientRequestRecord]:
    """A page of the requests, the newest first; ``filters`` are of FILTERS. Raises InvalidInput, Forbidden."""
    actor.require("clients:read")
    statement = _visible(actor)
    for condition in _conditions(actor, filters or {}):
        statement = statement.where(condition)
    limit = min(limit, MOST)
    rows = db.session.execute(in_order(statement, (ClientRequest.id,), after).limit(limit + 1)).all()
    items = tuple(record_of(row) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


@read
def get_client_request(actor: Actor, request_id: str) -> ClientRequestRecord:
    """One request. Raises NotFound, Forbidden."""
    actor.require("clients:read")
    return find_client_request(actor, request_id)


def find_client_request(actor: Actor, request_id: str) -> ClientRequestRecord:
    """The request, for an operation that asked for a permission. Raises NotFound."""
    statement = _visible(actor)
    row_id = parse_public_id(PREFIX, request_id)
    row = None if row_id is None else db.session.execute(statement.where(ClientRequest.id == row_id)).first()
    if row is None:
        raise NotFound("There is no such request.")
    return record_of(row)


def _visible(actor: Actor) -> Select[Any]:
    return (
        select(*COLUMNS)
        .join(
            Client,
            (Client.organization_id == ClientRequest.organization_id)
            & (Client.id == ClientRequest.client_id),
        )
        .join(
            User, (User.organization_id == ClientRequest.organization_id) & (User.id == ClientRequest.user_id)
        )
        .where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.expires_at > clock.now(),
            Client.status != DELETED,
        )
    )


def _conditions(actor: Actor, filters: Mapping[str, str]) -> Iterator[ColumnElement[bool]]:
    findings = Findings()
    find_unknown(findings, filters, FILTERS, noun="filter")
    findings.raise_if_any()
    if "status" in filters:
        if filters["status"] not in STATUSES:
            raise InvalidInput(f"This must be one of: {', '.join(STATUSES)}.", field="status")
        yield ClientRequest.status == filters["status"]
    if "client_id" in filters:
        client = parse_client_id(filters["client_id"])
        if client is None:
            raise InvalidInput("This is no client_id of ours.", field="client_id")
        yield ClientRequest.client_id == client[1] if client[0] == actor.organization_id else false()


@transaction
def forget_requests_of(actor: Actor, user_id: UUID) -> None:
    """Nothing is left of what the user asked for: the reasons were their words. Part of the end of the account."""
    db.session.execute(
        delete(ClientRequest)
        .where(ClientRequest.organization_id == actor.organization_id, ClientRequest.user_id == user_id)
        .execution_options(synchronize_session=False)
    )
