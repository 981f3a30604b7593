"""The claim of a JWT access token that is not stored: the data that its validity depends on.

Only this installation can make the claim. A token of another installation that has the same
signing keys, as after an export, is therefore not accepted: its revocations are not known here.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec import Struct

CLAIM = "unstored"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NONE = UUID(int=0)
_TIME_BYTES, _ID_BYTES, _TAG_BYTES = 8, 16, 16
_LENGTH = _TIME_BYTES + 3 * _ID_BYTES + _TAG_BYTES


class UnstoredTokenData(Struct, frozen=True):
    """The row of the client, of the grant and of the secret that issued the token; ``iat`` has no fractions."""

    issued_at: datetime
    client_id: UUID
    grant_id: UUID | None
    credential_id: UUID | None


def sign_token_data(key: bytes, token_id: UUID, data: UnstoredTokenData) -> str:
    """Return the value of the claim with its authentication tag, in base64url."""
    microseconds = (data.issued_at - _EPOCH) // timedelta(microseconds=1)
    ids = (data.client_id, data.grant_id or _NONE, data.credential_id or _NONE)
    content = microseconds.to_bytes(_TIME_BYTES) + b"".join(one.bytes for one in ids)
    return urlsafe_b64encode(content + _tag(key, token_id, content)).decode()


def verify_token_data(key: bytes, token_id: UUID, text: str) -> UnstoredTokenData | None:
    """Return the data of a claim that was made with the key for this token, else None."""
    try:
        content = urlsafe_b64decode(text)
    except ValueError:
        return None
    content, tag = content[:-_TAG_BYTES], content[-_TAG_BYTES:]
    if len(content) + len(tag) != _LENGTH or not hmac.compare_digest(tag, _tag(key, token_id, content)):
        return None
    client_id, grant_id, credential_id = (
        UUID(bytes=content[start : start + _ID_BYTES])
        for start in range(_TIME_BYTES, len(content), _ID_BYTES)
    )
    issued_at = _EPOCH + timedelta(microseconds=int.from_bytes(content[:_TIME_BYTES]))
    return UnstoredTokenData(
        issued_at,
        client_id,
        None if grant_id == _NONE else grant_id,
        None if credential_id == _NONE else credential_id,
    )


def _tag(key: bytes, token_id: UUID, content: bytes) -> bytes:
    return hmac.digest(key, token_id.bytes + content, hashlib.sha256)[:_TAG_BYTES]
