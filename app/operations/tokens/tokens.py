"""Access tokens: issuing them to clients for themselves, and validating them.

These are the most frequent statements of the service; each is one round trip. A token is valid only while everything
that it depends on is: its grant (which may end with its session), its user, the secret that it was issued with, its
client and its organization. Grant and user are read with the token, the others come from cached snapshots that every
change invalidates (IT-3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from sqlalchemy import bindparam, exists, select

from app.fast_path.compiled_query import CompiledQuery, ListQuery
from app.models import user as user_model
from app.models.base import has_key, is_same
from app.models.grant import Grant
from app.models.token import AccessToken, StatusListEntry
from app.models.user import User
from app.operations.directory import lookups
from app.operations.directory.lookups import find_client_by_id, get_user_permissions
from app.operations.directory.snapshots import (
    AuthenticatedClient,
    ClientSnapshot,
    OrganizationSnapshot,
    is_before_cutoff,
)
from app.operations.directory.users import USER_COLUMNS, snapshot_of
from app.operations.grants.grants import TokenSnapshot, UnstoredRows
from app.operations.store import clock
from app.operations.store.transactions import insert_or_update
from app.operations.tokens import access_tokens, status_lists, tokens
from app.operations.tokens.access_tokens import PreparedAccessToken, TokenResponse, management_audience
from app.operations.tokens.status_lists import INSERT_ENTRY
from app.rules.actor import Actor
from app.rules.authorization.interaction import MULTI_FACTOR
from app.rules.directory.permissions import ALL_PERMISSIONS, ROOT_ONLY, intersect_permissions
from app.rules.errors import NotFound
from app.rules.identifiers import (
    ACCESS_TOKEN,
    digest,
    is_routing_key,
    parse_client_id,
    parse_public_id,
    parse_token,
)
from app.rules.sign_in.second_factors import AMR_MFA
from app.rules.tokens.unstored_tokens import CLAIM

GRANT_COLUMNS = (
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
        *GRANT_COLUMNS,
    )
    .select_from(AccessToken)
    .outerjoin(Grant, is_same(Grant.id, AccessToken.grant_id))
    .outerjoin(User, is_same(User.id, Grant.user_id))
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
_FIND_LISTED = ListQuery(_TOKEN, AccessToken.id)
_MAX_LISTED = 512
# What the validity of a token without a row depends on. It has one once it was revoked.
_FIND_REVOKED = CompiledQuery(
    select(AccessToken.id).where(
        has_key(AccessToken, bindparam("organization_id"), bindparam("id")),
        AccessToken.revoked_at.is_not(None),
    )
)
_FIND_GRANT = CompiledQuery(
    select(*GRANT_COLUMNS)
    .join(User, is_same(User.id, Grant.user_id))
    .where(
        has_key(Grant, bindparam("organization_id"), bindparam("grant_id")),
        Grant.expires_at > bindparam("now", type_=Grant.expires_at.type),
        ~exists().where(
            has_key(AccessToken, bindparam("organization_id"), bindparam("id")),
            AccessToken.revoked_at.is_not(None),
        ),
    )
)


UNSTORED_COLUMNS = (
    "id", "client_id", "grant_id", "credential_id", "scope", "audience", "issued_at", "expires_at", "dpop_jkt",
)  # fmt: skip


def issue_to_client(
    authenticated: AuthenticatedClient, scopes: tuple[str, ...], resources: tuple[str, ...] = ()
) -> TokenResponse:
    """Issue an access token to the client itself (RFC 6749 section 4.4)."""
    made = prepare_client_token(authenticated, scopes, resources)
    store_client_token(authenticated, made)
    return TokenResponse.of(made)


def prepare_client_token(
    authenticated: AuthenticatedClient,
    scopes: tuple[str, ...],
    resources: tuple[str, ...] = (),
    *,
    needs_scope: bool = False,
) -> PreparedAccessToken:
    """Generate an access token for the client itself without storing it; ``scopes`` are registered for the client.

    ``needs_scope`` if the client named the scopes. Raises InvalidTarget, InvalidScope for a scope that the client has
    no access to, and if none of the named ones belongs to the resources.
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
        credential_id=authenticated.credential_id,
        needs_scope=needs_scope,
    )


