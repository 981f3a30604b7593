"""Access tokens: issued to clients for themselves, found by digest, introspected.

The statements here are what the service does most; each is one round trip. A token is alive only while everything
it rests on is: its grant, its user, the secret that minted it, its client, its organization. All are asked in the
one statement that finds it, so whatever was ended ends it everywhere at once (IT-3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import and_, bindparam, insert, join, select
from sqlalchemy.orm import aliased

from app.models import client as client_model
from app.models import organization as organization_model
from app.models import user as user_model
from app.models.client import Client
from app.models.credential import Credential
from app.models.grant import Grant
from app.models.organization import Organization
from app.models.session import Session
from app.models.token import AccessToken
from app.models.user import User
from app.operations import clock
from app.operations.directory import ClientView
from app.operations.protocol import access_tokens
from app.operations.protocol.client_authentication import AuthenticatedClient
from app.operations.protocol.token_answers import TokenAnswer
from app.operations.statements import Statement
from app.rules.identifiers import is_routing_key, parse_client_id
from app.rules.protocol.oauth_errors import StaleView
from app.rules.protocol.tokens import ACCESS_TOKEN, digest, parse_token

_TOKEN_COLUMNS = (
    "organization_id", "id", "digest", "client_id", "credential_id", "scope", "audience", "dpop_jkt", "issued_at",
    "expires_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenView:
    """A living access token and what it rests on; ``client_document`` is empty for introspection."""

    id: UUID
    organization_id: str
    client_id: UUID
    client_name: str
    client_document: Mapping[str, Any]
    grant_id: UUID | None
    user_id: UUID | None
    user_email: str | None
    scopes: tuple[str, ...]
    audience: tuple[str, ...]
    issued_at: datetime
    expires_at: datetime
    authenticated_at: datetime | None
    session_id: UUID | None
    dpop_jkt: str | None
    act: Mapping[str, Any] | None
    acr: str | None
    claims: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Introspected:
    """The answer to an introspecting client: ``token`` is None when it is not active for that client."""

    token: TokenView | None


# One durable statement: the row appears only if the client and organization are still what the cached view says.
_ISSUE_TO_CLIENT = Statement(
    insert(AccessToken).from_select(
        _TOKEN_COLUMNS,
        select(
            Organization.id,
            bindparam("id", type_=AccessToken.id.type),
            bindparam("digest", type_=AccessToken.digest.type),
            Client.id,
            bindparam("credential_id", type_=AccessToken.credential_id.type),
            bindparam("scope", type_=AccessToken.scope.type),
            bindparam("audience", type_=AccessToken.audience.type),
            bindparam("dpop_jkt", type_=AccessToken.dpop_jkt.type),
            bindparam("issued_at", type_=AccessToken.issued_at.type),
            bindparam("expires_at", type_=AccessToken.expires_at.type),
        )
        .select_from(Organization)
        .join(Client, Client.organization_id == Organization.id)
        .where(
            Organization.id == bindparam("organization_id"),
            Organization.version == bindparam("organization_version"),
            Client.id == bindparam("client_id"),
            Client.version == bindparam("client_version"),
        ),
    )
)

_COLUMNS = (
    AccessToken.id,
    AccessToken.client_id,
    AccessToken.grant_id,
    AccessToken.scope,
    AccessToken.audience,
    AccessToken.issued_at,
    AccessToken.expires_at,
    AccessToken.dpop_jkt,
    AccessToken.act,
    Client.name,
    Grant.user_id,
    Grant.auth_time,
    Grant.acr,
    Grant.claims,
    Grant.session_id,
    Grant.refresh_digest,
    User.email,
    Client.status,
    Grant.revoked_at,
    User.status,
    Credential.tokens_revoked_at,
    Session.revoked_at,
    Organization.tokens_valid_from,
)
_COUNTS = and_(
    AccessToken.organization_id == Organization.id,
    AccessToken.digest == bindparam("digest"),
    AccessToken.revoked_at.is_(None),
    AccessToken.expires_at > bindparam("now", type_=AccessToken.expires_at.type),
)


def _with_all_it_rests_on(source: Any) -> Any:
    """Everything whose end ends the token, joined by primary key to the token of ``source``."""
    own = AccessToken.organization_id
    return (
        source.outerjoin(Client, (Client.organization_id == own) & (Client.id == AccessToken.client_id))
        .outerjoin(Grant, (Grant.organization_id == own) & (Grant.id == AccessToken.grant_id))
        .outerjoin(User, (User.organization_id == own) & (User.id == Grant.user_id))
        .outerjoin(
            Credential, (Credential.organization_id == own) & (Credential.id == AccessToken.credential_id)
        )
        .outerjoin(Session, (Session.organization_id == own) & (Session.id == Grant.session_id))
    )


_FIND = Statement(
    select(*_COLUMNS, Client.document)
    .select_from(_with_all_it_rests_on(join(Organization, AccessToken, _COUNTS)))
    .where(
        Organization.id == bindparam("organization_id"),
        Organization.status == organization_model.ACTIVE,
    )
)
_CALLER = aliased(Client, name="caller")
# The caller's own row comes back even when the token does not: its version says whether the cached view was true.
_INTROSPECT = Statement(
    select(_CALLER.version, Organization.version, *_COLUMNS)
    .select_from(
        _with_all_it_rests_on(
            join(_CALLER, Organization, _CALLER.organization_id == Organization.id).outerjoin(
                AccessToken, _COUNTS
            )
        )
    )
    .where(Organization.id == bindparam("organization_id"), _CALLER.id == bindparam("caller_id"))
)


def issue_to_client(
    authenticated: AuthenticatedClient, scopes: tuple[str, ...], resources: tuple[str, ...] = ()
) -> TokenAnswer:
    """An access token for the client itself, committed (RFC 6749 section 4.4).

    ``scopes`` are within what the client may have. Raises StaleView when the client or its organization changed
    since the view was read. No audit row: the token's own row says who got it, when, and by which secret.
    """
    client = authenticated.client
    made = access_tokens.make(
        client,
        scopes,
        now=clock.now(),
        subject=client.client_id,
        resources=resources,
        dpop_jkt=authenticated.dpop_jkt,
    )
    written = _ISSUE_TO_CLIENT.insert(
        organization_id=client.organization.id,
        organization_version=client.organization.version,
        client_id=client.id,
        client_version=client.version,
        credential_id=authenticated.credential_id,
        **made.row,
    )
    if not written:
        raise StaleView
    return TokenAnswer(made.value, made.expires_in, made.row["scope"], token_type=made.token_type)


def find_token(token: str, *, organization_id: str | None = None) -> TokenView | None:
    """The living access token of that value, or None. ``organization_id`` narrows it to one organization."""
    owner = owner_of(token)
    if owner is None or (organization_id is not None and owner != organization_id):
        return None
    row = _FIND.first(organization_id=owner, digest=digest(token), now=clock.now())
    return None if row is None else _view(owner, row[:-1], row[-1])


def find_bearer(token: str, audience: str) -> TokenView | None:
    """The living access token, if it was issued for ``audience`` (RFC 8707); None otherwise (TK-6)."""
    view = find_token(token)
    return view if view is not None and audience in view.audience else None


def introspect(caller: ClientView, token: str) -> Introspected:
    """The token as the caller may see it (RFC 7662): its own, or one meant for a resource that it is.

    Raises StaleView when the caller changed since its view was read.
    """
    owner = owner_of(token)
    row = _INTROSPECT.first(
        organization_id=caller.organization.id,
        caller_id=caller.id,
        digest=digest(token),
        now=clock.now(),
    )
    if row is None or row[0] != caller.version or row[1] != caller.organization.version:
        raise StaleView
    view = None if row[2] is None else _view(caller.organization.id, row[2:])
    if view is None or owner != caller.organization.id:
        return Introspected(None)
    is_own = view.client_id == caller.id
    is_meant = any(resource in caller.document.get("resources", ()) for resource in view.audience)
    return Introspected(view if is_own or is_meant else None)


def owner_of(token: str) -> str | None:
    """The routing key that an access token names, opaque or JWT; None when it cannot be one. Proves nothing."""
    parsed = parse_token(token)
    if parsed is not None:
        return parsed.organization_id if parsed.kind == ACCESS_TOKEN else None
    client = parse_client_id(access_tokens.claimed_client(token) or "")
    return client[0] if client is not None and is_routing_key(client[0]) else None


def _view(organization_id: str, row: Any, document: Mapping[str, Any] | None = None) -> TokenView | None:
    (
        token_id, client_id, grant_id, scope, audience, issued_at, expires_at, dpop_jkt, act,
        client_name, user_id, auth_time, acr, claims, session_id, refresh_digest, email,
        client_status, grant_revoked_at, user_status, tokens_revoked_at, signed_out_at, valid_from,
    ) = row  # fmt: skip
    if client_status != client_model.ACTIVE or tokens_revoked_at is not None:
        return None
    # Signing out ends what was for this session alone; offline access was asked for to outlive it.
    if signed_out_at is not None and refresh_digest is None:
        return None
    if valid_from is not None and issued_at < valid_from:
        return None
    if grant_id is not None and (grant_revoked_at is not None or user_status != user_model.ACTIVE):
        return None
    return TokenView(
        id=token_id,
        organization_id=organization_id,
        client_id=client_id,
        client_name=client_name,
        client_document=document or {},
        grant_id=grant_id,
        user_id=user_id,
        user_email=email,
        scopes=tuple(scope.split()),
        audience=tuple(audience.split()),
        issued_at=issued_at,
        expires_at=expires_at,
        authenticated_at=auth_time,
        session_id=session_id,
        dpop_jkt=dpop_jkt,
        act=act,
        acr=acr,
        claims=claims,
    )
