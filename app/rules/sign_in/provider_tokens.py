"""ID tokens and logout tokens of identity providers: whom they name.

OpenID Connect Core 1.0 and Back-Channel Logout 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from app.rules import jws
from app.rules.mail.email_addresses import is_email
from app.rules.sign_in.identity_providers import (
    ALGORITHMS,
    KEY_TYPES,
    LEEWAY,
    MAX_LENGTH,
    REQUEST_LIFETIME,
)

MAX_TOKEN_LENGTH = 50_000
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
_LOGOUT_TYPE = "logout+jwt"


class ProviderTokenInvalid(Exception):
    """The token proves nothing. The message is for the log and contains no part of the token."""


class UnknownKey(ProviderTokenInvalid):
    """None of the provider's known keys made the signature; it may have new ones."""


class ProviderIdentity(Struct, frozen=True):
    """Who signed in at a provider. ``email`` is None without a usable one, ``authenticated_at`` if it was not said.

    ``groups`` are the user's groups there, or None if they were not asked for or the answer left them out. ``sid`` is
    the session there, or None if it has no usable name.
    """

    subject: str
    email: str | None
    email_verified: bool
    name: str
    authenticated_at: datetime | None
    groups: tuple[str, ...] | None = None
    sid: str | None = None


class ProviderLogout(Struct, frozen=True):
    """Whom a provider signed out: a user, in one session there or in all, or a session of a user it doesn't name."""

    subject: str | None
    sid: str | None


def verify_id_token(
    token: str, keys: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str, now: datetime
) -> dict[str, Any]:
    """Return the claims of an ID token (section 3.1.3.7). Raises UnknownKey, ProviderTokenInvalid."""
    _header, claims = _verify(token, keys, issuer=issuer, client_id=client_id, now=now)
    if claims.get("nonce") != nonce:
        raise ProviderTokenInvalid("it answers another request")
    if _read_name(claims, "sub") is None:
        raise ProviderTokenInvalid("its sub is missing, or not of up to 255 ASCII characters")
    return claims


def verify_logout_token(
    token: str, keys: Mapping[str, Any], *, issuer: str, client_id: str, now: datetime
) -> ProviderLogout:
    """Return whom a logout token names (Back-Channel Logout 1.0 section 2.6). Raises UnknownKey, ProviderTokenInvalid.

    The same token is valid again until it expires: a provider that got no answer sends it once more.
    """
    header, claims = _verify(token, keys, issuer=issuer, client_id=client_id, now=now)
    # Explicit typing is only recommended: older providers send "JWT" or nothing.
    if str(header.get("typ", _LOGOUT_TYPE)).lower().removeprefix("application/") not in {_LOGOUT_TYPE, "jwt"}:
        raise ProviderTokenInvalid("its typ is not logout+jwt")
    events = claims.get("events")
    if not isinstance(events, Mapping) or not isinstance(events.get(_LOGOUT_EVENT), Mapping):
        raise ProviderTokenInvalid("it is not a logout token: its events do not say so")
    if "nonce" in claims:
        raise ProviderTokenInvalid("it has a nonce, as an ID token has")
    named = {name for name in ("sub", "sid") if name in claims}
    logout = ProviderLogout(_read_name(claims, "sub"), _read_name(claims, "sid"))
    if not named or any(_read_name(claims, name) is None for name in named):
        raise ProviderTokenInvalid("its sub and sid are missing, or not of up to 255 ASCII characters")
    return logout


def _verify(
    token: str, keys: Mapping[str, Any], *, issuer: str, client_id: str, now: datetime
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims of a token that the provider made for this client just now."""
    if len(token) > MAX_TOKEN_LENGTH:
        raise ProviderTokenInvalid("it is too long")
    header, claims = _verify_signature(token, keys)
    if claims.get("iss") != issuer:
        raise ProviderTokenInvalid("another issuer made it")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if client_id not in audiences:
        raise ProviderTokenInvalid("it is for another client")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != client_id:
        raise ProviderTokenInvalid("another client requested it")
    expires_at, issued_at = read_time(claims, "exp"), read_time(claims, "iat")
    if expires_at is None or expires_at <= now - LEEWAY:
        raise ProviderTokenInvalid("it has expired")
    if issued_at is None or not now - REQUEST_LIFETIME <= issued_at <= now + LEEWAY:
        raise ProviderTokenInvalid("it was not issued just now")
    return header, claims


def _verify_signature(token: str, keys: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = jws.COMPACT.fullmatch(token)
    header, claims = (jws.read_part(parts[1]), jws.read_part(parts[2])) if parts else (None, None)
    if parts is None or header is None or claims is None or "crit" in header:
        raise ProviderTokenInvalid("it is not a signed JWT")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise ProviderTokenInvalid("its algorithm is not accepted")
    try:
        signature = jws.decode_base64url(parts[3])
    except ValueError as error:
        raise ProviderTokenInvalid("its signature is not base64url") from error
    signed = f"{parts[1]}.{parts[2]}".encode()
    for key in keys["keys"]:
        is_named = key_id is None or key.get("kid") in (None, key_id)
        fits = key["kty"] == KEY_TYPES[algorithm[:2]] and key.get("alg") in (None, algorithm)
        if is_named and fits and jws.is_signed(signed, signature, algorithm, key):
            return header, claims
    raise UnknownKey("none of the provider's keys made its signature")


def _read_name(claims: Mapping[str, Any], name: str) -> str | None:
    """Return a ``sub`` or ``sid``, or None if it is missing or not of up to 255 ASCII characters (section 2)."""
    value = claims.get(name)
    is_name = isinstance(value, str) and value.isascii() and 0 < len(value) <= MAX_LENGTH
    return value if is_name else None


def read_time(claims: Mapping[str, Any], name: str) -> datetime | None:
    """Return a NumericDate (RFC 7519 section 2), or None if it is missing or none."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 253_402_300_799:
        return None
    return datetime.fromtimestamp(value, UTC)


def read_identity(
    claims: Mapping[str, Any], *, trust_emails: bool, groups_claim: str | None = None
) -> ProviderIdentity:
    """Return who the verified claims name. An email that a mailbox cannot have counts as none.

    With ``trust_emails``, an email counts as verified unless the provider says something else. ``groups_claim`` names
    the claim with the user's groups, if they matter.
    """
    sent = claims.get("email")
    email = sent.strip() if isinstance(sent, str) and is_email(sent.strip()) else None
    stated = claims.get("email_verified")
    # Some providers send the boolean as a string.
    is_verified = str(stated).lower() == "true" or (trust_emails and stated is None)
    name = claims.get("name")
    return ProviderIdentity(
        subject=claims["sub"],
        email=email,
        email_verified=email is not None and is_verified,
        name=name if isinstance(name, str) else "",
        authenticated_at=read_time(claims, "auth_time"),
        groups=None if groups_claim is None else _read_groups(claims, groups_claim),
        sid=_read_name(claims, "sid"),
    )


def has_claim(claims: Mapping[str, Any], name: str) -> bool:
    """Return whether the claims have this one, or say that it is elsewhere (section 5.6.2)."""
    return name in claims or _is_elsewhere(claims, name)


def _is_elsewhere(claims: Mapping[str, Any], name: str) -> bool:
    names = claims.get("_claim_names")
    return isinstance(names, Mapping) and name in names


def _read_groups(claims: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return the values of the claim: none if it is missing, and None if there are too many of them for a token."""
    if _is_elsewhere(claims, name):
        return None
    sent = claims.get(name)
    return tuple(value for value in (sent if isinstance(sent, list) else [sent]) if isinstance(value, str))
