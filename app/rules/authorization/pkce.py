"""PKCE with S256, for every client (RFC 7636, RFC 9700 section 2.1.1)."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode

METHOD = "S256"
# fullmatch, never ``^…$`` with match: that lets a line feed through at the end (PK-3).
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


def is_challenge(text: str) -> bool:
    """Whether the text can be an S256 challenge: 43 base64url characters."""
    return _CHALLENGE.fullmatch(text) is not None


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a verifier (RFC 7636 section 4.2)."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def is_verified(verifier: str | None, challenge: str) -> bool:
    """Whether the verifier is the one that the challenge was made from (PK-4)."""
    if verifier is None or _VERIFIER.fullmatch(verifier) is None:
        return False
    return hmac.compare_digest(challenge_of(verifier), challenge)
