"""What counts once: the ``jti`` of a client assertion or of a DPoP proof. A unique key decides, never a look before."""

from __future__ import annotations

import hashlib
from datetime import datetime

from sqlalchemy import bindparam, insert, select

from app.models.event import UsedIdentifier
from app.operations.statements import Statement
from app.rules.identifiers import new_id

_CLAIM = Statement(
    insert(UsedIdentifier).values(
        organization_id=bindparam("organization_id"),
        digest=bindparam("digest"),
        attempt=bindparam("attempt"),
        expires_at=bindparam("expires_at"),
    )
)
_WHOSE = Statement(
    select(UsedIdentifier.attempt).where(
        UsedIdentifier.organization_id == bindparam("organization_id"),
        UsedIdentifier.digest == bindparam("digest"),
    )
)


def claim(organization_id: str, purpose: str, owner: str, value: str, *, until: datetime) -> bool:
    """Whether this is the first use of the value; committed at once, so that a refused request has used it too.

    ``purpose`` and ``owner`` (a ``client_id``, a key's thumbprint) keep apart what two callers may choose alike.
    ``until`` is when the value would be refused by its age anyway. Called outside of a unit of work.
    """
    attempt = new_id()
    digest = hashlib.sha256("\0".join((purpose, owner, value)).encode()).digest()
    written = _CLAIM.insert_if_new(
        organization_id=organization_id, digest=digest, attempt=attempt, expires_at=until
    )
    if written:
        return True
    # The answer of an earlier attempt of this very call may have been lost on the way.
    row = _WHOSE.first(organization_id=organization_id, digest=digest)
    return row is not None and row[0] == attempt
