"""JWT payloads: one serialization for all that we sign."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from typing import Any


def compact(claims: dict[str, Any]) -> bytes:
    """The claims as UTF-8 JSON without spaces."""
    return json.dumps(claims, ensure_ascii=False, separators=(",", ":")).encode()


def left_half_hash(value: str) -> str:
    """``at_hash`` of a token for algorithms on SHA-256 (OIDC Core 3.1.3.6)."""
    return urlsafe_b64encode(hashlib.sha256(value.encode()).digest()[:16]).decode().rstrip("=")
