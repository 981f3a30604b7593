"""Read the audit log: pages, single events, the export, names of targets, and the activity of one account."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, bindparam, false, not_, or_, select

from app.extensions import db
from app.fast_path.compiled_query import ListQuery
from app.models.audit import AuditEvent, Webhook
from app.models.base import is_same
from app.models.client import Client, Credential, Resource
from app.models.grant import Grant
from app.models.identity_provider import IdentityProvider, ProvisioningToken
from app.models.user import DELETED, Group, User
from app.operations.directory import lookups
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import find_user_by_email
from app.operations.store import clock
from app.operations.store.replica import read_log
from app.operations.store.rows import (
    Page,
    PageRequest,
    get_row,
    iterate_rows,
    make_record,
    merge_pages,
    read_page,
)
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.audit.events import ACCOUNT_EVENTS, FieldChange, diff_documents
from app.rules.errors import NotFound, OrganizationMoving
from app.rules.filters import Filters, read_filters, text_filter, time_filter
from app.rules.identifiers import HasPublicId, first_id_at, parse_client_id, parse_public_id, public_id
from app.rules.shapes import rfc3339

PREFIX = "evt"
FILTERS: Filters = {
    "action": text_filter(
        "An action such as `client.registered`, or its beginning: `client` matches `client.…`."
    ),
    "actor": text_filter(
        "Done by this user, client or identity provider: `usr_…`, `cli_…`, `idp_…`, or the email of a user."
    ),
    "target": text_filter("Done to the object with this ID, or to the user with this email."),
    "ip_address": text_filter("From exactly this IP address."),
    "since": time_filter("At or after this time (RFC 3339)."),
    "until": time_filter("Before this time (RFC 3339)."),
    "request_id": text_filter("In the request with this `X-Request-Id`."),
}
EXPORT_BATCH = 500
# Ids are made with the process's clock and times with the database's. The clocks may differ by this much.
_MAX_CLOCK_SKEW = timedelta(minutes=5)
# No request takes longer. Events that it caused later have no request id.
_MAX_REQUEST_DURATION = timedelta(hours=1)
# Events that keep the last name of a deleted object.
_DELETION_ACTIONS = ("client.deleted", "resource.deleted", "group.deleted", "identity_provider.deleted")
_BULK_REVOCATION = "tokens.revoked"
ACTIVITY_WINDOW = timedelta(days=90)


class AuditRecord(HasPublicId, Struct, frozen=True):
    """One event. ``actor_organization`` is the slug of another organization that acted here (root), or None."""

    id_prefix = PREFIX
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
    def changes(self) -> tuple[FieldChange, ...]:
        """The fields that the event changed."""
        return diff_documents(self.before, self.after)


@read
def list_audit_events(
    actor: Actor, page_request: PageRequest = PageRequest(), *, filters: Mapping[str, str] = {}
) -> Page[AuditRecord]:
    """Return a page of the organization's audit log, newest first.

    ``filters`` are of FILTERS. Raises InvalidInput, Forbidden.
    """
    statement = _matching(actor, filters)
    return read_page(statement, (AuditEvent.id,), page_request, read_rows=read_log).map(_record)


@read
def get_audit_event(actor: Actor, public: str) -> AuditRecord:
    """Return one event. Raises NotFound, Forbidden."""
    statement = _matching(actor, {}).where(AuditEvent.id == parse_public_id(PREFIX, public))
    return _record(get_row(statement, "There is no such event in the audit log."))


def export_audit_events(actor: Actor, *, filters: Mapping[str, str] = {}) -> Iterator[AuditRecord]:
    """Iterate over all matching events, oldest first, in batches. The filters are those of the list.

    Raises InvalidInput and Forbidden immediately, not at the first event.
    """
    rows = iterate_rows(
        _matching(actor, filters),
        AuditEvent.id,
        EXPORT_BATCH,
        read_rows=lambda statement: read_log(statement, rows=EXPORT_BATCH),
    )
    return map(_record, rows)


def event_document(record: AuditRecord, slug: str) -> dict[str, Any]:
    """Return the JSON object of an event in the log of the organization, as the API represents it."""
    return {
        "id": record.public_id,
        "organization_id": slug,
        "occurred_at": rfc3339(record.at),
        "action": record.action,
        "actor": {
            "type": record.actor_kind,
            "id": record.actor_id,
            "label": record.actor_label,
            "organization_id": record.actor_organization or slug,
        },
        "target": {"type": record.target_type, "id": record.target_id},
        "before": record.before,
        "after": record.after,
        "ip_address": record.address,
        "request_id": record.request_id,
    }


def _matching(actor: Actor, filters: Mapping[str, str]) -> Select[Any]:
    actor.require("audit:read")
    settings = lookups.get_organization_by_id(actor.organization_id, fresh=False).settings
    # Events past the retention period are hidden, even if the janitor has not deleted them yet.
    kept_since = clock.now() - timedelta(days=settings["audit"]["retention_days"])
    statement = select(AuditEvent.__table__).where(
        AuditEvent.organization_id == actor.organization_id, AuditEvent.id >= first_id_at(kept_since)
    )
    values = read_filters(actor, FILTERS, filters)
    for name in {"actor", "target"} & values.keys():
        user = find_user_by_email(actor.organization_id, values[name])
        values[name] = values[name] if user is None else user.public_id
    return statement.where(*(_CONDITIONS[name](value) for name, value in values.items()))


def _is_action(wanted: str) -> ColumnElement[bool]:
    # No action has two dots. One action's events are in the order of their ids in its index, several actions' are not.
    if "." in wanted:
        return AuditEvent.action == wanted
    # "/" follows "." in ASCII, so all actions that begin with these words lie between.
    below = (AuditEvent.action >= f"{wanted}.") & (AuditEvent.action < f"{wanted}/")
    return or_(AuditEvent.action == wanted, below)


def _is_of_request(request_id: str) -> ColumnElement[bool]:
    made = parse_public_id("req", request_id)
    if made is None:
        return false()
    last = made.int + (int(_MAX_REQUEST_DURATION.total_seconds() * 1000) << 80)
    window = (AuditEvent.id >= UUID(int=made.int >> 80 << 80)) & (AuditEvent.id < UUID(int=last % (1 << 128)))
    return (AuditEvent.request_id == request_id) & window


# Ids are ordered by time, so those of times limit the query to a range of the primary key.
_CONDITIONS: Mapping[str, Callable[[Any], ColumnElement[bool]]] = {
    "action": _is_action,
    "actor": lambda value: AuditEvent.actor_id == value,
    "target": lambda value: AuditEvent.target_id == value,
    "ip_address": lambda value: AuditEvent.address == value,
    "since": lambda at: (AuditEvent.at >= at) & (AuditEvent.id >= first_id_at(at - _MAX_CLOCK_SKEW)),
    "until": lambda at: (AuditEvent.at < at) & (AuditEvent.id < first_id_at(at + _MAX_CLOCK_SKEW)),
    "request_id": _is_of_request,
}


def _record(row: Any) -> AuditRecord:
    return make_record(AuditRecord, row, actor_organization=_foreign_organization(row))


def _foreign_organization(row: Any) -> str | None:
    # The service itself has no organization. Only root acts in other organizations.
    is_own = row.actor_organization in {"", row.organization_id} or row.actor_kind == "system"
    if is_own:
        return None
    try:
        return lookups.get_organization_by_id(row.actor_organization, fresh=False).slug
    except (NotFound, OrganizationMoving):
        # The root of the cell or installation that the organization came from.
        return str(row.actor_organization)


class NamedTarget(Struct, frozen=True):
    """The name of a target, or its last name if it was deleted."""

    name: str
    is_deleted: bool = False


@read
def find_target_names(actor: Actor, events: Iterable[AuditRecord]) -> dict[UUID, NamedTarget]:
    """Find the names of event targets, by event id: the client of a grant, the user of an administrator.

    Targets without a name, and those whose name was erased, are left out. One query per kind of target, however many
    events. Raises Forbidden.
    """
    actor.require("audit:read")
    ids = {event.id: found for event in events if (found := _target(event)) is not None}
    named = find_names(actor, ids.values())
    return {event_id: named[found] for event_id, found in ids.items() if found in named}


@read
def find_names(actor: Actor, ids: Iterable[str]) -> dict[str, NamedTarget]:
    """Find the names of objects of the actor's organization by public id, including deleted clients and APIs.

    For ids that the actor has already seen, so no permission is required.
    """
    organization_id, wanted = actor.organization_id, set(ids)
    found: dict[str, NamedTarget] = {}
    for prefix, query in _NAME_QUERIES.items():
        rows = {
            row_id: text for text in wanted if (row_id := _row_id(organization_id, prefix, text)) is not None
        }
        if rows:
            named = query.rows([*rows], organization_id=organization_id)
            found |= {rows[row[0]]: NamedTarget(*row[1:]) for row in named}
    return found | _find_deleted_names(organization_id, wanted - set(found))


def _target(event: AuditRecord) -> str | None:
    if event.target_type != "administrator":
        return event.target_id
    # The assignment is deleted with the role. The event says which user had it.
    found = (event.after or event.before or {}).get("user_id")
    return found if isinstance(found, str) else None


# By prefix of the public id: the model, and its ids with their names and whether the object was deleted.
_NAMES: Mapping[str, tuple[Any, Select[*tuple[Any, ...]]]] = {
    "cli": (Client, select(Client.id, Client.name, Client.deleted_at.is_not(None))),
    "usr": (User, select(User.id, User.email).where(User.status != DELETED)),
    "sec": (
        Credential,
        select(Credential.id, Credential.name + " · " + Client.name).join(
            Client, is_same(Client.id, Credential.client_id)
        ),
    ),
    "grt": (
        Grant,
        select(Grant.id, Client.name, Client.deleted_at.is_not(None)).join(
            Client, is_same(Client.id, Grant.client_id)
        ),
    ),
    "res": (Resource, select(Resource.id, Resource.name)),
    "grp": (Group, select(Group.id, Group.name)),
    "idp": (IdentityProvider, select(IdentityProvider.id, IdentityProvider.name)),
    "pvt": (
        ProvisioningToken,
        select(ProvisioningToken.id, IdentityProvider.name).join(
            IdentityProvider, is_same(IdentityProvider.id, ProvisioningToken.provider_id)
        ),
    ),
    "whk": (
        Webhook,
        select(Webhook.id, Webhook.description, Webhook.deleted_at.is_not(None)).where(
            Webhook.description != ""
        ),
    ),
}


_NAME_QUERIES = {
    prefix: ListQuery(named.where(model.organization_id == bindparam("organization_id")), model.id)
    for prefix, (model, named) in _NAMES.items()
}


def _row_id(organization_id: str, prefix: str, text: str) -> UUID | None:
    if prefix != "cli":
        return parse_public_id(prefix, text)
    parsed = parse_client_id(text)
    return parsed[1] if parsed is not None and parsed[0] == organization_id else None


def _find_deleted_names(organization_id: str, ids: set[str]) -> dict[str, NamedTarget]:
    """Find the last names of objects that were purged."""
    ids = {text for text in ids if text.startswith(("cli_", "res_", "grp_", "idp_"))}
    if not ids:
        return {}
    rows = db.session.execute(
        select(AuditEvent.target_id, AuditEvent.before).where(
            AuditEvent.organization_id == organization_id,
            AuditEvent.target_id.in_(ids),
            AuditEvent.action.in_(_DELETION_ACTIONS),
        )
    )
    return {
        str(text): NamedTarget(str(before["name"]), True)
        for text, before in rows
        if before and "name" in before
    }


class ActivityRecord(Struct, frozen=True):
    """One event of a user's own account. ``client_id`` and ``client`` are the app that it concerns, if any."""

    id: UUID
    at: datetime
    action: str
    is_own: bool
    by: str
    address: str | None
    client_id: str | None
    client: NamedTarget | None
    after: Mapping[str, Any] | None


