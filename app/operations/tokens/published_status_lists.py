"""Status lists as APIs read them (draft-ietf-oauth-status-list-17 sections 5 and 8).

A list is made from the state of its tokens when it is read, so whatever ends a token ends it in the list.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, or_, select, type_coerce

from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.fast_path.compiled_query import CompiledQuery
from app.models import user as user_model
from app.models.base import has_key, is_same
from app.models.grant import Grant
from app.models.token import AccessToken, StatusList, StatusListEntry
from app.models.user import User
from app.operations.directory.lookups import find_client_by_id
from app.operations.directory.snapshots import OrganizationSnapshot, is_before_cutoff
from app.operations.grants import signing_keys
from app.operations.store import clock
from app.operations.store.transactions import read
from app.operations.tokens.status_lists import BLOCK_USED, PREFIX, list_uri
from app.operations.tokens.tokens import GRANT_COLUMNS, UNSTORED_COLUMNS, Parents, load_parents, validate_row
from app.rules.errors import NotFound
from app.rules.identifiers import parse_public_id
from app.rules.tokens.status_lists import BUILT_SECONDS, SIZE, TTL_SECONDS, TYPE, VALID_SECONDS, list_claim

_MAX_LISTS = 1_000
_signed: BoundedCache[tuple[datetime, str]] = BoundedCache(_MAX_LISTS)
# One thread makes a list while the others of this process wait for it.
_locks = tuple(threading.Lock() for _ in range(64))


def _time(aggregate: Any) -> Any:
    return type_coerce(aggregate, StatusListEntry.issued_at.type)


_ENTRIES = (
    select(
        StatusListEntry.first_index,
        StatusListEntry.indexes,
        AccessToken.revoked_at,
        AccessToken.parent_id,
        Grant.expires_at,
        *(getattr(StatusListEntry, name) for name in UNSTORED_COLUMNS[:-1]),
        AccessToken.dpop_jkt,
        *GRANT_COLUMNS,
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
_START, _END = (bindparam(name, type_=StatusListEntry.issued_at.type) for name in ("start", "end"))
_OF_SECRET = (
    StatusListEntry.client_id == bindparam("client_id"),
    StatusListEntry.credential_id.is_not_distinct_from(bindparam("credential_id")),
)
_BETWEEN = (*_OF_SECRET, StatusListEntry.issued_at >= _START, StatusListEntry.issued_at <= _END)
_ENTRIES_BETWEEN = CompiledQuery(_ENTRIES.where(*_BETWEEN))
# What has ended, which may be the whole list, needs no more than its indexes: by its client, secret or a cutoff,
_ENDED_BY_CLIENT = CompiledQuery(
    select(StatusListEntry.first_index, StatusListEntry.indexes).where(
        StatusListEntry.organization_id == bindparam("organization_id"),
        StatusListEntry.list_id == bindparam("list_id"),
        *_OF_SECRET,
        or_(StatusListEntry.issued_at < _START, StatusListEntry.issued_at > _END),
        StatusListEntry.expires_at > bindparam("since", type_=StatusListEntry.expires_at.type),
    )
)
# or by itself, its grant or user.
_ENDED = CompiledQuery(
    _ENTRIES.with_only_columns(StatusListEntry.first_index, StatusListEntry.indexes).where(
        or_(
            AccessToken.revoked_at.is_not(None),
            StatusListEntry.grant_id.is_not(None)
            & or_(
                User.id.is_(None),
                Grant.revoked_at.is_not(None),
                Grant.expires_at <= bindparam("now", type_=Grant.expires_at.type),
                User.status != user_model.ACTIVE,
                User.tokens_not_before > Grant.allowed_at,
            ),
        )
    )
)
# A list has thousands of tokens of users, nearly all of them valid. Few others have to be looked at: blocks of a
# client's tokens, and those that were exchanged.
_OTHERS = CompiledQuery(
    _ENTRIES.where(or_(StatusListEntry.grant_id.is_(None), AccessToken.parent_id.is_not(None)))
)
# All else is the same for tokens of one client, secret and access, but for their times, of which the extremes decide.
_SELECT_GROUPS = (
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
_GROUPS = CompiledQuery(_SELECT_GROUPS)
_GROUPS_BETWEEN = CompiledQuery(_SELECT_GROUPS.where(*_BETWEEN))
# Readers may allow for a difference of clocks after a token's expiry.
_LEEWAY = timedelta(minutes=10)


def get_signed_list(organization: OrganizationSnapshot, public: str) -> str:
    """Return a status list as a signed JWT, at most BUILT_SECONDS old. Raises NotFound.

    Its algorithm is the organization's, whatever the algorithms of its clients' tokens are.
    """
    list_id = parse_public_id(PREFIX, public)
    if list_id is None:
        raise _not_found()
    with _locks[hash(list_id) % len(_locks)]:
        now, key = clock.now(), (organization.version, list_id)
        cached = _signed.get(organization.id, *key)
        if cached is None or not timedelta() <= now - cached[0] < timedelta(seconds=BUILT_SECONDS):
            cached = (now, _sign(organization, list_id, now))
            _signed.put(organization.id, *key, value=cached)
        return cached[1]


def _sign(organization: OrganizationSnapshot, list_id: UUID, now: datetime) -> str:
    created_at = _find_created_at(organization.id, list_id, now)
    if created_at is None:
        raise _not_found()
    # A restored database may lack rows of tokens in the list.
    is_lost = is_before_cutoff(created_at, organization.tokens_valid_from)
    revoked = (
        [range(SIZE)]
        if is_lost or not organization.is_active
        else load_revoked_indexes(organization, list_id)
    )
    issued_at = int(now.timestamp())
    claims = {
        "iss": organization.issuer,
        "sub": list_uri(organization, list_id),
        "iat": issued_at,
        "exp": issued_at + VALID_SECONDS,
        "ttl": TTL_SECONDS,
        "status_list": list_claim(revoked),
    }
    algorithm = organization.settings["oauth"]["signing"]["algorithm"]
    return signing_keys.sign_jwt(organization, algorithm, claims, token_type=TYPE)


@read
def _find_created_at(organization_id: str, list_id: UUID, now: datetime) -> datetime | None:
    return db.session.scalar(
        select(StatusList.created_at).where(
            has_key(StatusList, organization_id, list_id), StatusList.expires_at > now
        )
    )


@read
def list_uris(organization: OrganizationSnapshot) -> list[str]:
    """Return the URLs of the organization's status lists, for APIs that fetch all in advance (section 9)."""
    ids = db.session.scalars(
        select(StatusList.id)
        .where(StatusList.organization_id == organization.id, StatusList.expires_at > clock.now())
        .order_by(StatusList.id.desc())
        .limit(_MAX_LISTS)
    )
    return [list_uri(organization, list_id) for list_id in ids]


