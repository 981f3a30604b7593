"""Access tokens: issuing them to clients for themselves, and validating them.

These are the most frequent statements of the service; each is one round trip. A token is valid only while everything
that it depends on is: its grant (which may end with its session), its user, the secret that it was issued with, its
client and its organization. Grant and user are read with the token, the others come from cached snapshots that every
change invalidates (IT-3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, insert, select

from app.fast_path.compiled_query import CompiledQuery
from app.models import user as user_model
from app.models.grant import Grant
from app.models.token import AccessToken
from app.models.user import User
from app.operations.directory import lookups
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot, find_client_by_id
from app.operations.directory.snapshots import is_before_cutoff
from app.operations.directory.users import USER_COLUMNS, snapshot_of
from app.operations.grants.grants import TokenSnapshot
from app.operations.store import clock
from app.operations.tokens import access_tokens
from app.operations.tokens.access_tokens import PreparedAccessToken, TokenResponse
from app.rules.errors import NotFound
from app.rules.identifiers import is_routing_key, parse_client_id
from app.rules.token_values import ACCESS_TOKEN, digest, parse_token

_TOKEN_COLUMNS = (
    "organization_id", "id", "digest", "client_id", "credential_id", "scope", "audience", "dpop_jkt", "issued_at",
    "expires_at",
)  # fmt: skip


_ISSUE_TO_CLIENT = CompiledQuery(
    insert(AccessToken).values({name: bindparam(name) for name in _TOKEN_COLUMNS})
)
# One round trip by the digest, with grant and user joined by primary key. Client and organization come from cached
# snapshots.
_TOKEN = (
    select(
        AccessToken.id,
        AccessToken.client_id,
        AccessToken.grant_id,
        AccessToken.credential_id,
        AccessToken.scope,
        AccessToken.audience,
        AccessToken.issued_at,
        AccessToken.expires_at,
        AccessToken.dpop_jkt,
        AccessToken.act,
        AccessToken.parent_id,
        Grant.user_id,
        Grant.auth_time,
        Grant.acr,
        Grant.claims,
        Grant.session_id,
        Grant.revoked_at,
        Grant.allowed_at,
        Grant.credential_id,
        User.email,
        User.status,
        User.tokens_not_before,
    )
    .select_from(AccessToken)
    .outerjoin(
        Grant, (Grant.organization_id == AccessToken.organization_id) & (Grant.id == AccessToken.grant_id)
    )
    .outerjoin(User, (User.organization_id == Grant.organization_id) & (User.id == Grant.user_id))
    .where(
        AccessToken.organization_id == bindparam("organization_id"),
        AccessToken.revoked_at.is_(None),
        AccessToken.expires_at > bindparam("now", type_=AccessToken.expires_at.type),
    )
)
_FIND = CompiledQuery(_TOKEN.where(AccessToken.digest == bindparam("digest")))
_FIND_WITH_USER = CompiledQuery(
    _TOKEN.add_columns(*USER_COLUMNS).where(AccessToken.digest == bindparam("digest"))
)
_FIND_BY_ID = CompiledQuery(_TOKEN.where(AccessToken.id == bindparam("id")))


def issue_to_client(
    authenticated: AuthenticatedClient, scopes: tuple[str, ...], resources: tuple[str, ...] = ()
) -> TokenResponse:
    """Issue an access token to the client itself (RFC 6749 section 4.4)."""
    made = prepare_client_token(authenticated, scopes, resources)
    store_client_token(authenticated, made)
    return TokenResponse.of(made)


def prepare_client_token(
    authenticated: AuthenticatedClient, scopes: tuple[str, ...], resources: tuple[str, ...] = ()
) -> PreparedAccessToken:
    """Generate an access token for the client itself without storing it; ``scopes`` are registered for the client.

    Raises InvalidTarget, InvalidScope for a scope that the client has no access to.
    """
    client = authenticated.client
    return access_tokens.prepare_access_token(
        client,
        scopes,
        now=clock.now(),
        subject=client.client_id,
        resources=resources,
        dpop_jkt=authenticated.dpop_jkt,
        is_consented=False,
    )


def store_client_token(authenticated: AuthenticatedClient, made: PreparedAccessToken) -> None:
    """Store and commit a prepared token with one statement.

    There is no audit event: the row itself records who received the token, when, and with which secret.
    """
    _ISSUE_TO_CLIENT.insert(
        organization_id=authenticated.client.organization.id,
        client_id=authenticated.client.id,
        credential_id=authenticated.credential_id,
        **made.row,
    )


def find_token(
    token: str, *, organization_id: str | None = None, with_user: bool = False
) -> TokenSnapshot | None:
    """Return the valid access token, or None. ``organization_id`` limits the search to one organization.

    ``with_user`` reads the user's profile in the same query.
    """
    owner = owner_of(token)
    if owner is None or (organization_id is not None and owner != organization_id):
        return None
    query = _FIND_WITH_USER if with_user else _FIND
    row = query.first(organization_id=owner, digest=digest(token), now=clock.now())
    client = None if row is None else find_client_by_id(owner, row[1])
    return None if row is None or client is None else _validate_row(client, row)


def find_bearer(token: str, audience: str) -> TokenSnapshot | None:
    """Return the valid access token if it was issued for ``audience`` (RFC 8707), else None (TK-6)."""
    token_snapshot = find_token(token)
    return token_snapshot if token_snapshot is not None and audience in token_snapshot.audience else None


def is_revoked(organization_id: str, token_id: UUID) -> bool:
    """Return whether an unexpired access token was revoked, directly or with something that it depends on."""
    row = _FIND_BY_ID.first(organization_id=organization_id, id=token_id, now=clock.now())
    client = None if row is None else find_client_by_id(organization_id, row[1], fresh=True)
    return client is None or row is None or _validate_row(client, row) is None


def introspect(caller: ClientSnapshot, token: str) -> TokenSnapshot | None:
    """Return a valid token that was issued to the caller or is meant for one of its resources (IT-1)."""
    token_snapshot = find_for_introspection(caller, token)
    if token_snapshot is None or token_snapshot.client is caller:
        return token_snapshot
    is_meant = any(resource in caller.document.get("resources", ()) for resource in token_snapshot.audience)
    return token_snapshot if is_meant else None


def find_for_introspection(caller: ClientSnapshot, token: str) -> TokenSnapshot | None:
    """Return a valid token of the caller's organization; its ``client`` is the caller itself for its own token."""
    organization_id = caller.organization.id
    if owner_of(token) != organization_id:
        return None
    row = _FIND.first(organization_id=organization_id, digest=digest(token), now=clock.now())
    if row is None:
        return None
    client = caller if row[1] == caller.id else find_client_by_id(organization_id, row[1])
    return None if client is None else _validate_row(client, row)


