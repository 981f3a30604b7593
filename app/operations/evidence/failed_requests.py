"""The log of failed requests, for those who may read it: all of an organization's, or those of one's own clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, false, func, select

from app.extensions import db
from app.models.client import Client
from app.models.failed_request import FailedRequest
from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import FieldError, InvalidInput, NotFound
from app.rules.evidence.failure_causes import CAUSES, Explanation
from app.rules.identifiers import (
    client_id_of,
    encode_uuid,
    parse_client_id,
    parse_public_id,
    public_id,
)

PREFIX = "flr"
LONGEST_FILTER = 64
FILTERS = ("client_id", "cause", "endpoint", "request_id", "since")
_SIMILAR_WITHIN = timedelta(days=1)
_MOST_COUNTED = 1000


@dataclass(frozen=True, slots=True)
class FailedRequestRecord:
    """One refused request. ``similar`` counts those of the same client and cause in the day before, where asked."""

    id: UUID
    at: datetime
    request_id: str
    client_id: str
    client_name: str
    client_created_by_user_id: UUID | None
    endpoint: str
    method: str
    status: int
    error: str
    description: str
    cause: str
    received: str | None
    expected: tuple[str, ...]
    parameters: Mapping[str, str]
    address: str | None
    similar: int | None = None
    similar_since: datetime | None = None

    @property
    def public_id(self) -> str:
        """``flr_…``."""
        return public_id(PREFIX, self.id)

    @property
    def explanation(self) -> Explanation:
        """What happened, and how to mend it."""
        return CAUSES.get(self.cause, CAUSES["refused"])


def may_read_log(actor: Actor) -> bool:
    """Whether the actor may read the log, at least of the own clients: who may not is not led there."""
    return actor.may_some("logs:read")


@read
def list_failed_requests(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    filters: Mapping[str, str] | None = None,
) -> Page[FailedRequestRecord]:
    """A page of the log, the newest first; with ``logs:read:own`` of the clients that the actor registered.

    ``filters`` are of FILTERS and exact, ``since`` is a time of RFC 3339. Raises InvalidInput, Forbidden.
    """
    statement = _visible(actor)
    for condition in _conditions(actor, filters or {}):
        statement = statement.where(condition)
    limit = min(limit, MOST)
    # Ids are ordered by the time of writing, a moment after the refusal.
    rows = db.session.execute(in_order(statement, (FailedRequest.id,), after).limit(limit + 1)).all()
    items = tuple(_record(row) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


@read
def get_failed_request(actor: Actor, public: str) -> FailedRequestRecord:
    """One entry, with how often the same happened lately. Raises NotFound, Forbidden."""
    row_id = parse_public_id(PREFIX, public)
    row = None
    statement = _visible(actor)
    if row_id is not None:
        row = db.session.execute(statement.where(FailedRequest.id == row_id)).first()
    if row is None:
        raise NotFound("There is no such entry in the log of failed requests.")
    alike = (
        select(FailedRequest.at)
        .where(
            FailedRequest.organization_id == actor.organization_id,
            FailedRequest.client_id == row.client_id,
            FailedRequest.cause == row.cause,
            FailedRequest.at > row.at - _SIMILAR_WITHIN,
            FailedRequest.id <= row.id,
        )
        .order_by(FailedRequest.id.desc())
        .limit(_MOST_COUNTED)
        .subquery()
    )
    similar, since = db.session.execute(select(func.count(), func.min(alike.c.at))).one()
    return _record(row, similar=int(similar), since=since)


def _visible(actor: Actor) -> Select[Any]:
    actor.require_some("logs:read")
    now = clock.now()
    settings = organization_by_id(actor.organization_id, fresh=False).settings
    kept_since = now - timedelta(days=settings["audit"]["log_retention_days"])
    statement = (
        select(FailedRequest.__table__, Client.name.label("client_name"), Client.created_by_user_id)
        .join(
            Client,
            (Client.organization_id == FailedRequest.organization_id)
            & (Client.id == FailedRequest.client_id),
        )
        .where(
            FailedRequest.organization_id == actor.organization_id,
            FailedRequest.expires_at > now,
            FailedRequest.at > kept_since,
        )
    )
    if actor.may("logs:read"):
        return statement
    # A client registers nothing of its own: without a person behind it, ``:own`` shows nothing.
    return statement.where(false() if actor.user_id is None else Client.created_by_user_id == actor.user_id)


def _conditions(actor: Actor, filters: Mapping[str, str]) -> list[ColumnElement[bool]]:
    errors = [
        FieldError(name, "unknown_parameter", "There is no such filter.")
        for name in filters
        if name not in FILTERS
    ]
    found: list[ColumnElement[bool]] = []
    if "client_id" in filters:
        parsed = parse_client_id(filters["client_id"])
        if parsed is None:
            raise InvalidInput("This is no client_id of ours.", field="client_id")
        own = parsed[0] == actor.organization_id
        found.append(FailedRequest.client_id == parsed[1] if own else false())
    if "cause" in filters:
        if filters["cause"] not in CAUSES:
            errors.append(FieldError("cause", "not_allowed", "There is no such cause."))
        found.append(FailedRequest.cause == filters["cause"])
    for name, column in (("endpoint", FailedRequest.endpoint), ("request_id", FailedRequest.request_id)):
        if name in filters:
            if len(filters[name]) > LONGEST_FILTER:
                errors.append(
                    FieldError(name, "too_long", f"This has more than {LONGEST_FILTER} characters.")
                )
            found.append(column == filters[name])
    if "since" in filters:
        since = _time(filters["since"])
        if since is None:
            errors.append(
                FieldError("since", "invalid_format", "This must be a time, such as 2026-11-21T14:02:11Z.")
            )
        else:
            found.append(FailedRequest.at >= since)
    if errors:
        raise InvalidInput.of(errors)
    return found


def _time(text: str) -> datetime | None:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        return None
    return value if value.tzinfo is not None and 2000 <= value.year < 2200 else None


def _record(row: Any, *, similar: int | None = None, since: datetime | None = None) -> FailedRequestRecord:
    return FailedRequestRecord(
        id=row.id,
        at=row.at,
        request_id=row.request_id,
        client_id=client_id_of(row.organization_id, row.client_id),
        client_name=row.client_name,
        client_created_by_user_id=row.created_by_user_id,
        endpoint=row.endpoint,
        method=row.method,
        status=row.status,
        error=row.error,
        description=row.description,
        cause=row.cause,
        received=row.received,
        expected=tuple(row.expected),
        parameters=row.parameters,
        address=row.address,
        similar=similar,
        similar_since=since,
    )
