"""JSON Web Signatures in compact form (RFC 7515): their parts, and whether a public key made a signature."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_KINDS: Mapping[str, type[ECKey] | type[OKPKey] | type[RSAKey]] = {"EC": ECKey, "OKP": OKPKey, "RSA": RSAKey}
# The members that define a key, besides ``kty`` (RFC 7638 section 3.2).
_MEMBERS = {"EC": ("crv", "x", "y"), "OKP": ("crv", "x"), "RSA": ("n", "e")}


def decode_base64url(encoded: str) -> bytes:
    """Return the bytes of base64url without padding (RFC 7515 section 2). Raises ValueError."""
    return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


def read_part(encoded: str) -> dict[str, Any] | None:
    """Return the JSON object of a header or payload, unverified, or None if it is none."""
    try:
        value = json.loads(decode_base64url(encoded))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_signed(signed: bytes, signature: bytes, algorithm: str, jwk: Mapping[str, Any]) -> bool:
    """Return whether the public key, a JWK of a kind that fits the algorithm, made the signature."""
    members: dict[str, str | list[str]] = {}
    for name in ("kty", *_MEMBERS[jwk["kty"]]):
        value = jwk.get(name)
        if not isinstance(value, str):
            return False
        members[name] = value
    try:
        key = _KINDS[jwk["kty"]].import_key(members)
        return bool(JWSRegistry.algorithms[algorithm].verify(signed, signature, key))
    except (JoseError, ValueError):
        return False  # Some errors, such as a point outside of the curve, appear only when the key is used.
