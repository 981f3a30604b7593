"""How much a wider revocation would end: bounded counts, each of which stops at a ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select, true

from app.extensions import db
from app.models.base import Base
from app.models.grant import AuthorizationCode, Grant
from app.models.session import Session
from app.models.token import AccessToken
from app.operations import clock
from app.operations.directory import OrganizationView
from app.operations.grants.grants import LONGEST_ACCESS
from app.operations.grants.standing_grants import (
    is_living,
    outlives_moments,
    still_refreshes,
    token_outlives_moments,
)
from app.operations.people.living_sessions import living
from app.operations.revocations.subjects import Subject
from app.rules.identifiers import first_id_at
from app.rules.tokens.wider_revocation import CLIENT, CREDENTIAL, GRANT, ORGANIZATION, SESSION, USER

COUNTED = ("access_tokens", "refresh_tokens", "grants", "sessions", "codes")
CEILING = 10_000
# Of a whole organization no more than the newest rows are looked at: a count is an estimate, and never a scan.
MOST_LOOKED_AT = 50_000


def count(
    organization: OrganizationView, subject: Subject, before: datetime, *, sessions: bool
) -> Mapping[str, int]:
    """What is alive of the selection and was issued before the moment, by kind; each stops at CEILING."""
    grants = _grants(organization, subject, before)
    refreshable = grants.where(still_refreshes(organization.settings))
    return {
        "access_tokens": _number(_tokens(organization, subject, before)),
        "refresh_tokens": _number(refreshable),
        "grants": _number(grants),
        "sessions": _number(_sessions(organization, subject, before)) if sessions else 0,
        "codes": _codes(organization, subject, before),
    }


def _number(rows: Select[Any]) -> int:
    bounded = rows.limit(CEILING).subquery()
    return int(db.session.scalar(select(func.count()).select_from(bounded)) or 0)


def _newest(model: type[Base], organization_id: str, since: datetime | None = None) -> ColumnElement[bool]:
    """A condition that holds for the newest rows of the organization: its bound is read through the primary key."""
    table: Any = model
    rows = select(table.id).where(table.organization_id == organization_id).order_by(table.id.desc())
    bound = db.session.scalar(rows.offset(MOST_LOOKED_AT).limit(1))
    after = [] if since is None else [first_id_at(since)]
    after += [] if bound is None else [bound]
    condition: ColumnElement[bool] = table.organization_id == organization_id
    return condition & (table.id > max(after)) if after else condition


def _tokens(organization: OrganizationView, subject: Subject, before: datetime) -> Select[Any]:
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
        of = _newest(AccessToken, organization.id, now - LONGEST_ACCESS)
    return (
        select(AccessToken.id)
        .outerjoin(
            Grant, (Grant.organization_id == AccessToken.organization_id) & (Grant.id == AccessToken.grant_id)
        )
        .where(
            AccessToken.organization_id == organization.id,
            of,
            AccessToken.expires_at > now,
            AccessToken.revoked_at.is_(None),
            or_(AccessToken.issued_at < before, Grant.allowed_at < before),
            Grant.revoked_at.is_(None),
            token_outlives_moments(),
            or_(Grant.id.is_(None), outlives_moments()),
        )
    )


def _grants(organization: OrganizationView, subject: Subject, before: datetime) -> Select[Any]:
    selected: dict[str, Any] = {
        GRANT: Grant.id == subject.row_id,
        CLIENT: Grant.client_id == subject.row_id,
        CREDENTIAL: (Grant.client_id == subject.client_id) & (Grant.credential_id == subject.row_id),
        USER: Grant.user_id == subject.row_id,
        SESSION: Grant.session_id == subject.row_id,
    }
    of = selected.get(subject.kind, true())
    if subject.kind == ORGANIZATION:
        of = _newest(Grant, organization.id)
    return select(Grant.id).where(
        Grant.organization_id == organization.id,
        of,
        Grant.allowed_at < before,
        is_living(organization.settings),
    )


def _sessions(organization: OrganizationView, subject: Subject, before: datetime) -> Select[Any]:
    of: Any
    if subject.kind == ORGANIZATION:
        of = _newest(Session, organization.id)
    else:
        of = Session.user_id == subject.row_id if subject.kind == USER else Session.id == subject.row_id
    return select(Session.id).where(
        Session.organization_id == organization.id, of, living(organization), Session.created_at < before
    )


def _codes(organization: OrganizationView, subject: Subject, before: datetime) -> int:
    selected: dict[str, Any] = {
        CLIENT: AuthorizationCode.client_id == subject.row_id,
        USER: AuthorizationCode.user_id == subject.row_id,
        SESSION: (AuthorizationCode.user_id == subject.user_id)
        & (AuthorizationCode.session_id == subject.row_id),
    }
    of = selected.get(subject.kind)
    if subject.kind == ORGANIZATION:
        of = _newest(AuthorizationCode, organization.id)
    if of is None:
        return 0
    rows = select(AuthorizationCode.id).where(
        AuthorizationCode.organization_id == organization.id,
        of,
        AuthorizationCode.used_at.is_(None),
        AuthorizationCode.expires_at > clock.now(),
        AuthorizationCode.issued_at < before,
    )
    return _number(rows)
