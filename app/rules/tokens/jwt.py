"""JWT payloads: one serialization for all that we sign."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from app.rules.strict_json import InvalidJson, load_object


def compact(claims: dict[str, Any]) -> bytes:
    """The claims as UTF-8 JSON without spaces."""
    return json.dumps(claims, ensure_ascii=False, separators=(",", ":")).encode()


def unverified_claim(token: str, name: str) -> str | None:
    """What a JWT says of itself: where to look for the key that decides whether it is true; None if it says nothing.

    No decision rests on it.
    """
    parts = token.split(".")
    try:
        payload = urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        value = load_object(payload).get(name)
    except (IndexError, ValueError, InvalidJson):
        return None
    return value if isinstance(value, str) else None


def left_half_hash(value: str, algorithm: str) -> str:
    """``at_hash`` of a token in an ID token signed by ``algorithm`` (OIDC Core 3.1.3.6).

    The hash is the one inside the signature: SHA-512 in Ed25519, SHA-256 in the others on offer.
    """
    made = (hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256)(value.encode()).digest()
    return urlsafe_b64encode(made[: len(made) // 2]).decode().rstrip("=")
