"""Indexes of status lists for JWT access tokens (draft-ietf-oauth-status-list).

A process fills lists of its own, so that an index is taken from its memory. A client gets a block of indexes for its
own tokens: one row for up to a thousand of them. The token of a grant has one index and one row.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from app.config import current
from app.fast_path.cache import BoundedCache
from app.fast_path.compiled_query import CompiledQuery, insert_into
from app.models.token import StatusList, StatusListEntry
from app.operations.directory.snapshots import ClientSnapshot, OrganizationSnapshot, is_before_cutoff
from app.operations.store import clock
from app.operations.store.transactions import in_transaction, insert_or_update, on_commit_or_now
from app.rules.identifiers import new_id, public_id
from app.rules.tokens.status_lists import SIZE

PREFIX = "stl"
# A process starts another list after this time, and tokens in a list are valid for an hour at most.
_FILLED = timedelta(hours=1)
_OVERTIME = timedelta(minutes=10)
# A database that was failed over may have lost the list, and its readers would reject all later tokens.
_STORED_AGAIN = timedelta(minutes=1)
_KEPT = timedelta(hours=3)
# A revocation ends a whole block, so a block is used for a short time only.
BLOCK_USED = timedelta(minutes=1)
_FIRST_BLOCK, _MAX_BLOCK = 8, 1024
_MAX_DERIVED = 300
_locks = tuple(threading.Lock() for _ in range(64))
_random = random.SystemRandom()
_INSERT_LIST = CompiledQuery(insert_into(StatusList))
INSERT_ENTRY = CompiledQuery(insert_into(StatusListEntry))


class _FillingList(Struct):
    """A list of this process; ``used`` indexes are given out, and those of ``shuffled`` are next."""

    id: UUID
    created_at: datetime
    stored_at: datetime | None = None
    used: int = 0
    shuffled: list[int] = field(default_factory=list)


class _Block(Struct, frozen=True):
    """Indexes for tokens of one client, secret, scope and audience."""

    list_id: UUID
    created_at: datetime
    size: int
    indexes: list[int]


_filling: BoundedCache[_FillingList] = BoundedCache(1_000)
# Two processes must not give out the same index.
os.register_at_fork(after_in_child=_filling.clear)


def list_uri(organization: OrganizationSnapshot, list_id: UUID) -> str:
    """Return the URL of a list, which is also its ``sub``."""
    return f"{organization.issuer}/oauth/status-lists/{public_id(PREFIX, list_id)}"


def ensure_list(organization: OrganizationSnapshot) -> None:
    """Start a list if this process has none with room.

    Call this before a transaction, so that the list is committed on its own.
    """
    with _locks[hash(organization.id) % len(_locks)]:
        filling = _with_room(organization, _MAX_BLOCK)
    _store(organization, filling)


def take_index(organization: OrganizationSnapshot) -> tuple[UUID, int]:
    """Return a list and an index of it that no other token has."""
    with _locks[hash(organization.id) % len(_locks)]:
        # In a transaction, so a list that had room before it is still used.
        filling = _with_room(organization, 1, overtime=_OVERTIME)
        if not filling.shuffled:
            # In no order, so that neighbours in the list were not issued one after the other.
            filling.shuffled = list(_take(filling, min(256, SIZE - filling.used)))
            _random.shuffle(filling.shuffled)
        index = filling.shuffled.pop()
    _store(organization, filling, overtime=_OVERTIME)
    return filling.id, index


def take_index_for_client(
    client: ClientSnapshot, credential_id: UUID | None, *, scope: str, audience: str, lifetime_seconds: int
) -> tuple[UUID, int]:
    """Return a list and an index for a token that the client gets for itself.

    The row of a block is committed on its own. A block is dropped with the snapshot of the client, and when a cutoff
    ends what was issued before: tokens that are issued after the cutoff must not end with it.
    """
    key: Hashable = ("status list block", credential_id, scope, audience)
    now = clock.now()
    block: _Block | None = client.derived.get(key)
    size = _FIRST_BLOCK
    if block is not None and _is_usable(block, client, credential_id, now):
        try:
            return block.list_id, block.indexes.pop()
        except IndexError:
            size = min(4 * block.size, _MAX_BLOCK)
    organization = client.organization
    with _locks[hash(organization.id) % len(_locks)]:
        filling = _with_room(organization, size)
        taken = _take(filling, size)
    _store(organization, filling)
    INSERT_ENTRY.insert(
        organization_id=organization.id,
        id=new_id(),
        list_id=filling.id,
        first_index=taken.start,
        indexes=size,
        client_id=client.id,
        credential_id=credential_id,
        scope=scope,
        audience=audience,
        issued_at=now,
        expires_at=now + BLOCK_USED + timedelta(seconds=lifetime_seconds),
    )
    indexes = list(taken)
    _random.shuffle(indexes)
    index = indexes.pop()
    if len(client.derived) < _MAX_DERIVED:
        client.derived[key] = _Block(filling.id, now, size, indexes)
    return filling.id, index


def entry_of_token(
    row: Mapping[str, Any], list_id: UUID, index: int, **owners: UUID | None
) -> dict[str, Any]:
    """Return the values of the entry for one token with this row of ``access_tokens``.

    ``owners`` are its ``client_id``, ``grant_id`` and ``credential_id``.
    """
    copied = {name: row[name] for name in ("id", "scope", "audience", "issued_at", "expires_at")}
    return {**copied, **owners, "list_id": list_id, "first_index": index, "indexes": 1}


def _is_usable(block: _Block, client: ClientSnapshot, credential_id: UUID | None, now: datetime) -> bool:
    secret = client.secret_cutoffs.get(credential_id) if credential_id is not None else None
    return (
        now < block.created_at + BLOCK_USED
        and not client.invalidates(block.created_at)
        and (secret is None or not secret.invalidates(block.created_at))
    )


def _with_room(
    organization: OrganizationSnapshot, count: int, *, overtime: timedelta = timedelta()
) -> _FillingList:
    """Return the list that this process fills, or a new one if that has no ``count`` indexes left.

    A new one has no row yet.
    """
    filling, now = _filling.get(organization.id), clock.now()
    if (
        filling is None
        or SIZE - filling.used < count
        or now > filling.created_at + _FILLED + overtime
        # All tokens in a list from before a restore are revoked, because their rows may be lost.
        or is_before_cutoff(filling.created_at, organization.tokens_valid_from)
    ):
        filling = _FillingList(new_id(), now)
        _filling.put(organization.id, value=filling)
    return filling


def _store(
    organization: OrganizationSnapshot, filling: _FillingList, *, overtime: timedelta = timedelta()
) -> None:
    """Store the list, unless a row that was committed shortly before is known.

    Hold no lock: on SQLite a thread that waits for it may have the only turn to write.
    """
    now, created_at = clock.now(), filling.created_at
    if filling.stored_at is not None and now < filling.stored_at + _STORED_AGAIN + overtime:
        return
    key = {"organization_id": organization.id, "id": filling.id}
    times = {"created_at": created_at, "expires_at": created_at + _KEPT}
    if in_transaction() and current().is_sqlite:
        # On its own it would wait for the turn of this transaction.
        insert_or_update(StatusList, key, {}, **times)
    else:
        _INSERT_LIST.insert_if_new(**key, **times)
    on_commit_or_now(partial(setattr, filling, "stored_at", now))


def _take(filling: _FillingList, count: int) -> range:
    first = filling.used
    filling.used += count
    return range(first, first + count)
