"""Status lists as APIs read them (draft-ietf-oauth-status-list-17 sections 5 and 8).

A list is made from the state of its tokens when it is read, so whatever ends a token ends it in the list.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.models.base import has_key
from app.models.token import StatusList
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.directory.snapshots import is_before_cutoff
from app.operations.grants import signing_keys
from app.operations.store import clock
from app.operations.store.transactions import read
from app.operations.tokens import tokens
from app.operations.tokens.status_lists import PREFIX, list_uri
from app.rules.errors import NotFound
from app.rules.identifiers import parse_public_id
from app.rules.tokens.status_lists import (
    BUILT_SECONDS,
    SIZE,
    TTL_SECONDS,
    TYPE,
    VALID_SECONDS,
    list_claim,
)

_MAX_LISTS = 1_000
_signed: BoundedCache[tuple[datetime, str]] = BoundedCache(_MAX_LISTS)
# One thread makes a list while the others of this process wait for it.
_locks = tuple(threading.Lock() for _ in range(64))


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
        else tokens.load_revoked_indexes(organization, list_id)
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
