"""The figures on the first page of an organization. Queries are bounded and use an index.

Counting stops at a maximum, because the difference between 10,000 and 12,000 does not matter here but would make every
page view slow. Ids are UUIDv7, so "since a time" is a range of the primary key and needs no index of its own.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    ScalarSelect,
    Select,
    bindparam,
    exists,
    func,
    or_,
    select,
)
from sqlalchemy.orm import aliased

from app.fast_path.compiled_query import CompiledQuery
from app.models import user as user_model
from app.models.audit import AuditEvent
from app.models.client import DELETED, Client, Credential
from app.models.session import Session
from app.models.token import AccessToken
from app.models.user import Invitation, RoleAssignment, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.organizations import get_organization
from app.operations.sign_in.sessions import active_session_condition
from app.operations.store import clock
from app.operations.store.rows import count_rows, make_record
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.directory.permissions import MEMBER
from app.rules.identifiers import first_id_at, format_client_id

MAX_COUNT = 10_000
# An actor without a user, such as a client, has registered no clients.
_NO_USER = UUID(int=0)
_NEWEST_SECRETS = 1_000
_SOON = timedelta(days=7)


class ExpiringSecret(Struct, frozen=True):
    """A client secret that expires soon, and was not replaced by a newer one."""

    client_id: str
    client_name: str
    name: str
    expires_at: datetime
    last_used_at: datetime | None


class RecentEvent(Struct, frozen=True):
    """One event of the audit log."""

    at: datetime
    action: str
    actor_label: str
    target_type: str | None
    target_id: str | None
    is_from_root: bool


class Overview(Struct, frozen=True):
    """The current state of an organization. ``MAX_COUNT`` clients are that many or more.

    ``has_tokens``: one was issued in the last day. ``has_colleague``: there is another administrator, or an open
    invitation.
    """

    clients: int
    has_tokens: bool
    has_colleague: bool
    expiring_secrets: tuple[ExpiringSecret, ...]
    recent_events: tuple[RecentEvent, ...] | None


def get_overview(actor: Actor) -> Overview:
    """Return the state of the actor's organization; with ``clients:read:own``, clients and tokens are its own.

    ``recent_events`` is None if the actor may not read the audit log. Raises Forbidden without ``organization:read``.
    """
    actor.require("organization:read")
    here = actor.organization_id
    now = clock.now()
    owner = None if actor.has_permission("clients:read") else actor.user_id or _NO_USER
    state = _STATE.first(
        organization_id=here, owner=owner, now=now, first_of_day=first_id_at(now - timedelta(days=1))
    )
    return Overview(
        clients=state.clients,
        has_tokens=bool(state.has_tokens),
        has_colleague=state.administrators > 1 or bool(state.has_invited),
        expiring_secrets=_find_expiring_secrets(here, now, owner)
        if actor.has_permission_for_own("clients:read")
        else (),
        recent_events=_find_recent_events(here) if actor.has_permission("audit:read") else None,
    )


class Affected(Struct, frozen=True):
    """The clients, users and sessions that a suspension affects. ``MAX_COUNT`` means that many or more."""

    clients: int
    users: int
    sessions: int


@read
def count_affected(actor: Actor, slug: str) -> Affected:
    """Count the clients, users and sessions that a suspension of the organization affects.

    Raises NotFound, and Forbidden without ``organizations:write``.
    """
    actor.require("organizations:write")
    here = get_organization(actor, slug).id
    active = active_session_condition(get_organization_by_id(here))
    clients = select(Client.id).where(Client.organization_id == here, Client.status != DELETED)
    users = select(User.id).where(User.organization_id == here, User.status != user_model.DELETED)
    sessions = select(Session.id).where(Session.organization_id == here, active)
    return Affected(*(count_rows(rows, MAX_COUNT) for rows in (clients, users, sessions)))


def _here(model: Any) -> Any:
    return model.organization_id == bindparam("organization_id")


def _is_visible_client() -> ColumnElement[bool]:
    """Return the condition that a client is the owner's; without an owner, every client is visible."""
    return or_(_owner().is_(None), Client.owner_id == _owner())


