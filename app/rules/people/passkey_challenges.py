"""Challenges of passkeys: they carry their end and a tag, so that no page that a stranger asks for writes a row.

The tag binds a challenge to all that it was made for; a unique key lets it count once.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from datetime import UTC, datetime, timedelta
from enum import Enum

LIFE = timedelta(minutes=5)
NONCE_BYTES = 16
_END_BYTES, _TAG_BYTES = 8, 32
_LENGTH = NONCE_BYTES + _END_BYTES + _TAG_BYTES


class Standing(Enum):
    """What a challenge that came back is."""

    GOOD = "good"
    EXPIRED = "expired"
    FOREIGN = "foreign"


def make_challenge(key: bytes, bound: tuple[str, ...], nonce: bytes, expires_at: datetime) -> str:
    """A challenge in base64url. ``bound``: purpose, organization, browser, and who is asked where that is known."""
    head = nonce + int(expires_at.timestamp()).to_bytes(_END_BYTES, "big")
    return _text_of(head + _tag(key, bound, head))


def read_challenge(
    key: bytes, bound: tuple[str, ...], challenge: str, now: datetime
) -> tuple[Standing, datetime]:
    """(what it is, when it ends); one that was made for anything else is FOREIGN."""
    content = _bytes_of(challenge)
    head, tag = content[:-_TAG_BYTES], content[-_TAG_BYTES:]
    if len(content) != _LENGTH or not hmac.compare_digest(tag, _tag(key, bound, head)):
        return Standing.FOREIGN, now
    expires_at = datetime.fromtimestamp(int.from_bytes(head[NONCE_BYTES:], "big"), UTC)
    return (Standing.GOOD if now < expires_at else Standing.EXPIRED), expires_at


def _tag(key: bytes, bound: tuple[str, ...], head: bytes) -> bytes:
    # Each part with its length: no two bindings are one text.
    said = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in bound)
    return hmac.digest(key, said + head, hashlib.sha256)


def _text_of(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes_of(text: str) -> bytes:
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Error, ValueError):
        return b""
    # One spelling alone: another of the same bytes would count once more.
    return content if _text_of(content) == text else b""