@read
def list_activity(actor: Actor, page_request: PageRequest = PageRequest()) -> Page[ActivityRecord]:
    """Return a page of events that concern the actor's own account, newest first. Raises Forbidden for others."""
    user_id = public_id("usr", actor.require_own_account())
    # What administrators do with other accounts and with tokens of the organization is no activity of their own.
    is_about_others = (AuditEvent.target_type == "user") | (AuditEvent.action == _BULK_REVOCATION)
    done = (AuditEvent.actor_id == user_id) & or_(AuditEvent.target_type.is_(None), not_(is_about_others))
    # Read two index ranges and merge them here, because the database would sort a union completely.
    page = merge_pages(
        [
            read_page(_own_events(actor, own), (AuditEvent.id,), page_request)
            for own in (done, AuditEvent.target_id == user_id)
        ],
        page_request,
    )
    clients = {client_id for row in page.items if (client_id := _client_id(row))}
    names = find_names(actor, clients) if clients else {}
    return page.map(lambda row: _activity(row, user_id, names))


def _own_events(actor: Actor, own: Any) -> Select[Any]:
    settings = get_organization_by_id(actor.organization_id, fresh=False).settings
    retention = timedelta(days=settings["audit"]["retention_days"])
    return select(AuditEvent.__table__).where(
        AuditEvent.organization_id == actor.organization_id,
        own,
        AuditEvent.action.in_(ACCOUNT_EVENTS),
        AuditEvent.id >= first_id_at(clock.now() - min(ACTIVITY_WINDOW, retention)),
    )


def _client_id(row: Any) -> str | None:
    # What others withdraw is about the user, and names the client beside.
    client_id = row.target_id if row.target_type == "client" else (row.before or {}).get("client_id")
    return client_id if isinstance(client_id, str) and parse_client_id(client_id) else None


def _activity(row: Any, user_id: str, names: Mapping[str, NamedTarget]) -> ActivityRecord:
    # A user who signs up has no id yet: the service creates the account.
    signed_up = row.action == "user.registered" and row.actor_kind == "system"
    is_own = row.actor_id == user_id or signed_up
    client_id = _client_id(row)
    return ActivityRecord(
        id=row.id,
        at=row.at,
        action=row.action,
        is_own=is_own,
        by=row.actor_label,
        # Users must not see the IP address of an administrator.
        address=row.address if is_own or row.actor_kind == "anonymous" else None,
        client_id=client_id,
        client=names.get(client_id or ""),
        after=row.after,
    )