def store_client_token(authenticated: AuthenticatedClient, made: PreparedAccessToken) -> None:
    """Store and commit a prepared token with one statement, or none if its APIs do without the row.

    There is no audit event: the row itself records who received the token, when, and with which secret.
    """
    organization_id = authenticated.client.organization.id
    if made.entry is not None:
        INSERT_ENTRY.insert(organization_id=organization_id, **made.entry)
    if not made.is_stored:
        return
    access_tokens.INSERT_TOKEN.insert(
        organization_id=organization_id,
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
    return _find(owner, token, with_user=with_user)


def _find(
    organization_id: str, token: str, caller: ClientSnapshot | None = None, *, with_user: bool = False
) -> TokenSnapshot | None:
    """Return the organization's valid token; its ``client`` is ``caller`` if it was issued to that one."""
    if CLAIM in access_tokens.unverified_claims(token):
        return _find_unstored(organization_id, token, caller)
    query = _FIND_WITH_USER if with_user else _FIND
    row = query.first(organization_id=organization_id, digest=digest(token), now=clock.now())
    client = None if row is None else _client_of(organization_id, row[1], caller)
    return None if client is None or row is None else validate_row(client, row)


def _client_of(organization_id: str, client_id: UUID, caller: ClientSnapshot | None) -> ClientSnapshot | None:
    is_own = caller is not None and client_id == caller.id
    return caller if is_own else find_client_by_id(organization_id, client_id)


def _find_unstored(
    organization_id: str, token: str, caller: ClientSnapshot | None = None
) -> TokenSnapshot | None:
    """Return a valid token that has no row, by its signature and the state of what it depends on."""
    rows = read_unstored_rows(organization_id, token)
    client = None if rows is None else _client_of(organization_id, rows.token["client_id"], caller)
    if rows is None or client is None:
        return None
    grant_id, keys = rows.token["grant_id"], {"organization_id": organization_id, "id": rows.token["id"]}
    grant: Sequence[Any] | None
    if grant_id is None:
        grant = None if _FIND_REVOKED.first(**keys) is not None else (None,) * len(GRANT_COLUMNS)
    else:
        grant = _FIND_GRANT.first(grant_id=grant_id, now=clock.now(), **keys)
    if grant is None:
        return None
    values = (rows.token[name] for name in UNSTORED_COLUMNS)
    snapshot = validate_row(client, (*values, None, None, *grant))
    return None if snapshot is None else replace(snapshot, unstored=rows)


def read_unstored_rows(organization_id: str, token: str) -> UnstoredRows | None:
    """Return the rows of a JWT that was issued without them and has not expired, revoked or not; else None."""
    try:
        organization = lookups.get_organization_by_id(organization_id, fresh=False)
    except NotFound:
        return None
    found = access_tokens.read_unstored(organization, token)
    if found is None:
        return None
    token_id, facts, claims = found
    audience, expires_at = claims["aud"], datetime.fromtimestamp(claims["exp"], UTC)
    if expires_at <= clock.now():
        return None
    owners = {name: getattr(facts, name) for name in ("client_id", "grant_id", "credential_id")}
    row = owners | {
        "id": token_id,
        "digest": digest(token),
        "scope": claims.get("scope", ""),
        "audience": audience if isinstance(audience, str) else " ".join(audience),
        "issued_at": facts.issued_at,
        "expires_at": expires_at,
        "dpop_jkt": claims.get("cnf", {}).get("jkt"),
    }
    listed: dict[str, Any] = claims["status"]["status_list"] if "status" in claims else {"uri": ""}
    list_id = parse_public_id(status_lists.PREFIX, listed["uri"].rpartition("/")[2])
    entry = None if list_id is None else status_lists.entry_of_token(row, list_id, listed["idx"], **owners)
    return UnstoredRows(row, entry)


def store_unstored(organization_id: str, rows: UnstoredRows) -> None:
    """Store the rows of a token that had none, in the current transaction, before it is revoked or referred to."""
    for model, values in ((AccessToken, rows.token), (StatusListEntry, rows.entry)):
        if values is not None:
            insert_or_update(model, {"organization_id": organization_id, "id": values["id"]}, {}, **values)


def find_bearer(token: str, audience: str) -> TokenSnapshot | None:
    """Return the valid access token if it was issued for ``audience`` (RFC 8707), else None (TK-6)."""
    token_snapshot = find_token(token)
    return token_snapshot if token_snapshot is not None and audience in token_snapshot.audience else None


def is_revoked(organization_id: str, token_id: UUID) -> bool:
    """Return whether an unexpired access token was revoked, directly or with something that it depends on."""
    row = _FIND_BY_ID.first(organization_id=organization_id, id=token_id, now=clock.now())
    client = None if row is None else find_client_by_id(organization_id, row[1], fresh=True)
    return client is None or row is None or validate_row(client, row) is None


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
    return _find(organization_id, token, caller)


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


Parents = Mapping[UUID, Sequence[Any]]


def validate_row(
    client: ClientSnapshot, row: Sequence[Any], parents: Parents | None = None
) -> TokenSnapshot | None:
    """Return the row's token if everything that it depends on is valid; ``client`` is the one it was issued to.

    ``parents`` are the rows of the tokens that it was exchanged for, by id; None reads them.
    """
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
    parent = None if parent_id is None else _parent(client.organization.id, parent_id, parents)
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
        # Those that the user allowed the client by name are not the other client's: it has only its scopes.
        claims=claims if parent_id is None else None,
        parent=parent,
        user=snapshot_of(user_columns) if user_columns and user_id is not None else None,
    )


