"""The audit log as it is read: page by page, one event, or all of it one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, false, or_, select

from app.extensions import db
from app.models.audit import AuditEvent
from app.operations import clock, directory
from app.operations.pages import DEFAULT_LIMIT, MOST, CursorKey, Page, in_order
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.evidence.changes import Change, changes_between
from app.rules.fields import Findings, find_unknown
from app.rules.identifiers import encode_uuid, first_id_at, parse_public_id, public_id

PREFIX = "evt"
LONGEST_FILTER = 64
FILTERS = ("action", "actor", "target", "since", "until", "request_id")
EXPORT_BATCH = 500
# An event's id is made in the process, its time is the database's: clocks may differ by so much.
_CLOCKS = timedelta(minutes=5)
# No request is at work for longer; what it caused afterwards stands under no request.
_LONGEST_REQUEST = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One event. ``actor_organization`` is the slug of another organization that acted here: root's, or None."""

    id: UUID
    at: datetime
    action: str
    actor_kind: str
    actor_id: str | None
    actor_label: str
    actor_organization: str | None
    target_type: str | None
    target_id: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    address: str | None
    request_id: str | None

    @property
    def public_id(self) -> str:
        """``evt_…``."""
        return public_id(PREFIX, self.id)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The fields that it changed."""
        return changes_between(self.before, self.after)


@read
def list_audit_events(
    actor: Actor,
    *,
    limit: int = DEFAULT_LIMIT,
    after: CursorKey | None = None,
    filters: Mapping[str, str] | None = None,
) -> Page[AuditRecord]:
    """A page of the organization's audit log, the newest first.

    ``filters`` are of FILTERS: ``action`` is a whole action or the first words of several (``client``), ``since``
    (included) and ``until`` (excluded) are times of RFC 3339, the others are exact. Raises InvalidInput, Forbidden.
    """
    statement = _matching(actor, filters or {})
    limit = min(limit, MOST)
    rows = db.session.execute(in_order(statement, (AuditEvent.id,), after).limit(limit + 1)).all()
    items = tuple(_record(row) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


@read
def get_audit_event(actor: Actor, public: str) -> AuditRecord:
    """One event. Raises NotFound, Forbidden."""
    row_id = parse_public_id(PREFIX, public)
    statement = _matching(actor, {})
    row = None if row_id is None else db.session.execute(statement.where(AuditEvent.id == row_id)).first()
    if row is None:
        raise NotFound("There is no such event in the audit log.")
    return _record(row)


def export_audit_events(actor: Actor, *, filters: Mapping[str, str] | None = None) -> Iterator[AuditRecord]:
    """Every event that matches, the oldest first, read a batch at a time; filters as those of the list.

    What is wrong with the call is raised before the first event is asked for.
    """
    statement = _matching(actor, filters or {})
    return _all_of(statement)


def _all_of(statement: Select[Any]) -> Iterator[AuditRecord]:
    after: UUID | None = None
    while True:
        rows = _batch(statement, after)
        yield from map(_record, rows)
        if len(rows) < EXPORT_BATCH:
            return
        after = rows[-1].id


@read
def _batch(statement: Select[Any], after: UUID | None) -> list[Any]:
    rest = statement if after is None else statement.where(AuditEvent.id > after)
    return list(db.session.execute(rest.order_by(AuditEvent.id).limit(EXPORT_BATCH)).all())


def _matching(actor: Actor, filters: Mapping[str, str]) -> Select[Any]:
    actor.require("audit:read")
    settings = directory.organization_by_id(actor.organization_id, fresh=False).settings
    # What the organization keeps no longer is shown no longer, however late the janitor comes.
    kept_since = clock.now() - timedelta(days=settings["audit"]["retention_days"])
    statement = select(AuditEvent.__table__).where(
        AuditEvent.organization_id == actor.organization_id, AuditEvent.id >= first_id_at(kept_since)
    )
    for condition in _conditions(filters):
        statement = statement.where(condition)
    return statement


def _conditions(filters: Mapping[str, str]) -> Iterator[ColumnElement[bool]]:
    findings = Findings()
    find_unknown(findings, filters, FILTERS, noun="filter")
    for name, value in filters.items():
        if name in FILTERS and len(value) > LONGEST_FILTER:
            findings.add(name, "too_long", f"This has more than {LONGEST_FILTER} characters.")
    since, until = (_time(findings, filters, name) for name in ("since", "until"))
    findings.raise_if_any()
    if "action" in filters:
        yield _is_action(filters["action"])
    for name, column in (("actor", AuditEvent.actor_id), ("target", AuditEvent.target_id)):
        if name in filters:
            yield column == filters[name]
    # Ids are ordered by time: the bounds make each of these a range of the primary key.
    if since is not None:
        yield (AuditEvent.at >= since) & (AuditEvent.id >= first_id_at(since - _CLOCKS))
    if until is not None:
        yield (AuditEvent.at < until) & (AuditEvent.id < first_id_at(until + _CLOCKS))
    if "request_id" in filters:
        yield _is_of_request(filters["request_id"])


def _is_action(wanted: str) -> ColumnElement[bool]:
    # "/" follows "." among the characters: all that begins with the words lies between.
    below = (AuditEvent.action >= f"{wanted}.") & (AuditEvent.action < f"{wanted}/")
    return or_(AuditEvent.action == wanted, below)


def _is_of_request(request_id: str) -> ColumnElement[bool]:
    made = parse_public_id("req", request_id)
    if made is None:
        return false()
    last = made.int + (int(_LONGEST_REQUEST.total_seconds() * 1000) << 80)
    window = (AuditEvent.id >= UUID(int=made.int >> 80 << 80)) & (AuditEvent.id < UUID(int=last % (1 << 128)))
    return (AuditEvent.request_id == request_id) & window


def _time(findings: Findings, filters: Mapping[str, str], name: str) -> datetime | None:
    if name not in filters:
        return None
    try:
        value = datetime.fromisoformat(filters[name])
    except ValueError:
        value = None
    if value is None or value.tzinfo is None or not 2000 <= value.year < 2200:
        findings.add(name, "invalid_format", "This must be a time, such as 2026-11-21T14:02:11Z.")
        return None
    return value


def _record(row: Any) -> AuditRecord:
    return AuditRecord(
        id=row.id,
        at=row.at,
        action=row.action,
        actor_kind=row.actor_kind,
        actor_id=row.actor_id,
        actor_label=row.actor_label,
        actor_organization=_stranger(row),
        target_type=row.target_type,
        target_id=row.target_id,
        before=row.before,
        after=row.after,
        address=row.address,
        request_id=row.request_id,
    )


def _stranger(row: Any) -> str | None:
    # The service itself has no home; of organizations, root alone acts in others.
    is_own = row.actor_organization in {"", row.organization_id} or row.actor_kind == "system"
    return None if is_own else directory.organization_by_id(row.actor_organization, fresh=False).slug
