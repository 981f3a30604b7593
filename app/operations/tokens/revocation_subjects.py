"""Subjects of bulk revocations: permission checks, and bounded counts of what would be revoked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, ScalarSelect, Select, func, or_, select, true

from app.extensions import db
from app.models.base import Base, has_key, is_same
from app.models.client import DELETED, Client, Credential
from app.models.grant import AuthorizationCode, Grant
from app.models.session import Session
from app.models.token import AccessToken
from app.operations.clients.client_records import get_client_row
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import get_user, parse_user_id
from app.operations.grants.grants import (
    MAX_ACCESS_TOKEN_LIFETIME,
    can_refresh,
    grant_issued_after_cutoffs,
    is_active_grant,
    token_issued_after_cutoffs,
)
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.sessions import active_session_condition
from app.operations.store import clock
from app.rules.actor import Actor
from app.rules.errors import Forbidden, NotFound
from app.rules.identifiers import first_id_at, parse_public_id
from app.rules.tokens.revocation import (
    CLIENT,
    CREDENTIAL,
    GRANT,
    ORGANIZATION,
    PREFIXES,
    SESSION,
    USER,
    RevocationOrder,
)

REVOKE = "tokens:revoke"
MAX_COUNT = 10_000
# For an organization only the newest rows are examined: the count is an estimate, so that it never scans a table.
MAX_ROWS_EXAMINED = 50_000
_Newest = Mapping[type[Base], ColumnElement[bool]]


class Subject(Struct, frozen=True):
    """The subject of a bulk revocation. ``public_id`` is on the receipt; ``row_id`` is None for the organization."""

    kind: str
    public_id: str
    row_id: UUID | None
    client_id: UUID | None = None
    user_id: UUID | None = None


def find_subject(actor: Actor, slug: str, order: RevocationOrder) -> Subject:
    """Return the subject that the order names, if the actor may revoke it.

    Requires ``tokens:revoke``, or its ``:own`` form for the actor's own clients. Ending sessions requires
    ``users:write`` and every role of the user. Raises Forbidden, NotFound.
    """
    actor.require_for_own(REVOKE)
    if order.kind in {CLIENT, CREDENTIAL, GRANT}:
        return _client_subject(actor, order)
    actor.require(REVOKE)
    if order.kind in {USER, SESSION}:
        return _user_subject(actor, order)
    if order.sessions:
        actor.require("users:write")
    return Subject(order.kind, slug, None)


def _client_subject(actor: Actor, order: RevocationOrder) -> Subject:
    if order.kind == CLIENT:
        row = get_client_row(actor, order.subject, REVOKE)
        return Subject(CLIENT, order.subject, row.id, client_id=row.id)
    model: Any = Credential if order.kind == CREDENTIAL else Grant
    row_id = parse_public_id(PREFIXES[order.kind], order.subject)
    found = (
        None
        if row_id is None
        else db.session.execute(
            select(model.client_id, Client.owner_id)
            .join(Client, is_same(Client.id, model.client_id))
            .where(has_key(model, actor.organization_id, row_id), Client.status != DELETED)
        ).first()
    )
    # With the permission for own clients only, the secrets and grants of other clients do not exist.
    if found is None or not actor.has_permission(REVOKE, owner_id=found.owner_id):
        if order.kind == CREDENTIAL:
            raise NotFound("There is no such secret.")
        raise NotFound("There is no such grant.")
    return Subject(order.kind, order.subject, row_id, client_id=found.client_id)


def _user_subject(actor: Actor, order: RevocationOrder) -> Subject:
    if order.kind == USER:
        user_id = parse_user_id(order.subject)
        _require_manageable(actor, user_id, order)
        return Subject(USER, order.subject, user_id, user_id=user_id)
    row_id = parse_public_id("ses", order.subject)
    # The session's row may be deleted already, while its grants are still valid.
    found = None if row_id is None else _user_of_session(actor.organization_id, row_id)
    if found is None:
        raise NotFound("There is no such session.")
    _require_manageable(actor, found, order)
    return Subject(SESSION, order.subject, row_id, user_id=found)


def _require_manageable(actor: Actor, user_id: UUID, order: RevocationOrder) -> None:
    if not order.sessions:
        get_user(actor.organization_id, user_id)
        return
    try:
        require_manageable_user(actor, user_id)
    except Forbidden as refusal:
        if order.kind == USER and not actor.has_permission("users:write"):
            message = (
                "Ending sessions requires the permission users:write. Send include_sessions: false to revoke only "
                "tokens."
            )
            raise Forbidden(message, permission="users:write") from refusal
        raise


def _user_of_session(organization_id: str, session_id: UUID) -> UUID | None:
    for model, column in ((Session, Session.id), (Grant, Grant.session_id)):
        user_id: UUID | None = db.session.scalar(
            select(model.user_id)
            .where(model.organization_id == organization_id, column == session_id)
            .limit(1)
        )
        if user_id is not None:
            return user_id
    return None


def count_affected(
    organization: OrganizationSnapshot, subject: Subject, before: datetime, *, sessions: bool
) -> Mapping[str, int]:
    """Count what is valid of the subject and was issued before the cutoff, by kind, each up to MAX_COUNT."""
    newest = _newest(organization.id) if subject.kind == ORGANIZATION else {}
    grants = _grants(organization, subject, before, newest)
    rows: dict[str, Select[Any] | None] = {
        "access_tokens": _tokens(organization, subject, before, newest),
        "refresh_tokens": grants.where(can_refresh(organization.settings)),
        "grants": grants,
        "sessions": _sessions(organization, subject, before, newest) if sessions else None,
        "codes": _codes(organization, subject, before, newest),
    }
    counts = [_bounded_count(selected).label(name) for name, selected in rows.items() if selected is not None]
    return dict.fromkeys(rows, 0) | dict(db.session.execute(select(*counts)).mappings().one())


def _bounded_count(rows: Select[Any]) -> ScalarSelect[int]:
    return select(func.count()).select_from(rows.limit(MAX_COUNT).subquery()).scalar_subquery()


def _newest(organization_id: str) -> _Newest:
    """Return for each model a condition for the organization's newest rows, whose bounds the primary key has."""
    models: tuple[Any, ...] = (AccessToken, Grant, Session, AuthorizationCode)
    bounds = [
        select(model.id)
        .where(model.organization_id == organization_id)
        .order_by(model.id.desc())
        .offset(MAX_ROWS_EXAMINED)
        .limit(1)
        .scalar_subquery()
        for model in models
    ]
    found = db.session.execute(select(*bounds)).one()
    return {
        model: true() if bound is None else model.id > bound
        for model, bound in zip(models, found, strict=True)
    }