def load_parents(organization_id: str, rows: Iterable[Any], now: datetime) -> Parents:
    """Return the rows of the tokens that these were exchanged for, and so on, by id; those of a level together."""
    found: dict[UUID, Sequence[Any]] = {}
    while ids := list({row.parent_id for row in rows if row.parent_id is not None} - found.keys()):
        level: list[Any] = []
        for start in range(0, len(ids), _MAX_LISTED):
            part = ids[start : start + _MAX_LISTED]
            level += _FIND_LISTED.rows(part, organization_id=organization_id, now=now)
        found |= {row.id: row for row in level}
        rows = level
    return found


def _parent(organization_id: str, token_id: UUID, parents: Parents | None) -> TokenSnapshot | None:
    if parents is None:
        row = _FIND_BY_ID.first(organization_id=organization_id, id=token_id, now=clock.now())
    else:
        row = parents.get(token_id)
    client = None if row is None else find_client_by_id(organization_id, row[1])
    return None if row is None or client is None else validate_row(client, row, parents)


def find_management_token(token: str) -> TokenSnapshot | None:
    """Return the valid access token if it was issued for the management API (TK-6)."""
    return tokens.find_bearer(token, management_audience())


def actor_of_token(
    token_snapshot: TokenSnapshot, *, ip_address: str | None, request_id: str | None
) -> tuple[Actor, OrganizationSnapshot]:
    """Return the actor of a management token, and its organization.

    The actor of a user's token has no ``session_id``, because a token is not a browser session.
    """
    client = token_snapshot.client
    organization = client.organization
    granted = frozenset(token_snapshot.scopes) & frozenset(client.document["scopes"]) & ALL_PERMISSIONS
    if token_snapshot.user_id is not None:
        held = get_user_permissions(organization, organization.id, token_snapshot.user_id)
    else:
        held = ALL_PERMISSIONS if organization.is_root else ALL_PERMISSIONS - frozenset(ROOT_ONLY)
    actor = Actor(
        "user" if token_snapshot.user_id is not None else "client",
        organization.id,
        organization.id,
        permissions=intersect_permissions(granted, held),
        is_root=organization.is_root,
        user_id=token_snapshot.user_id,
        client_id=client.id,
        label=(token_snapshot.user_email if token_snapshot.user_id is not None else client.name) or "",
        ip_address=ip_address,
        request_id=request_id,
        authenticated_at=token_snapshot.authenticated_at,
        token_id=token_snapshot.id,
        token_expires_at=token_snapshot.expires_at,
        amr=(AMR_MFA,) if token_snapshot.acr == MULTI_FACTOR else (),
    )
    return actor, organization
