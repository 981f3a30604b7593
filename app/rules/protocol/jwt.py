"""JWT payloads: one serialization for all that we sign."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from typing import Any


def compact(claims: dict[str, Any]) -> bytes:
    """The claims as UTF-8 JSON without spaces."""
    return json.dumps(claims, ensure_ascii=False, separators=(",", ":")).encode()


def left_half_hash(value: str, algorithm: str) -> str:
    """``at_hash`` of a token in an ID token signed by ``algorithm`` (OIDC Core 3.1.3.6).

    The hash is the one inside the signature: SHA-512 in Ed25519, SHA-256 in the others on offer.
    """
    made = (hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256)(value.encode()).digest()
    return urlsafe_b64encode(made[: len(made) // 2]).decode().rstrip("=")
