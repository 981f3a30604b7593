"""The log of failed requests: read it, all of an organization's or those of one's own clients, and store rejected
requests in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, func, insert, select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.models.audit import FailedRequest, SampledRequest
from app.models.base import is_same
from app.models.client import Client, Credential
from app.models.grant import AuthorizationCode, Grant
from app.operations.clients.client_records import find_client_owner
from app.operations.directory import lookups
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.grants.grant_lists import restrict_to_own_clients
from app.operations.store import clock
from app.operations.store.rows import Page, PageRequest, filter_conditions, get_row, make_record, read_page
from app.operations.store.transactions import current_unit_of_work, read, transaction
from app.operations.store.usage_counters import FAILED, FAILED_USERS, counters
from app.rules.actor import Actor
from app.rules.audit.failed_requests import (
    CAUSES,
    PLAYGROUND,
    PLAYGROUND_MARK,
    Explanation,
    default_cause,
    redact_and_truncate,
)
from app.rules.clients.client_types import SECRET_METHODS
from app.rules.errors import Cause, Unavailable
from app.rules.filters import OF_CLIENT, Filters, choice_filter, read_filters, text_filter, time_filter
from app.rules.identifiers import HasPublicId, first_id_at, format_client_id, new_id, parse_public_id

PREFIX = "flr"
FILTERS: Filters = {
    "client_id": OF_CLIENT,
    "cause": choice_filter(CAUSES, "With this cause."),
    "endpoint": text_filter("At this endpoint."),
    "request_id": text_filter("With this `X-Request-Id`."),
    "since": time_filter("At or after this time (RFC 3339)."),
}
_SIMILAR_WINDOW = timedelta(days=1)
_MAX_SIMILAR = 1000
MAX_EXPECTED_VALUES = 50
# Ids are made with the process's clock and times with the database's. The clocks may differ by this much.
MAX_CLOCK_SKEW = timedelta(minutes=5)
_NONE = "none"
# The cause that was found last, by client and what the request was rejected with.
_causes: BoundedCache[str] = BoundedCache(10_000)
_log = logging.getLogger("gatehouse.failed_requests")


class FailedRequestRecord(HasPublicId, Struct, frozen=True):
    """One failed request. ``similar`` counts those of the same client and cause in the day before, if requested."""

    id_prefix = PREFIX
    id: UUID
    at: datetime
    request_id: str
    client_id: str
    client_name: str
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
    is_from_playground: bool = False
    similar: int | None = None
    similar_since: datetime | None = None

    @property
    def explanation(self) -> Explanation:
        """Return the explanation of the cause, with how to fix it."""
        return CAUSES.get(self.cause, CAUSES["refused"])


def can_read_failed_requests(actor: Actor) -> bool:
    """Return whether the actor may read the log, at least that of their own clients."""
    return actor.has_permission_for_own("logs:read")


@read
def can_read_requests_of(actor: Actor, client_row_id: UUID) -> bool:
    """Return whether the actor may read the log of this client of their organization."""
    if actor.has_permission("logs:read") or not can_read_failed_requests(actor):
        return actor.has_permission("logs:read")
    owner_id = find_client_owner(actor.organization_id, client_row_id)
    return actor.has_permission("logs:read", owner_id=owner_id)


@read
def list_failed_requests(
    actor: Actor, page_request: PageRequest = PageRequest(), *, filters: Mapping[str, str] = {}
) -> Page[FailedRequestRecord]:
    """Return a page of the log, newest first. With ``logs:read:own`` it has only clients that the actor owns.

    ``filters`` are of FILTERS. Raises InvalidInput, Forbidden.
    """
    statement = _select_visible(actor).where(*request_conditions(actor, FailedRequest, filters))
    # Ids are ordered by the time of writing, shortly after the request.
    return read_page(statement, (FailedRequest.id,), page_request).map(_record)


@read
def get_failed_request(actor: Actor, public: str) -> FailedRequestRecord:
    """Return one entry, with the number of similar recent ones. Raises NotFound, Forbidden."""
    statement = _select_visible(actor).where(FailedRequest.id == parse_public_id(PREFIX, public))
    row = get_row(statement, "There is no such failed request.")
    similar_requests = (
        select(FailedRequest.at)
        .where(
            FailedRequest.organization_id == actor.organization_id,
            FailedRequest.client_id == row.client_id,
            FailedRequest.cause == row.cause,
            FailedRequest.at > row.at - _SIMILAR_WINDOW,
            FailedRequest.id <= row.id,
        )
        .order_by(FailedRequest.id.desc())
        .limit(_MAX_SIMILAR)
        .subquery()
    )
    similar, since = db.session.execute(select(func.count(), func.min(similar_requests.c.at))).one()
    return _record(row, similar=int(similar), since=since)


def _select_visible(actor: Actor) -> Select[Any]:
    now = clock.now()
    statement = (
        select(FailedRequest.__table__, Client.name.label("client_name"))
        .join(Client, is_same(Client.id, FailedRequest.client_id))
        .where(
            FailedRequest.organization_id == actor.organization_id,
            FailedRequest.expires_at > now,
            FailedRequest.at > kept_since(actor, now),
        )
    )
    return restrict_to_own_clients(actor, statement, "logs:read")


def kept_since(actor: Actor, now: datetime) -> datetime:
    """Return since when the actor's organization keeps failed requests."""
    settings = lookups.get_organization_by_id(actor.organization_id, fresh=False).settings
    return now - timedelta(days=settings["audit"]["log_retention_days"])