def _tokens(
    organization: OrganizationSnapshot, subject: Subject, before: datetime, newest: _Newest
) -> Select[Any]:
    now = clock.now()
    selected: dict[str, Any] = {
        GRANT: AccessToken.grant_id == subject.row_id,
        CLIENT: AccessToken.client_id == subject.row_id,
        CREDENTIAL: (AccessToken.client_id == subject.client_id)
        & or_(AccessToken.credential_id == subject.row_id, Grant.credential_id == subject.row_id),
        USER: Grant.user_id == subject.row_id,
        SESSION: Grant.session_id == subject.row_id,
    }
    of = selected.get(subject.kind, true())
    if subject.kind == ORGANIZATION:
        of = newest[AccessToken] & (AccessToken.id > first_id_at(now - MAX_ACCESS_TOKEN_LIFETIME))
    return (
        select(AccessToken.id)
        .outerjoin(Grant, is_same(Grant.id, AccessToken.grant_id))
        .where(
            AccessToken.organization_id == organization.id,
            of,
            AccessToken.expires_at > now,
            AccessToken.revoked_at.is_(None),
            or_(AccessToken.issued_at < before, Grant.allowed_at < before),
            Grant.revoked_at.is_(None),
            token_issued_after_cutoffs(organization),
            or_(Grant.id.is_(None), grant_issued_after_cutoffs()),
        )
    )


def _grants(
    organization: OrganizationSnapshot, subject: Subject, before: datetime, newest: _Newest
) -> Select[Any]:
    selected: dict[str, Any] = {
        GRANT: Grant.id == subject.row_id,
        CLIENT: Grant.client_id == subject.row_id,
        CREDENTIAL: (Grant.client_id == subject.client_id) & (Grant.credential_id == subject.row_id),
        USER: Grant.user_id == subject.row_id,
        SESSION: Grant.session_id == subject.row_id,
    }
    of = selected.get(subject.kind, true())
    if subject.kind == ORGANIZATION:
        of = newest[Grant]
    return select(Grant.id).where(
        Grant.organization_id == organization.id,
        of,
        Grant.allowed_at < before,
        is_active_grant(organization.settings),
    )


def _sessions(
    organization: OrganizationSnapshot, subject: Subject, before: datetime, newest: _Newest
) -> Select[Any]:
    of: Any
    if subject.kind == ORGANIZATION:
        of = newest[Session]
    else:
        of = Session.user_id == subject.row_id if subject.kind == USER else Session.id == subject.row_id
    return select(Session.id).where(
        Session.organization_id == organization.id,
        of,
        active_session_condition(organization),
        Session.created_at < before,
    )


def _codes(
    organization: OrganizationSnapshot, subject: Subject, before: datetime, newest: _Newest
) -> Select[Any] | None:
    selected: dict[str, Any] = {
        CLIENT: AuthorizationCode.client_id == subject.row_id,
        USER: AuthorizationCode.user_id == subject.row_id,
        SESSION: (AuthorizationCode.user_id == subject.user_id)
        & (AuthorizationCode.session_id == subject.row_id),
    }
    of = selected.get(subject.kind)
    if subject.kind == ORGANIZATION:
        of = newest[AuthorizationCode]
    if of is None:
        return None
    return select(AuthorizationCode.id).where(
        AuthorizationCode.organization_id == organization.id,
        of,
        AuthorizationCode.used_at.is_(None),
        AuthorizationCode.expires_at > clock.now(),
        AuthorizationCode.issued_at < before,
    )
