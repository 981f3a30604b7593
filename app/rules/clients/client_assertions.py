"""JWTs signed by clients (RFC 7515, RFC 7519): client assertions and request objects.

Header parameters other than ``alg``, ``kid`` and ``typ`` are ignored: keys come from the client's registration
alone, never from ``jku``, ``jwk``, ``x5c`` or ``x5u`` (KY-4).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from app.rules import jws
from app.rules.clients.client_types import SIGNING_ALGORITHMS
from app.rules.errors import InvalidClient
from app.rules.strict_json import InvalidJson, load_object

# Ed25519 is the name of EdDSA in RFC 9864.
ED25519 = "Ed25519"
ALGORITHMS = (*SIGNING_ALGORITHMS, ED25519)
# How far a caller's clock may differ.
LEEWAY = timedelta(seconds=30)
# 31 December 9999, the latest time that datetime supports.
LATEST = 253_402_300_799

_FITTING = {
    "RS256": ("RSA", None),
    "PS256": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", ED25519),
}
# A key of no client: verifying with it takes the same time for unknown clients and those without keys (CA-3).
_NOBODY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
}
TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_LENGTH = 8192
MAX_JTI_LENGTH = 256
MAX_LIFETIME = timedelta(minutes=5)
# A JWT for another purpose has another typ.
_TYPES = (None, "jwt", "client-authentication+jwt")


class MalformedJwt(Exception):
    """This is not a supported signed JWT. The message contains no part of it."""


@dataclass(frozen=True, slots=True)
class ClientJwt:
    """A parsed JWT that is not verified yet. ``algorithm`` is one of SIGNING_ALGORITHMS."""

    algorithm: str
    key_id: str | None
    type: str | None
    claims: Mapping[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def is_unsigned(text: str) -> bool:
    """Return whether the JWT claims to be unsigned (RFC 7519 section 6)."""
    try:
        return _object(text.partition(".")[0], "header").get("alg") == "none"
    except MalformedJwt:
        return False


def read(text: str, *, longest: int) -> ClientJwt:
    """Return the parts of a compact JWS of at most ``longest`` characters. Raises MalformedJwt.

    Unsigned, encrypted and symmetrically signed ones are rejected here, and so is every extension that the header
    calls critical.
    """
    match = jws.COMPACT.fullmatch(text) if len(text) <= longest else None
    if match is None:
        raise MalformedJwt(f"It must be a signed JWT in compact form, of at most {longest} characters.")
    header = _object(match[1], "header")
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if algorithm not in ALGORITHMS:
        raise MalformedJwt(f"Its alg must be one of: {', '.join(ALGORITHMS)}.")
    if "crit" in header or "b64" in header:
        raise MalformedJwt("It uses an unsupported extension.")
    if not all(value is None or isinstance(value, str) for value in (key_id, kind)):
        raise MalformedJwt("Its kid and typ must be strings.")
    return ClientJwt(
        algorithm=name_algorithm(algorithm),
        key_id=key_id,
        type=_media_type(kind),
        claims=_object(match[2], "payload"),
        signed=f"{match[1]}.{match[2]}".encode(),
        signature=_decoded(match[3]),
    )


def name_algorithm(sent: str) -> str:
    """Return the name of the algorithm in SIGNING_ALGORITHMS."""
    return "EdDSA" if sent == ED25519 else sent


def is_signed_by(jwt: ClientJwt, keys: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one of the client's public keys (JWKs) made the signature.

    The ``kid`` picks the key; keys without one are tried when their kind fits the algorithm.
    """
    fitting = [key for key in keys if _fits(jwt, key)]
    if not fitting:
        jws.is_signed(jwt.signed, jwt.signature, "ES256", _NOBODY)
    return any(jws.is_signed(jwt.signed, jwt.signature, jwt.algorithm, key) for key in fitting)