def owner_of(token: str) -> str | None:
    """Return the organization that an opaque or JWT access token claims, unverified; None for other strings."""
    parsed = parse_token(token)
    if parsed is not None:
        return parsed.organization_id if parsed.kind == ACCESS_TOKEN else None
    client_id, slug = access_tokens.unverified_client_and_organization(token)
    client = parse_client_id(client_id)
    if client is not None:
        return client[0] if is_routing_key(client[0]) else None
    if not client_id.startswith("https://"):
        return None
    # The URL of a client's metadata document does not name the organization, but the token does.
    try:
        return lookups.get_organization_by_slug(slug, fresh=False).id
    except NotFound:
        return None


def _validate_row(client: ClientSnapshot, row: Sequence[Any]) -> TokenSnapshot | None:
    """Return the row's token if everything that it depends on is valid; ``client`` is the one it was issued to."""
    (
        token_id, _, grant_id, credential_id, scope, audience, issued_at, expires_at, dpop_jkt, act,
        parent_id, user_id, auth_time, acr, claims, session_id, grant_revoked_at, allowed_at, redeemed_with,
        email, user_status, user_not_before, *user_columns,
    ) = row  # fmt: skip
    if not client.is_active or client.invalidates(issued_at):
        return None
    secret_cutoff = client.secret_cutoffs.get(credential_id) if credential_id is not None else None
    if secret_cutoff is not None and secret_cutoff.invalidates(issued_at):
        return None
    if grant_id is not None:
        if grant_revoked_at is not None or user_status != user_model.ACTIVE:
            return None
        if is_before_cutoff(allowed_at, user_not_before) or client.invalidates_grant(
            allowed_at, auth_time, redeemed_with
        ):
            return None
    # A user allowed the client the tokens of a grant, but not those that it exchanged.
    is_consented = grant_id is not None and parent_id is None
    if not access_tokens.has_token_access(client, scope, audience, issued_at, is_consented=is_consented):
        return None
    parent = None if parent_id is None else _parent(client.organization.id, parent_id)
    if parent_id is not None and parent is None:
        return None  # The token that it was exchanged for is no longer valid (RFC 8693).
    return TokenSnapshot(
        id=token_id,
        client=client,
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
        parent=parent,
        user=snapshot_of(user_columns) if user_columns and user_id is not None else None,
    )


def _parent(organization_id: str, token_id: UUID) -> TokenSnapshot | None:
    row = _FIND_BY_ID.first(organization_id=organization_id, id=token_id, now=clock.now())
    client = None if row is None else find_client_by_id(organization_id, row[1])
    return None if row is None or client is None else _validate_row(client, row)
