"""Client assertions (RFC 7523 section 3, OpenID Connect Core section 9): what one must say to count."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.rules.client_proof import client_jwt
from app.rules.client_proof.client_jwt import ClientJwt, MalformedJwt
from app.rules.oauth_errors import InvalidClient

TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LONGEST = 8192
LONGEST_JTI = 256
LONGEST_LIFE = timedelta(minutes=5)
# A JWT that was made for something else says so in its typ.
_TYPES = (None, "jwt", "client-authentication+jwt")


@dataclass(frozen=True, slots=True)
class Judged:
    """An assertion that was found good. ``until`` is when its age ends it, so that ``jti`` may be forgotten."""

    jti: str
    until: datetime


def read_assertion(text: str) -> ClientJwt:
    """The parts of an assertion, believed by nobody yet. Raises InvalidClient."""
    try:
        jwt = client_jwt.read(text, longest=LONGEST)
    except MalformedJwt as malformed:
        raise InvalidClient().because("client_assertion_malformed", received=str(malformed)) from None
    if jwt.type not in _TYPES:
        raise InvalidClient().because("client_assertion_malformed", expected="typ: JWT, or none")
    return jwt


def subject_of_assertion(text: str) -> str:
    """The ``client_id`` that the assertion claims to be of. Raises InvalidClient."""
    subject = read_assertion(text).claims.get("sub")
    if not isinstance(subject, str):
        raise InvalidClient().because("client_assertion_malformed", received="sub is missing or no string")
    return subject


def judge(
    jwt: ClientJwt, *, client_id: str, issuer: str, endpoints: Collection[str], algorithms: Collection[str],
    now: datetime,
) -> Judged:  # fmt: skip
    """The assertion, when all of its claims are right; its signature is for others to verify.

    The one audience is the issuer, as a string (CA-6). Of clients that are not held to that, ``endpoints`` are the
    addresses that count as well, and a list with one entry does. Raises InvalidClient.
    """
    if jwt.algorithm not in algorithms:
        raise InvalidClient().because(
            "client_assertion_malformed", received=f"alg {jwt.algorithm}", expected=algorithms
        )
    if jwt.claims.get("iss") != client_id or jwt.claims.get("sub") != client_id:
        raise InvalidClient().because(
            "client_assertion_malformed",
            received="iss or sub is not the client_id",
            expected=f"iss and sub: {client_id}",
        )
    _require_audience(jwt, issuer, endpoints)
    jti = jwt.claims.get("jti")
    if not isinstance(jti, str) or not 1 <= len(jti) <= LONGEST_JTI:
        raise InvalidClient().because(
            "client_assertion_malformed", received=f"jti is not 1 to {LONGEST_JTI} characters"
        )
    try:
        skewed = client_jwt.skew(jwt.claims, now, longest=LONGEST_LIFE)
        expires = client_jwt.time_of(jwt.claims, "exp")
    except MalformedJwt as malformed:
        raise InvalidClient().because("client_assertion_malformed", received=str(malformed)) from None
    if skewed is not None or expires is None:
        raise InvalidClient().because(
            "client_assertion_clock_skew", received=skewed, expected="exp at most 5 minutes ahead"
        )
    return Judged(jti, datetime.fromtimestamp(expires, UTC) + client_jwt.LEEWAY)


def _require_audience(jwt: ClientJwt, issuer: str, endpoints: Collection[str]) -> None:
    audience = jwt.claims.get("aud")
    if endpoints and isinstance(audience, list) and len(audience) == 1:
        audience = audience[0]
    if not isinstance(audience, str) or audience not in {issuer, *endpoints}:
        raise InvalidClient().because("client_assertion_audience", expected=issuer)