def _not_found() -> NotFound:
    return NotFound("There is no such status list.")


def load_revoked_indexes(organization: OrganizationSnapshot, list_id: UUID) -> list[range]:
    """Return the indexes of a status list whose tokens are not valid, by the rules for every other token."""
    now = clock.now()
    keys = {"organization_id": organization.id, "list_id": list_id, "since": now - _LEEWAY}
    ended, rows = list(_ENDED.rows(now=now, **keys)), list(_OTHERS.rows(**keys))
    for client_id, credential_id in {
        group[:2] for group in _GROUPS.rows(**keys) if not _is_valid_group(organization.id, group)
    }:
        start, end = _find_period(organization.id, client_id, credential_id, now)
        period = {**keys, "client_id": client_id, "credential_id": credential_id, "start": start, "end": end}
        ended += _ENDED_BY_CLIENT.rows(**period)
        if not all(_is_valid_group(organization.id, group) for group in _GROUPS_BETWEEN.rows(**period)):
            rows += _ENTRIES_BETWEEN.rows(**period)
    parents = load_parents(organization.id, rows, now)
    ended += [row for row in rows if not _is_valid_entry(organization.id, row, parents, now)]
    return [range(row[0], row[0] + row[1]) for row in ended]


def _find_period(
    organization_id: str, client_id: UUID, credential_id: UUID | None, now: datetime
) -> tuple[datetime, datetime]:
    """Return when a token of the client's secret must have been issued to be valid, whatever else it depends on."""
    latest = now + _LEEWAY
    client = find_client_by_id(organization_id, client_id)
    if client is None or not client.is_active:
        return latest, latest
    secret = None if credential_id is None else client.secret_cutoffs.get(credential_id)
    if secret is not None and (secret.tokens_revoked or secret.tokens_expired):
        return latest, latest
    cutoffs = (
        client.tokens_not_before,
        client.organization.tokens_not_before,
        client.organization.tokens_valid_from,
        secret.tokens_not_before if secret is not None else None,
    )
    # A token in a list is valid for an hour at most, so every entry is newer than a day.
    start = max((cutoff for cutoff in cutoffs if cutoff is not None), default=now - timedelta(days=1))
    end = secret.revoked_at if secret is not None else None
    return start, end or latest


def _is_valid_entry(organization_id: str, row: Sequence[Any], parents: Parents, now: datetime) -> bool:
    _, indexes, revoked_at, parent_id, grant_expires_at, *values = row
    if revoked_at is not None or (grant_expires_at is not None and grant_expires_at <= now):
        return False
    client = find_client_by_id(organization_id, values[1])
    token, grant = values[: len(UNSTORED_COLUMNS)], values[len(UNSTORED_COLUMNS) :]
    issued = UNSTORED_COLUMNS.index("issued_at")
    # The last token of a block: the end of a secret ends what was issued later.
    last = min(token[issued] + BLOCK_USED, now) if indexes > 1 else token[issued]
    return client is not None and all(
        validate_row(client, (*token[:issued], at, *token[issued + 1 :], None, parent_id, *grant), parents)
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
        validate_row(client, (*token, issued_at, last, None, None, None, *grant)) is not None
        for issued_at in (first, last)
    )
