"""Validation of DPoP proofs (RFC 9449 section 4)."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from app.rules import jws
from app.rules.clients.client_assertions import LATEST
from app.rules.errors import HasDefaultText, OAuthError
from app.rules.languages.translation import lazy_gettext
from app.rules.strict_json import InvalidJson, load_object

# RS256 is not supported (FAPI 2.0 Security Profile section 5.4.1). Ed25519 is RFC 9864's name of EdDSA.
ALGORITHMS = ("ES256", "PS256", "EdDSA", "Ed25519")
TYPE = "dpop+jwt"
MAX_LENGTH = 4096
MAX_JTI_LENGTH = 256
OLDEST = timedelta(seconds=60)
# How far a caller's clock may be ahead: ten seconds (FAPI 2.0 Security Profile section 5.3.2.1), and two more because
# this server's clock may be as wrong as the caller's.
AHEAD = timedelta(seconds=12)

_THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")
_NUMBER = re.compile(r"[A-Za-z0-9_-]+")
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
_DEFAULT_PORTS = {"https": 443, "http": 80}


class Proof(Struct, frozen=True):
    """A valid proof. ``jkt`` is its key's thumbprint (RFC 7638).

    It was not accepted before ``since`` and is not after ``until``.
    """

    jkt: str
    jti: str
    nonce: str | None
    since: datetime
    until: datetime


class InvalidProof(OAuthError):
    """The proof is invalid (RFC 9449 section 5)."""

    code = "invalid_dpop_proof"


class MissingProof(InvalidProof):
    """A required proof is missing: as for any parameter, by RFC 6749 section 5.2."""

    code = "invalid_request"


class NonceNeeded(HasDefaultText, OAuthError):
    """The proof must contain the nonce of this error response (RFC 9449 section 8)."""

    code = "use_dpop_nonce"
    default_description = lazy_gettext("The DPoP proof must contain the nonce from the DPoP-Nonce header.")


def validate_proof(
    header: str, *, method: str, url: str, now: datetime, access_token: str | None = None
) -> Proof:
    """Return the proof in the header ``DPoP``. Raises InvalidProof if any part is wrong (RFC 9449 section 4.3).

    ``method`` and ``url`` are those of the request; ``access_token`` is what it presents to a resource. Whether the
    ``jti`` is fresh and the ``nonce`` ours is for the caller to ask.
    """
    if "," in header:
        raise InvalidProof("The request contains more than one DPoP proof. Send exactly one.")
    match = jws.COMPACT.fullmatch(header) if len(header) <= MAX_LENGTH else None
    if match is None:
        raise InvalidProof(f"The DPoP proof must be a compact JWS of at most {MAX_LENGTH} characters.")
    head, payload = _object(match[1], "header"), _object(match[2], "payload")
    members = _public_members(head)
    if not jws.is_signed(f"{match[1]}.{match[2]}".encode(), _decoded(match[3]), head["alg"], members):
        raise InvalidProof("The signature of the DPoP proof is invalid.")
    _require_this_request(payload, method, url)
    issued_at = _issued_at(payload, now)
    _require_this_token(payload, access_token)
    return Proof(_thumbprint(members), _jti(payload), _nonce(payload), issued_at - AHEAD, issued_at + OLDEST)


def is_thumbprint(text: str) -> bool:
    """Return whether the text can be a ``dpop_jkt`` (RFC 9449 section 10): 43 base64url characters."""
    return _THUMBPRINT.fullmatch(text) is not None


def _object(encoded: str, part: str) -> dict[str, Any]:
    try:
        return load_object(_decoded(encoded))
    except InvalidJson:
        raise InvalidProof(f"The {part} of the DPoP proof is not a JSON object.") from None


def _decoded(encoded: str) -> bytes:
    try:
        return jws.decode_base64url(encoded)
    except ValueError:
        raise InvalidProof("The DPoP proof is not base64url.") from None


def _public_members(head: Mapping[str, Any]) -> dict[str, str]:
    """Return only the members of the header's key that define it."""
    if head.get("typ") != TYPE:
        raise InvalidProof(f"The DPoP proof's typ must be {TYPE}.")
    if head.get("alg") not in ALGORITHMS:
        raise InvalidProof(f"The DPoP proof's alg must be one of: {', '.join(ALGORITHMS)}.")
    if "crit" in head or "b64" in head:
        raise InvalidProof("The DPoP proof uses an unsupported extension.")
    jwk = head.get("jwk")
    if not isinstance(jwk, dict):
        raise InvalidProof("The DPoP proof's jwk is missing.")
    if any(member in jwk for member in _PRIVATE):
        raise InvalidProof(
            "The DPoP proof contains a private key. Send the public key, and replace the key pair because it"
            " was disclosed."
        )
    members = _MEMBERS[head["alg"]](jwk)
    if members is None:
        raise InvalidProof("The DPoP proof's jwk does not match its alg.")
    return members


