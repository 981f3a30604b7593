"""Identifiers that may be used once, such as the ``jti`` of a client assertion or DPoP proof.

A unique key decides, never a read followed by a write.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from sqlalchemy import bindparam, insert, select

from app.fast_path.compiled_query import CompiledQuery
from app.models.event import UsedIdentifier
from app.rules.identifiers import new_id

_CLAIM = CompiledQuery(
    insert(UsedIdentifier).values(
        organization_id=bindparam("organization_id"),
        digest=bindparam("digest"),
        attempt=bindparam("attempt"),
        expires_at=bindparam("expires_at"),
    )
)
_FIND_ATTEMPT = CompiledQuery(
    select(UsedIdentifier.attempt).where(
        UsedIdentifier.organization_id == bindparam("organization_id"),
        UsedIdentifier.digest == bindparam("digest"),
    )
)


def claim(organization_id: str, purpose: str, owner: str, value: str, *, expires_at: datetime) -> bool:
    """Return whether this is the first use of the value. Committed immediately, even if the request is then refused.

    ``purpose`` and ``owner`` (a ``client_id`` or a key's thumbprint) separate values that two callers may choose alike.
    ``expires_at`` is when the value would be rejected because of its age. Call this outside a transaction.
    """
    attempt = new_id()
    digest = hashlib.sha256("\0".join((purpose, owner, value)).encode()).digest()
    written = _CLAIM.insert_if_new(
        organization_id=organization_id, digest=digest, attempt=attempt, expires_at=expires_at
    )
    if written:
        return True
    # The reply to an earlier attempt of this call may have been lost.
    row = _FIND_ATTEMPT.first(organization_id=organization_id, digest=digest)
    return row is not None and row[0] == attempt
