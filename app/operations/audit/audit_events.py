"""The audit log as it is read: page by page, one event, or all of it one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, false, or_, select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import Client
from app.models.credential import Credential
from app.models.grant import Grant
from app.models.resource import Resource
from app.models.user import DELETED, User
from app.models.webhook import Webhook
from app.operations.directory import lookups
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import clock
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, paginate
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.audit.events import ACCOUNT_EVENTS, Change, changes_between
from app.rules.errors import NotFound
from app.rules.fields import Findings, find_unknown
from app.rules.identifiers import encode_uuid, first_id_at, parse_client_id, parse_public_id, public_id

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
    limit = min(limit, MAX_LIMIT)
    rows = db.session.execute(paginate(statement, (AuditEvent.id,), after).limit(limit + 1)).all()
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
    settings = lookups.get_organization_by_id(actor.organization_id, fresh=False).settings
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
    return None if is_own else lookups.get_organization_by_id(row.actor_organization, fresh=False).slug


# Whose last event keeps the name that the row had.
_ENDINGS = ("client.deleted", "resource.deleted")


@dataclass(frozen=True, slots=True)
class Named:
    """What something is called, or was when it ended."""

    name: str
    is_deleted: bool = False


@read
def names_in_events(actor: Actor, events: Iterable[AuditRecord]) -> dict[UUID, Named]:
    """By the event's id, what it was done to is called: the client of a grant, the person of an administrator.

    What never had a name, or whose name was erased with it, is left out. A query for each kind of thing, however many
    events. Raises Forbidden.
    """
    actor.require("audit:read")
    ids = {event.id: found for event in events if (found := _target(event)) is not None}
    named = _names(actor.organization_id, set(ids.values()))
    return {event_id: named[found] for event_id, found in ids.items() if found in named}


@read
def names_of(actor: Actor, ids: Iterable[str]) -> dict[str, Named]:
    """By their ids, the names of things of the actor's organization, of clients and APIs that are gone as well.

    For ids that the actor was shown: it asks for no permission of its own.
    """
    return _names(actor.organization_id, set(ids))


def _target(event: AuditRecord) -> str | None:
    if event.target_type != "administrator":
        return event.target_id
    # The row of a role goes with it; the event says whose it was.
    found = (event.after or event.before or {}).get("user_id")
    return found if isinstance(found, str) else None


def _names(organization_id: str, ids: set[str]) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for prefix, statement in _STATEMENTS.items():
        rows = {
            row_id: text for text in ids if (row_id := _row_id(organization_id, prefix, text)) is not None
        }
        if rows:
            wanted = statement(organization_id, list(rows))
            found |= {rows[row[0]]: Named(*row[1:]) for row in db.session.execute(wanted)}
    return found | _ended(organization_id, ids - set(found))


def _row_id(organization_id: str, prefix: str, text: str) -> UUID | None:
    if prefix != "cli":
        return parse_public_id(prefix, text)
    parsed = parse_client_id(text)
    return parsed[1] if parsed is not None and parsed[0] == organization_id else None


def _ended(organization_id: str, ids: set[str]) -> dict[str, Named]:
    """Of what was purged since, the name that its last event kept."""
    ids = {text for text in ids if text.startswith(("cli_", "res_"))}
    if not ids:
        return {}
    rows = db.session.execute(
        select(AuditEvent.target_id, AuditEvent.before).where(
            AuditEvent.organization_id == organization_id,
            AuditEvent.target_id.in_(ids),
            AuditEvent.action.in_(_ENDINGS),
        )
    )
    return {
        str(text): Named(str(before["name"]), True) for text, before in rows if before and "name" in before
    }


def _clients(organization_id: str, ids: list[UUID]) -> Any:
    return select(Client.id, Client.name, Client.deleted_at.is_not(None)).where(
        Client.organization_id == organization_id, Client.id.in_(ids)
    )


def _users(organization_id: str, ids: list[UUID]) -> Any:
    return select(User.id, User.email).where(
        User.organization_id == organization_id, User.id.in_(ids), User.status != DELETED
    )


def _secrets(organization_id: str, ids: list[UUID]) -> Any:
    return (
        select(Credential.id, Credential.name + " · " + Client.name)
        .join(
            Client,
            (Client.organization_id == Credential.organization_id) & (Client.id == Credential.client_id),
        )
        .where(Credential.organization_id == organization_id, Credential.id.in_(ids))
    )


def _grants(organization_id: str, ids: list[UUID]) -> Any:
    return (
        select(Grant.id, Client.name, Client.deleted_at.is_not(None))
        .join(Client, (Client.organization_id == Grant.organization_id) & (Client.id == Grant.client_id))
        .where(Grant.organization_id == organization_id, Grant.id.in_(ids))
    )


def _resources(organization_id: str, ids: list[UUID]) -> Any:
    return select(Resource.id, Resource.name).where(
        Resource.organization_id == organization_id, Resource.id.in_(ids)
    )


def _webhooks(organization_id: str, ids: list[UUID]) -> Any:
    return select(Webhook.id, Webhook.description, Webhook.deleted_at.is_not(None)).where(
        Webhook.organization_id == organization_id, Webhook.id.in_(ids), Webhook.description != ""
    )


_STATEMENTS = {
    "cli": _clients,
    "usr": _users,
    "sec": _secrets,
    "grt": _grants,
    "res": _resources,
    "whk": _webhooks,
}


SHOWN = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Activity:
    """One thing that happened; ``client_id`` and ``client`` say which app it was about, if any."""

    id: UUID
    at: datetime
    action: str
    is_own: bool
    by: str
    address: str | None
    client_id: str | None
    client: Named | None
    after: Mapping[str, Any] | None


@read
def list_activity(
    actor: Actor, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[Activity]:
    """A page of what concerned the actor's own account, the newest first. Raises Forbidden outside of it."""
    me = public_id("usr", actor.require_own_account())
    limit = min(limit, MAX_LIMIT)
    # Two ranges, each of its own index; a union of them would be sorted whole.
    found = {
        row.id: row
        for column in (AuditEvent.actor_id, AuditEvent.target_id)
        for row in _events(actor, column == me, limit, after)
    }
    rows = sorted(found.values(), key=lambda row: row.id.bytes, reverse=True)
    clients = {client_id for row in rows[:limit] if (client_id := _client_id(row))}
    names = names_of(actor, clients) if clients else {}
    items = tuple(_activity(row, me, names) for row in rows[:limit])
    return Page(items, (encode_uuid(rows[limit - 1].id),) if len(rows) > limit else None)


def _events(actor: Actor, own: Any, limit: int, after: CursorKey | None) -> list[Any]:
    settings = get_organization_by_id(actor.organization_id, fresh=False).settings
    kept = timedelta(days=settings["audit"]["retention_days"])
    statement = select(AuditEvent.__table__).where(
        AuditEvent.organization_id == actor.organization_id,
        own,
        AuditEvent.action.in_(ACCOUNT_EVENTS),
        AuditEvent.id >= first_id_at(clock.now() - min(SHOWN, kept)),
    )
    return list(db.session.execute(paginate(statement, (AuditEvent.id,), after).limit(limit + 1)).all())


def _client_id(row: Any) -> str | None:
    return row.target_id if row.target_type == "client" and parse_client_id(row.target_id or "") else None


def _activity(row: Any, me: str, names: Mapping[str, Named]) -> Activity:
    is_own = row.actor_id == me
    client_id = _client_id(row)
    return Activity(
        id=row.id,
        at=row.at,
        action=row.action,
        is_own=is_own,
        by=row.actor_label,
        # Where an administrator sat is no business of the account's owner.
        address=row.address if is_own or row.actor_kind == "anonymous" else None,
        client_id=client_id,
        client=names.get(client_id or ""),
        after=row.after,
    )
