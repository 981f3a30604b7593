"""What a token is, for people who look at one: its kind, claims, signature and state."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any

from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.store import clock
from app.rules.tokens.claims import left_half_hash

_PLAIN_JWT = "JWT"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a token: what was checked, whether it holds, and the value in words."""

    name: str
    holds: bool
    detail: str


def check_id_token(
    organization: OrganizationSnapshot, id_token: str, *, client_id: str, nonce: str | None, access_token: str
) -> list[Check]:
    """Check an ID token as its client must (OIDC Core section 3.1.3.7); ``nonce`` is None where none was sent."""
    header, unverified = decode_jwt(id_token) or ({}, {})
    claims = signing_keys.read_jwt(organization.id, id_token, token_type=_PLAIN_JWT)
    found = unverified if claims is None else claims
    audience = found.get("aud")
    expires_in = _seconds_left(found.get("exp"))
    at_hash = left_half_hash(access_token, str(header.get("alg")))
    checks = [
        Check("Signature", claims is not None, f"{header.get('alg')} with the key {header.get('kid')}"),
        Check("iss", found.get("iss") == organization.issuer, str(found.get("iss"))),
        Check("aud", audience == client_id, str(audience)),
        Check("exp", expires_in is not None and expires_in > 0, f"in {expires_in} seconds"),
        Check(
            "at_hash", hmac.compare_digest(str(found.get("at_hash")), at_hash), "belongs to the access token"
        ),
    ]
    if nonce is not None:
        checks.append(Check("nonce", found.get("nonce") == nonce, "the one that was sent"))
    return checks


def decode_jwt(text: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return header and claims of a signed JWT, unverified, or None if it is none."""
    parts = text.split(".")
    if len(parts) != 3 or not text.isascii():
        return None
    try:
        header, claims = (json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2])
    except (ValueError, RecursionError):
        return None
    return (header, claims) if isinstance(header, dict) and isinstance(claims, dict) else None


def _seconds_left(value: Any) -> int | None:
    return int(value - clock.now().timestamp()) if isinstance(value, (int, float)) else None