def time_of(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a NumericDate (RFC 7519 section 2) in seconds, or None. Raises MalformedJwt for other values."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LATEST:
        raise MalformedJwt(f"Its {name} must be a number of seconds since 1970.")
    return float(value)


def time_claims_error(claims: Mapping[str, Any], now: datetime, *, longest: timedelta | None) -> str | None:
    """Return an error message about ``exp``, ``nbf`` and ``iat``, or None if they are valid.

    ``longest`` is how far ahead ``exp`` may lie; with it, ``exp`` must be there. Raises MalformedJwt for a time that
    is no number.
    """
    seconds, leeway = now.timestamp(), LEEWAY.total_seconds()
    expires = time_of(claims, "exp")
    if expires is None and longest is not None:
        return "exp is missing"
    if expires is not None and expires <= seconds - leeway:
        return f"exp was {seconds - expires:.0f} s ago"
    if expires is not None and longest is not None and expires > seconds + longest.total_seconds() + leeway:
        return f"exp is {expires - seconds:.0f} s ahead"
    for name in ("nbf", "iat"):
        begins = time_of(claims, name)
        if begins is not None and begins > seconds + leeway:
            return f"{name} is {begins - seconds:.0f} s ahead"
    return None


def _fits(jwt: ClientJwt, key: Mapping[str, Any]) -> bool:
    kind, curve = _FITTING[jwt.algorithm]
    if key.get("kty") != kind or (curve is not None and key.get("crv") != curve):
        return False
    if key.get("use", "sig") != "sig" or key.get("alg", jwt.algorithm) not in _names(jwt.algorithm):
        return False
    return jwt.key_id is None or key.get("kid", jwt.key_id) == jwt.key_id


def _names(algorithm: str) -> tuple[str, ...]:
    return (algorithm, ED25519) if algorithm == "EdDSA" else (algorithm,)


def _media_type(kind: str | None) -> str | None:
    """Return ``typ`` in lowercase, without the optional prefix (RFC 7515 section 4.1.9)."""
    return None if kind is None else kind.lower().removeprefix("application/")


def _object(encoded: str, part: str) -> dict[str, Any]:
    try:
        return load_object(_decoded(encoded))
    except InvalidJson:
        raise MalformedJwt(f"Its {part} is not a JSON object.") from None


def _decoded(encoded: str) -> bytes:
    try:
        return jws.decode_base64url(encoded)
    except ValueError:
        raise MalformedJwt("It is not base64url.") from None


class ValidAssertion(Struct, frozen=True):
    """A valid assertion. It was not accepted before ``since`` and is not after ``until``."""

    jti: str
    since: datetime
    until: datetime


def read_assertion(text: str) -> ClientJwt:
    """Return the unverified parts of an assertion. Raises InvalidClient."""
    try:
        jwt = read(text, longest=MAX_LENGTH)
    except MalformedJwt as malformed:
        raise InvalidClient().with_cause("client_assertion_malformed", received=str(malformed)) from None
    if jwt.type not in _TYPES:
        raise InvalidClient().with_cause("client_assertion_malformed", expected="typ: JWT, or none")
    return jwt


def subject_of_assertion(text: str) -> str:
    """Return the ``client_id`` that the assertion claims. Raises InvalidClient."""
    subject = read_assertion(text).claims.get("sub")
    if not isinstance(subject, str):
        raise InvalidClient().with_cause(
            "client_assertion_malformed", received="sub is missing or not a string"
        )
    return subject


def unverified_subject(text: str) -> str:
    """Return the ``sub`` of a text that need not be a valid assertion, or an empty text. Only the log may use it."""
    parts = text.split(".", 2) if len(text) <= MAX_LENGTH else []
    try:
        subject = _object(parts[1], "payload").get("sub") if len(parts) == 3 else None
    except MalformedJwt:
        return ""
    return subject if isinstance(subject, str) else ""


def validate_assertion(
    jwt: ClientJwt, *, client_id: str, issuer: str, endpoints: Collection[str], algorithms: Collection[str],
    now: datetime,
) -> ValidAssertion:  # fmt: skip
    """Return the assertion if all of its claims are valid; the caller verifies its signature.

    The one audience is the issuer, as a string (CA-6). Of clients that are not held to that, ``endpoints`` are the
    addresses that count as well, and a list with one entry does. Raises InvalidClient.
    """
    if jwt.algorithm not in algorithms:
        raise InvalidClient().with_cause(
            "client_assertion_malformed", received=f"alg {jwt.algorithm}", expected=algorithms
        )
    if jwt.claims.get("iss") != client_id or jwt.claims.get("sub") != client_id:
        raise InvalidClient().with_cause(
            "client_assertion_malformed",
            received="iss or sub is not the client_id",
            expected=f"iss and sub: {client_id}",
        )
    _require_audience(jwt, issuer, endpoints)
    jti = jwt.claims.get("jti")
    if not isinstance(jti, str) or not 1 <= len(jti) <= MAX_JTI_LENGTH:
        raise InvalidClient().with_cause(
            "client_assertion_malformed", received=f"jti is not 1 to {MAX_JTI_LENGTH} characters"
        )
    try:
        time_error = time_claims_error(jwt.claims, now, longest=MAX_LIFETIME)
        expires = time_of(jwt.claims, "exp")
    except MalformedJwt as malformed:
        raise InvalidClient().with_cause("client_assertion_malformed", received=str(malformed)) from None
    if time_error is not None or expires is None:
        raise InvalidClient().with_cause(
            "client_assertion_clock_skew", received=time_error, expected="exp at most 5 minutes ahead"
        )
    begins = max(
        expires - MAX_LIFETIME.total_seconds(),
        *(time_of(jwt.claims, name) or 0 for name in ("iat", "nbf")),
    )
    return ValidAssertion(
        jti,
        since=datetime.fromtimestamp(begins, UTC) - LEEWAY,
        until=datetime.fromtimestamp(expires, UTC) + LEEWAY,
    )


def _require_audience(jwt: ClientJwt, issuer: str, endpoints: Collection[str]) -> None:
    audience = jwt.claims.get("aud")
    if endpoints and isinstance(audience, list) and len(audience) == 1:
        audience = audience[0]
    if not isinstance(audience, str) or audience not in {issuer, *endpoints}:
        raise InvalidClient().with_cause(
            "client_assertion_audience",
            received=audience if isinstance(audience, str) else f"aud: {json.dumps(audience)}",
            expected=issuer,
        )
