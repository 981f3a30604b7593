"""Introspection: whether a token lives, for a client that may know (RFC 7662)."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import bindparam, select

from app.models import user as user_model
from app.models.client import Client
from app.models.grant import Grant
from app.models.organization import Organization
from app.models.user import User
from app.operations import clock, keyring
from app.operations.directory import ClientView
from app.operations.protocol import tokens
from app.operations.protocol.subjects import subject_of
from app.operations.statements import Statement
from app.rules.identifiers import client_id_of, public_id
from app.rules.protocol.oauth_errors import InvalidClient, StaleView
from app.rules.protocol.tokens import REFRESH_TOKEN, ParsedToken, digest, has_own_tag, parse_token


@dataclass(frozen=True, slots=True)
class ActiveToken:
    """A living token as an introspecting client is told of it."""

    is_access_token: bool
    client_id: str
    subject: str
    username: str | None
    scopes: tuple[str, ...]
    audience: tuple[str, ...]
    issued_at: datetime
    expires_at: datetime
    jti: str
    auth_time: datetime | None
    acr: str | None = None
    dpop_jkt: str | None = None


_FIND_FAMILY = Statement(
    select(
        Client.version,
        Organization.version,
        Grant.client_id,
        Grant.user_id,
        Grant.scope,
        Grant.auth_time,
        Grant.created_at,
        Grant.rotated_at,
        Grant.expires_at,
        Grant.idle_expires_at,
        Grant.refresh_digest,
        Grant.revoked_at,
        User.status,
        User.email,
    )
    .select_from(Client)
    .join(Organization, Organization.id == Client.organization_id)
    .outerjoin(Grant, (Grant.organization_id == Client.organization_id) & (Grant.id == bindparam("grant_id")))
    .outerjoin(User, (User.organization_id == Grant.organization_id) & (User.id == Grant.user_id))
    .where(Client.organization_id == bindparam("organization_id"), Client.id == bindparam("caller_id"))
)


def introspect(caller: ClientView, credential_id: UUID | None, token: str) -> ActiveToken | None:
    """The token if it lives and the caller may know: its own, or one meant for a resource that it is (IT-1).

    Raises StaleView when the caller changed since its view was read, InvalidClient when the secret it showed is
    no longer among its secrets.
    """
    if credential_id is not None and all(secret.id != credential_id for secret in caller.secrets):
        raise InvalidClient
    parsed = parse_token(token)
    if parsed is not None and parsed.kind == REFRESH_TOKEN:
        return _refresh_token(caller, token, parsed)
    view = tokens.introspect(caller, token).token
    if view is None:
        return None
    client_id = client_id_of(view.organization_id, view.client_id)
    return ActiveToken(
        is_access_token=True,
        client_id=client_id,
        subject=subject_of(caller, view.user_id) if view.user_id is not None else client_id,
        username=view.user_email,
        scopes=view.scopes,
        audience=view.audience,
        issued_at=view.issued_at,
        expires_at=view.expires_at,
        jti=public_id("tok", view.id),
        auth_time=view.authenticated_at,
        acr=view.acr,
        dpop_jkt=view.dpop_jkt,
    )


def _refresh_token(caller: ClientView, token: str, parsed: ParsedToken) -> ActiveToken | None:
    row = _FIND_FAMILY.first(
        organization_id=caller.organization.id, caller_id=caller.id, grant_id=parsed.grant_id
    )
    if row is None or (row[0], row[1]) != (caller.version, caller.organization.version):
        raise StaleView
    (
        client_id, user_id, scope, auth_time, created_at, rotated_at, expires_at, idle_expires_at,
        refresh_digest, revoked_at, user_status, email,
    ) = row[2:]  # fmt: skip
    if parsed.organization_id != caller.organization.id or client_id != caller.id or refresh_digest is None:
        return None
    if not has_own_tag(token, keyring.derive("refresh-token-tag")):
        return None
    if not hmac.compare_digest(digest(token), refresh_digest):
        return None
    ends = min(expires_at, idle_expires_at)
    if revoked_at is not None or user_status != user_model.ACTIVE or ends <= clock.now():
        return None
    if caller.organization.forgot(created_at):
        return None
    return ActiveToken(
        is_access_token=False,
        client_id=caller.client_id,
        subject=subject_of(caller, user_id),
        username=email,
        scopes=tuple(scope.split()),
        audience=(),
        issued_at=rotated_at or created_at,
        expires_at=ends,
        jti=public_id("grt", parsed.grant_id) if parsed.grant_id is not None else "",
        auth_time=auth_time,
    )