def _owner() -> BindParameter[UUID]:
    return bindparam("owner", type_=Client.owner_id.type)


def _count(rows: Select[Any], limit: int) -> ScalarSelect[Any]:
    bounded = rows.limit(limit).subquery()
    return select(func.count()).select_from(bounded).scalar_subquery()


_STATE = CompiledQuery(
    select(
        _count(
            select(Client.id).where(_here(Client), Client.status != DELETED, _is_visible_client()), MAX_COUNT
        ).label("clients"),
        exists()
        .where(
            _here(AccessToken),
            AccessToken.id >= bindparam("first_of_day", type_=AccessToken.id.type),
            or_(
                _owner().is_(None),
                AccessToken.client_id.in_(select(Client.id).where(_here(Client), _is_visible_client())),
            ),
        )
        .label("has_tokens"),
        _count(
            select(RoleAssignment.user_id)
            .where(_here(RoleAssignment), RoleAssignment.role != MEMBER)
            .distinct(),
            2,
        ).label("administrators"),
        # The invitation that an administrator came by is used: only open ones are for a colleague.
        exists()
        .where(
            _here(Invitation),
            Invitation.used_at.is_(None),
            Invitation.revoked_at.is_(None),
            Invitation.expires_at > bindparam("now", type_=Invitation.expires_at.type),
        )
        .label("has_invited"),
    )
)
_NEWEST = (
    select(
        Credential.id,
        Credential.client_id,
        Credential.name,
        Credential.expires_at,
        Credential.last_used_at,
        Credential.revoked_at,
    )
    .where(_here(Credential))
    .order_by(Credential.id.desc())
    .limit(_NEWEST_SECRETS)
    .subquery()
)
_NEWER = aliased(Credential)
# A newer secret that is valid for longer replaces one that was not used since.
_IS_REPLACED = exists().where(
    _here(_NEWER),
    _NEWER.client_id == _NEWEST.c.client_id,
    _NEWER.id > _NEWEST.c.id,
    _NEWER.revoked_at.is_(None),
    or_(_NEWER.expires_at.is_(None), _NEWER.expires_at > _NEWEST.c.expires_at),
    or_(_NEWEST.c.last_used_at.is_(None), _NEWEST.c.last_used_at < _NEWER.created_at),
)
_EXPIRING_SECRETS = CompiledQuery(
    select(
        _NEWEST.c.client_id,
        _NEWEST.c.name,
        _NEWEST.c.expires_at,
        _NEWEST.c.last_used_at,
        Client.name.label("client_name"),
    )
    .join(Client, _here(Client) & (Client.id == _NEWEST.c.client_id))
    .where(
        _NEWEST.c.revoked_at.is_(None),
        _NEWEST.c.expires_at > bindparam("now", type_=Credential.expires_at.type),
        _NEWEST.c.expires_at < bindparam("soon", type_=Credential.expires_at.type),
        ~_IS_REPLACED,
        Client.status != DELETED,
        _is_visible_client(),
    )
    .order_by(_NEWEST.c.expires_at)
    .limit(5)
)
_RECENT_EVENTS = CompiledQuery(
    select(
        AuditEvent.at,
        AuditEvent.action,
        AuditEvent.actor_label,
        AuditEvent.target_type,
        AuditEvent.target_id,
        AuditEvent.actor_organization,
    )
    .where(_here(AuditEvent))
    .order_by(AuditEvent.id.desc())
    .limit(8)
)


def _find_expiring_secrets(
    organization_id: str, now: datetime, owner: UUID | None
) -> tuple[ExpiringSecret, ...]:
    return tuple(
        make_record(ExpiringSecret, row, client_id=format_client_id(organization_id, row.client_id))
        for row in _EXPIRING_SECRETS.rows(
            organization_id=organization_id, now=now, soon=now + _SOON, owner=owner
        )
    )


def _find_recent_events(organization_id: str) -> tuple[RecentEvent, ...]:
    return tuple(
        make_record(RecentEvent, row, is_from_root=row.actor_organization != organization_id)
        for row in _RECENT_EVENTS.rows(organization_id=organization_id)
    )