def _curve(kind: str, curve: str, *coordinates: str) -> Callable[[Mapping[str, Any]], dict[str, str] | None]:
    def members(jwk: Mapping[str, Any]) -> dict[str, str] | None:
        if jwk.get("kty") != kind or jwk.get("crv") != curve:
            return None
        found = {name: jwk.get(name) for name in coordinates}
        # 32 bytes each. Another length would give the same key another thumbprint.
        if not all(isinstance(value, str) and _THUMBPRINT.fullmatch(value) for value in found.values()):
            return None
        return {"kty": kind, "crv": curve, **{name: str(value) for name, value in found.items()}}

    return members


def _rsa(jwk: Mapping[str, Any]) -> dict[str, str] | None:
    modulus, exponent = jwk.get("n"), jwk.get("e")
    if jwk.get("kty") != "RSA" or not isinstance(modulus, str) or not isinstance(exponent, str):
        return None
    if not _NUMBER.fullmatch(modulus) or not _NUMBER.fullmatch(exponent):
        return None
    # 2048 to 4096 bits, and an exponent of at most four bytes, because verifying large ones is expensive.
    if not 342 <= len(modulus) <= 683 or not 2 <= len(exponent) <= 6:
        return None
    return {"kty": "RSA", "n": modulus, "e": exponent}


_ED25519 = _curve("OKP", "Ed25519", "x")
_MEMBERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, str] | None]] = {
    "ES256": _curve("EC", "P-256", "x", "y"),
    "PS256": _rsa,
    "EdDSA": _ED25519,
    "Ed25519": _ED25519,
}


def _require_this_request(payload: Mapping[str, Any], method: str, url: str) -> None:
    if payload.get("htm") != method:
        raise InvalidProof("The DPoP proof's htm is missing or is not the method of this request.")
    claimed = payload.get("htu")
    if not isinstance(claimed, str) or _normal(claimed) != _normal(url):
        raise InvalidProof("The DPoP proof's htu is missing or is not the URL of this request.").with_cause(
            "dpop_invalid", received=str(claimed)[:200], expected=url
        )


def _normal(url: str) -> tuple[str, str, int | None, str] | None:
    """Return scheme, host, port and path, without query and fragment (RFC 9449 section 4.3, RFC 3986 section 6.2)."""
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
        port = parts.port or _DEFAULT_PORTS.get(scheme)
    except ValueError:
        return None
    if scheme not in _DEFAULT_PORTS or not host or parts.username is not None:
        return None
    return scheme, host, port, unquote(parts.path) or "/"


def _issued_at(payload: Mapping[str, Any], now: datetime) -> datetime:
    value = payload.get("iat")
    # Milliseconds are beyond the year 9999.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LATEST:
        raise InvalidProof("The DPoP proof's iat must be a number of seconds since 1970.")
    seconds = value - now.timestamp()
    if seconds > AHEAD.total_seconds() or -seconds > OLDEST.total_seconds():
        raise InvalidProof("The DPoP proof's iat is too far from this server's time.").with_cause(
            "dpop_clock_skew", received=f"{seconds:+.0f} seconds from now"
        )
    return now + timedelta(seconds=seconds)


def _require_this_token(payload: Mapping[str, Any], access_token: str | None) -> None:
    if access_token is None:
        return
    claimed = payload.get("ath")
    if not isinstance(claimed, str) or not hmac.compare_digest(
        claimed.encode(), _hash(access_token.encode())
    ):
        raise InvalidProof("The DPoP proof's ath is missing or is not the hash of the access token.")


def _jti(payload: Mapping[str, Any]) -> str:
    jti = payload.get("jti")
    if not isinstance(jti, str) or not 1 <= len(jti) <= MAX_JTI_LENGTH:
        raise InvalidProof(f"The DPoP proof's jti must be 1 to {MAX_JTI_LENGTH} characters.")
    return jti


def _nonce(payload: Mapping[str, Any]) -> str | None:
    nonce = payload.get("nonce")
    if nonce is not None and not isinstance(nonce, str):
        raise InvalidProof("The DPoP proof's nonce must be a string.")
    return nonce


def _thumbprint(members: Mapping[str, str]) -> str:
    """Return the thumbprint of the required members, sorted by name (RFC 7638 section 3)."""
    return _hash(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).decode()


def _hash(data: bytes) -> bytes:
    return urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