def request_conditions(
    actor: Actor, model: type[FailedRequest | SampledRequest], filters: Mapping[str, str]
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of the filters for failed requests or samples, which have no cause. Raises InvalidInput."""
    values = read_filters(actor, FILTERS, filters)
    since = values.pop("since", None)
    yield from filter_conditions(model, values)
    if since is not None:
        # Ids are made shortly after the request. They keep the scan of a reader of few clients short.
        yield (model.at >= since) & (model.id >= first_id_at(since - MAX_CLOCK_SKEW))


def _record(row: Any, *, similar: int | None = None, since: datetime | None = None) -> FailedRequestRecord:
    return make_record(
        FailedRequestRecord,
        row,
        client_id=format_client_id(row.organization_id, row.client_id),
        expected=tuple(row.expected),
        parameters={name: value for name, value in row.parameters.items() if name != PLAYGROUND},
        is_from_playground=row.parameters.get(PLAYGROUND) == PLAYGROUND_MARK,
        similar=similar,
        similar_since=since,
    )


class LoggedRequest(Struct, frozen=True, kw_only=True):
    """A request as the interface knows it. ``client`` is (organization key, row id) of the named client.

    ``parameters`` contain no secrets.
    """

    client: tuple[str, UUID]
    at: datetime
    request_id: str
    endpoint: str
    method: str
    status: int
    parameters: Mapping[str, str]
    address: str | None


R = TypeVar("R", bound=LoggedRequest)


class RejectedRequest(LoggedRequest, frozen=True, kw_only=True):
    """A rejected request.

    ``secret_digest`` and ``code_digest`` are digests of the client secret and the code that were sent, if any,
    ``secret_description`` says what a wrong secret looks like,
    ``grant_id`` is that of the refresh token, and ``user_id`` whose browser sent it.
    """

    error: str
    description: str
    cause: Cause | None
    path_organization: str | None
    auth_method: str | None = None
    secret_digest: bytes | None = None
    secret_description: str | None = None
    user_id: UUID | None = None
    code_digest: bytes | None = None
    grant_id: UUID | None = None


def store_rejected_requests(actor: Actor, rejected: Iterable[RejectedRequest]) -> int:
    """Store rejected requests of known clients in the logs of organizations that want them, and return how many.

    ``actor`` is the service. Requests that cannot be written are dropped with a warning.
    """
    return store_requests(actor, FailedRequest, rejected, _to_row)


def store_requests(
    actor: Actor,
    model: type[FailedRequest | SampledRequest],
    requests: Iterable[R],
    to_row: Callable[[R], dict[str, Any] | None],
) -> int:
    """Store the row of each request, unless that is None, and return how many.

    Requests that cannot be written are dropped with a warning.
    """
    stored = 0
    ordered = sorted(requests, key=lambda one: one.client[0])
    for organization_id, group in groupby(ordered, key=lambda one: one.client[0]):
        try:
            rows = [row | _common_columns(one) for one in group if (row := to_row(one)) is not None]
            if rows:
                _write(Actor.system(organization_id, actor.label), model, rows)
                stored += len(rows)
        except (Unavailable, IntegrityError) as error:
            # The database is unavailable or the client was deleted. Continue with the other organizations.
            name = model.__tablename__.replace("_", " ")
            _log.warning("%s of %s were not stored: %s", name, organization_id, type(error).__name__)
    return stored


def _common_columns(request: LoggedRequest) -> dict[str, Any]:
    organization_id, client_id = request.client
    return {
        "organization_id": organization_id,
        "client_id": client_id,
        "at": request.at,
        "request_id": request.request_id,
        "endpoint": request.endpoint[:32],
        "method": request.method[:8],
        "status": request.status,
        "parameters": dict(request.parameters),
        "address": request.address,
    }


def count_unlogged(client: tuple[str, UUID], code: str, *, is_authenticated: bool) -> None:
    """Count a rejected request that the log has no room for.

    ``code`` is its cause, or its error if it has none. The cause that was found for an earlier request tells more, and
    without one only a client that authenticated is known to exist.
    """
    organization_id, row_id = client
    cause = _causes.get(organization_id, row_id.bytes, code)
    if cause is None and is_authenticated:
        cause = code if code in CAUSES else default_cause(code)
    if cause is not None:
        counters.add(organization_id, ((FAILED, cause[:48]),), row_id)


def _to_row(rejected: RejectedRequest) -> dict[str, Any] | None:
    organization_id, row_id = rejected.client
    client = lookups.find_client_by_id(organization_id, row_id, fresh=False)
    if client is None or client.organization.is_deleted:
        return None
    cause = _find_cause(rejected, client)
    code = rejected.cause.code if rejected.cause is not None else rejected.error
    _causes.put(organization_id, row_id.bytes, code, value=cause.code)
    is_logged = client.organization.settings["audit"]["failed_requests"]
    if rejected.parameters.get(PLAYGROUND) != PLAYGROUND_MARK:
        counters.add(organization_id, ((FAILED, cause.code[:48]),), row_id)
        user_id = _find_user(rejected) if is_logged else None
        if user_id is not None:
            counters.add(organization_id, ((FAILED_USERS, cause.code[:48]),), row_id, user_id)
    if not is_logged:
        return None
    kept_for = timedelta(days=client.organization.settings["audit"]["log_retention_days"])
    return {
        "error": rejected.error[:64],
        "description": redact_and_truncate(rejected.description, 500),
        "cause": cause.code[:48],
        "received": None if cause.received is None else redact_and_truncate(cause.received, 2048),
        "expected": [redact_and_truncate(value, 2048) for value in cause.expected[:MAX_EXPECTED_VALUES]],
        "expires_at": rejected.at + kept_for,
    }


@read
def _find_user(rejected: RejectedRequest) -> UUID | None:
    """Return the user of the browser, or of the code or refresh token that the client sent, if any is known."""
    if rejected.user_id is not None:
        return rejected.user_id
    organization_id, client_id = rejected.client
    source: type[AuthorizationCode | Grant]
    if rejected.code_digest is not None:
        source, found = AuthorizationCode, AuthorizationCode.digest == rejected.code_digest
    elif rejected.grant_id is not None:
        source, found = Grant, Grant.id == rejected.grant_id
    else:
        return None
    # Of its own codes and tokens alone: a client that sends another's affects none of its users.
    return db.session.scalar(
        select(source.user_id).where(
            source.organization_id == organization_id, source.client_id == client_id, found
        )
    )


@transaction
def _write(actor: Actor, model: type[FailedRequest | SampledRequest], rows: list[dict[str, Any]]) -> None:
    # Ids of the same millisecond are in random order. Sort them to keep the order of the requests.
    ids = current_unit_of_work().stable_value("ids", lambda: sorted(new_id() for _ in rows))
    db.session.execute(insert(model), [{**row, "id": row_id} for row, row_id in zip(rows, ids, strict=True)])


def _find_cause(rejected: RejectedRequest, client: ClientSnapshot) -> Cause:
    """Return the cause, including causes that only the database knows."""
    organization = client.organization
    if rejected.path_organization not in {None, organization.slug}:
        return Cause(
            "wrong_organization", f"…/organizations/{rejected.path_organization}", (organization.issuer,)
        )
    if not organization.is_active:
        return Cause("organization_suspended")
    if client.is_blocked:
        return Cause("client_blocked", "the client is blocked")
    if not client.is_active:
        return Cause("client_disabled", "the client is not active")
    if rejected.cause is not None:
        return rejected.cause
    if rejected.error == "invalid_client" and rejected.auth_method is not None:
        return _find_authentication_cause(rejected, client)
    return Cause(default_cause(rejected.error))


def _find_authentication_cause(rejected: RejectedRequest, client: ClientSnapshot) -> Cause:
    registered = str(client.document["token_endpoint_auth_method"])
    if rejected.auth_method == _NONE:
        return Cause("credentials_missing", "no credentials", (registered,))
    row = _find_secret(client, rejected.secret_digest) if rejected.secret_digest is not None else None
    if row is None and registered not in SECRET_METHODS and rejected.auth_method != registered:
        # Such a client has no secret to copy, and an app in a browser must not get one.
        return Cause("auth_method_mismatch", rejected.auth_method, (registered,))
    if row is None:
        return Cause("secret_unknown", rejected.secret_description, _describe_active_secrets(client))
    secret = f"secret {row.name} (…{row.hint})"
    if row.revoked_at is not None:
        by = f" by {row.revoked_by}" if row.revoked_by else ""
        return Cause(
            "secret_revoked",
            f"{secret}, revoked {_format_time(row.revoked_at)}{by}",
            _describe_active_secrets(client),
        )
    if row.expires_at is not None and row.expires_at <= clock.now():
        return Cause(
            "secret_expired",
            f"{secret}, expired {_format_time(row.expires_at)}",
            _describe_active_secrets(client),
        )
    if client.organization.blocks_secret(row.created_at, row.confirmed_at):
        return Cause("secret_blocked", secret, _describe_active_secrets(client))
    return Cause("auth_method_mismatch", rejected.auth_method, (registered,))


@read
def _find_secret(client: ClientSnapshot, digest: bytes) -> Any:
    # Digests of ended secrets are stored for ENDED_SECRET_RETENTION of the janitor, also for this purpose.
    return db.session.execute(
        select(
            Credential.name,
            Credential.hint,
            Credential.revoked_at,
            Credential.revoked_by,
            Credential.expires_at,
            Credential.created_at,
            Credential.confirmed_at,
        ).where(
            Credential.organization_id == client.organization.id,
            Credential.client_id == client.id,
            Credential.digest == digest,
        )
    ).first()


@read
def _describe_active_secrets(client: ClientSnapshot) -> tuple[str, ...]:
    rows = db.session.execute(
        select(Credential.name, Credential.hint).where(
            Credential.organization_id == client.organization.id,
            Credential.client_id == client.id,
            Credential.id.in_([secret.id for secret in client.secrets]),
        )
    )
    return tuple(f"secret {name} (…{hint})" for name, hint in rows)


def _format_time(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M} UTC"
