"""Access tokens: issuing them to clients for themselves, and validating them.

These are the most frequent statements of the service; each is one round trip. A token is valid only while everything
that it depends on is: its grant (which may end with its session), its user, the secret that it was issued with, its
client and its organization. Grant and user are read with the token, the others come from cached snapshots that every
change invalidates (IT-3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, exists, func, insert, or_, select, type_coerce

from app.fast_path.compiled_query import CompiledQuery, list_parameters, list_values, size_of_list
from app.models import user as user_model
from app.models.base import has_key, is_same
from app.models.grant import Grant
from app.models.token import AccessToken, StatusListEntry
from app.models.user import User
from app.operations.directory import lookups
from app.operations.directory.lookups import (
    AuthenticatedClient,
    ClientSnapshot,
    OrganizationSnapshot,
    find_client_by_id,
)
from app.operations.directory.snapshots import is_before_cutoff
from app.operations.directory.users import USER_COLUMNS, snapshot_of
from app.operations.grants.grants import TokenSnapshot, UnstoredRows
from app.operations.store import clock
from app.operations.store.transactions import insert_or_update
from app.operations.tokens import access_tokens, status_lists
from app.operations.tokens.access_tokens import PreparedAccessToken, TokenResponse
from app.operations.tokens.status_lists import BLOCK_USED, INSERT_ENTRY
from app.rules.errors import NotFound
from app.rules.identifiers import is_routing_key, parse_client_id, parse_public_id
from app.rules.token_values import ACCESS_TOKEN, digest, parse_token
from app.rules.tokens.unstored_tokens import CLAIM

_TOKEN_COLUMNS = (
    "organization_id", "id", "digest", "client_id", "credential_id", "scope", "audience", "dpop_jkt", "issued_at",
    "expires_at",
)  # fmt: skip


_ISSUE_TO_CLIENT = CompiledQuery(
    insert(AccessToken).values({name: bindparam(name) for name in _TOKEN_COLUMNS})
)
_GRANT_COLUMNS = (
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
        *_GRANT_COLUMNS,
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
_MAX_LISTED = 512


@cache
def _find_by_ids_query(size: int) -> CompiledQuery:
    return CompiledQuery(_TOKEN.where(AccessToken.id.in_(list_parameters("id", AccessToken.id, size))))


# What the validity of a token without a row depends on. It has one once it was revoked.
_FIND_REVOKED = CompiledQuery(
    select(AccessToken.id).where(
        has_key(AccessToken, bindparam("organization_id"), bindparam("id")),
        AccessToken.revoked_at.is_not(None),
    )
)
_FIND_GRANT = CompiledQuery(
    select(*_GRANT_COLUMNS)
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


def _time(aggregate: Any) -> Any:
    return type_coerce(aggregate, StatusListEntry.issued_at.type)


_UNSTORED_COLUMNS = (
    "id", "client_id", "grant_id", "credential_id", "scope", "audience", "issued_at", "expires_at", "dpop_jkt",
)  # fmt: skip
_ENTRIES = (
    select(
        StatusListEntry.first_index,
        StatusListEntry.indexes,
        AccessToken.revoked_at,
        AccessToken.parent_id,
        Grant.expires_at,
        *(getattr(StatusListEntry, name) for name in _UNSTORED_COLUMNS[:-1]),
        AccessToken.dpop_jkt,
        *_GRANT_COLUMNS,
    )
    .select_from(StatusListEntry)
    .outerjoin(AccessToken, is_same(AccessToken.id, StatusListEntry.id))
    .outerjoin(Grant, is_same(Grant.id, StatusListEntry.grant_id))
    .outerjoin(User, is_same(User.id, Grant.user_id))
    .where(
        StatusListEntry.organization_id == bindparam("organization_id"),
        StatusListEntry.list_id == bindparam("list_id"),
        StatusListEntry.expires_at > bindparam("since", type_=StatusListEntry.expires_at.type),
    )
)
_ENTRIES_OF_CLIENT = CompiledQuery(_ENTRIES.where(StatusListEntry.client_id == bindparam("client_id")))
# A list has thousands of tokens of users, nearly all of them valid. The database finds those that are not by
# themselves, or because of their grant or user.
_SUSPECTS = CompiledQuery(
    _ENTRIES.where(
        or_(
            StatusListEntry.grant_id.is_(None),
            AccessToken.revoked_at.is_not(None),
            AccessToken.parent_id.is_not(None),
            User.id.is_(None),
            Grant.revoked_at.is_not(None),
            Grant.expires_at <= bindparam("now", type_=Grant.expires_at.type),
            User.status != user_model.ACTIVE,
            User.tokens_not_before > Grant.allowed_at,
        )
    )
)
# All else is the same for tokens of one client, secret and access, but for their times, of which the extremes decide.
_GROUPS = CompiledQuery(
    select(
        StatusListEntry.client_id,
        StatusListEntry.credential_id,
        StatusListEntry.scope,
        StatusListEntry.audience,
        Grant.credential_id,
        _time(func.min(StatusListEntry.issued_at)),
        _time(func.max(StatusListEntry.issued_at)),
        _time(func.min(Grant.allowed_at)),
        _time(func.min(Grant.auth_time)),
    )
    .join(Grant, is_same(Grant.id, StatusListEntry.grant_id))
    .where(
        StatusListEntry.organization_id == bindparam("organization_id"),
        StatusListEntry.list_id == bindparam("list_id"),
        StatusListEntry.expires_at > bindparam("since", type_=StatusListEntry.expires_at.type),
    )
    .group_by(
        StatusListEntry.client_id,
        StatusListEntry.credential_id,
        StatusListEntry.scope,
        StatusListEntry.audience,
        Grant.credential_id,
    )
)
# Readers may allow for a difference of clocks after a token's expiry.
_LEEWAY = timedelta(minutes=10)


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
        credential_id=authenticated.credential_id,
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
    _ISSUE_TO_CLIENT.insert(
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
    return None if client is None or row is None else _validate_row(client, row)


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
        grant = None if _FIND_REVOKED.first(**keys) is not None else (None,) * len(_GRANT_COLUMNS)
    else:
        grant = _FIND_GRANT.first(grant_id=grant_id, now=clock.now(), **keys)
    if grant is None:
        return None
    values = (rows.token[name] for name in _UNSTORED_COLUMNS)
    snapshot = _validate_row(client, (*values, None, None, *grant))
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


_Parents = Mapping[UUID, Sequence[Any]]


def _validate_row(
    client: ClientSnapshot, row: Sequence[Any], parents: _Parents | None = None
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
        claims=claims,
        parent=parent,
        user=snapshot_of(user_columns) if user_columns and user_id is not None else None,
    )


def load_revoked_indexes(organization: OrganizationSnapshot, list_id: UUID) -> list[range]:
    """Return the indexes of a status list whose tokens are not valid, by the rules for every other token."""
    now = clock.now()
    keys = {"organization_id": organization.id, "list_id": list_id, "since": now - _LEEWAY}
    rows = list(_SUSPECTS.rows(now=now, **keys))
    for client_id in {
        group[0] for group in _GROUPS.rows(**keys) if not _is_valid_group(organization.id, group)
    }:
        rows += _ENTRIES_OF_CLIENT.rows(client_id=client_id, **keys)
    parents = _load_parents(organization.id, rows, now)
    return [
        range(row[0], row[0] + row[1])
        for row in rows
        if not _is_valid_entry(organization.id, row, parents, now)
    ]


def _load_parents(organization_id: str, rows: Iterable[Any], now: datetime) -> _Parents:
    """Return the rows of the tokens that these were exchanged for, and so on, by id; those of a level together."""
    found: dict[UUID, Sequence[Any]] = {}
    while ids := list({row.parent_id for row in rows if row.parent_id is not None} - found.keys()):
        level: list[Any] = []
        for start in range(0, len(ids), _MAX_LISTED):
            part = ids[start : start + _MAX_LISTED]
            size = size_of_list(part)
            level += _find_by_ids_query(size).rows(
                organization_id=organization_id, now=now, **list_values("id", part, size)
            )
        found |= {row.id: row for row in level}
        rows = level
    return found


def _is_valid_entry(organization_id: str, row: Sequence[Any], parents: _Parents, now: datetime) -> bool:
    _, indexes, revoked_at, parent_id, grant_expires_at, *values = row
    if revoked_at is not None or (grant_expires_at is not None and grant_expires_at <= now):
        return False
    client = find_client_by_id(organization_id, values[1])
    token, grant = values[: len(_UNSTORED_COLUMNS)], values[len(_UNSTORED_COLUMNS) :]
    issued = _UNSTORED_COLUMNS.index("issued_at")
    # The last token of a block: the end of a secret ends what was issued later.
    last = min(token[issued] + BLOCK_USED, now) if indexes > 1 else token[issued]
    return client is not None and all(
        _validate_row(client, (*token[:issued], at, *token[issued + 1 :], None, parent_id, *grant), parents)
        is not None
        for at in {token[issued], last}
    )


def _is_valid_group(organization_id: str, group: Sequence[Any]) -> bool:
    """Return whether the oldest and the newest of the tokens are valid, so far as this depends on their client.

    Cutoffs end what is older, and the end of a secret what is newer. No rule ends only what lies between.
    """
    client_id, credential_id, scope, audience, redeemed_with, first, last, allowed_at, auth_time = group
    client = find_client_by_id(organization_id, client_id)
    if client is None:
        return False
    token = (client_id, client_id, client_id, credential_id, scope, audience)
    grant = (None, auth_time, *(None,) * 4, allowed_at, redeemed_with, None, user_model.ACTIVE, None)
    return all(
        _validate_row(client, (*token, issued_at, last, None, None, None, *grant)) is not None
        for issued_at in (first, last)
    )


def _parent(organization_id: str, token_id: UUID, parents: _Parents | None) -> TokenSnapshot | None:
    if parents is None:
        row = _FIND_BY_ID.first(organization_id=organization_id, id=token_id, now=clock.now())
    else:
        row = parents.get(token_id)
    client = None if row is None else find_client_by_id(organization_id, row[1])
    return None if row is None or client is None else _validate_row(client, row, parents)
