"""ID tokens that come back as a hint of whom a request is about (OIDC Core 3.1.2.1, RP-Initiated Logout section 2)."""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import import_key
from joserfc.jws import JWSRegistry

from app.operations.directory import OrganizationView
from app.operations.tokens.signing_keys import ALGORITHMS, public_keys

LONGEST = 4 * 1024


@dataclass(frozen=True, slots=True)
class HintedSignIn:
    """What an ID token of ours said: ``subject`` is the ``sub`` by which the client knows the user."""

    client_id: str
    subject: str
    session_id: str | None


def read_hint(organization: OrganizationView, hint: str) -> HintedSignIn | None:
    """The sign-in that an ID token of the organization tells of, or None when it is none of its own.

    One that has expired is as good as any, and so is one whose key signs no more, as long as that key is published.
    """
    parts = hint.split(".")
    if len(parts) != 3 or len(hint) > LONGEST or not hint.isascii():
        return None
    header, claims = _json(parts[0]), _json(parts[1])
    if not _is_id_token(header, claims) or claims["iss"] != organization.issuer:
        return None
    if not _is_signed(organization, header, f"{parts[0]}.{parts[1]}".encode(), parts[2]):
        return None
    sid = claims.get("sid")
    return HintedSignIn(claims["aud"], claims["sub"], sid if isinstance(sid, str) else None)


def _is_id_token(header: Any, claims: Any) -> bool:
    """Access and logout tokens are signed by the same keys; they have another type and other claims."""
    if not isinstance(header, dict) or not isinstance(claims, dict) or header.get("typ") != "JWT":
        return False
    texts = all(isinstance(claims.get(name), str) for name in ("iss", "aud", "sub"))
    return texts and "at_hash" in claims and "auth_time" in claims


def _is_signed(organization: OrganizationView, header: dict[str, Any], signed: bytes, signature: str) -> bool:
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        return False
    for jwk in public_keys(organization.id):
        if jwk["kid"] == header.get("kid") and jwk["alg"] == algorithm:
            try:
                key: Any = import_key({name: jwk[name] for name in jwk if name not in {"use", "alg"}})
                return bool(JWSRegistry.algorithms[algorithm].verify(signed, _bytes(signature), key))
            except (JoseError, ValueError):
                return False
    return False


def _json(part: str) -> Any:
    try:
        return json.loads(_bytes(part))
    except (ValueError, RecursionError):
        return None


def _bytes(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error as error:
        raise ValueError("this is no base64url") from error
