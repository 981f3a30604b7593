"""Whether a text is an ID token signed by one of the keys; its age does not count, for it is a hint."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from app.rules.strict_json import InvalidJson, load_object

LONGEST = 8192
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_KINDS: Mapping[str, type[ECKey] | type[OKPKey] | type[RSAKey]] = {"EC": ECKey, "OKP": OKPKey, "RSA": RSAKey}


def unverified_audience(id_token: str) -> str | None:
    """For whom the token claims to be: where to look for the keys that decide whether it is true."""
    match = _match(id_token)
    audience = _object(match[2]).get("aud") if match is not None else None
    return audience if isinstance(audience, str) else None


def claims_of(id_token: str, public_jwks: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The claims of an ID token that one of the keys signed, or None; ``iss``, ``sub`` and ``aud`` are strings.

    ``alg`` is the key's own, whatever the header would like (KY-4). Of all that an issuer signs, an ID token alone
    has ``typ`` JWT and an ``auth_time``: access tokens and logout tokens do not count.
    """
    match = _match(id_token)
    if match is None:
        return None
    head, claims = _object(match[1]), _object(match[2])
    key = next((key for key in public_jwks if key.get("kid") == head.get("kid")), None)
    if key is None or head.get("alg") != key["alg"] or head.get("typ") != "JWT" or "crit" in head:
        return None
    if (
        not all(isinstance(claims.get(name), str) for name in ("iss", "sub", "aud"))
        or "auth_time" not in claims
    ):
        return None
    signature = _decoded(match[3])
    if signature is None or not _is_signed(key, f"{match[1]}.{match[2]}".encode(), signature):
        return None
    return claims


def _match(id_token: str) -> re.Match[str] | None:
    return _COMPACT.fullmatch(id_token) if len(id_token) <= LONGEST else None


def _is_signed(jwk: Mapping[str, Any], signed: bytes, signature: bytes) -> bool:
    try:
        key = _KINDS[jwk["kty"]].import_key(dict(jwk))
        return bool(JWSRegistry.algorithms[jwk["alg"]].verify(signed, signature, key))
    except (JoseError, ValueError):
        return False


def _object(encoded: str) -> dict[str, Any]:
    decoded = _decoded(encoded)
    try:
        return load_object(decoded) if decoded is not None else {}
    except InvalidJson:
        return {}


def _decoded(encoded: str) -> bytes | None:
    try:
        return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        return None
