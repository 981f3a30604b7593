"""Claims about users, and the scopes that release them (OpenID Connect Core 5.1 and 5.4)."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from app.rules.scopes import CLAIMS_OF_SCOPE, SCOPE_OF_CLAIM

_ADDRESS_FIELDS = ("formatted", "street_address", "locality", "region", "postal_code", "country")
_BOOLEANS = {"email_verified": "email", "phone_number_verified": "phone_number"}


def compact(claims: dict[str, Any]) -> bytes:
    """Return the claims as UTF-8 JSON without spaces."""
    return json.dumps(claims, ensure_ascii=False, separators=(",", ":")).encode()


def left_half_hash(value: str, algorithm: str) -> str:
    """Return the ``at_hash`` of a token in an ID token signed by ``algorithm`` (OIDC Core 3.1.3.6).

    The hash is the one inside the signature: SHA-512 in Ed25519, SHA-256 in the others on offer.
    """
    made = (hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256)(value.encode()).digest()
    return urlsafe_b64encode(made[: len(made) // 2]).decode().rstrip("=")


PROFILE_CLAIMS: tuple[str, ...] = tuple(name for names in CLAIMS_OF_SCOPE.values() for name in names)
"""Claims about a user, by scope or requested by name."""

ID_TOKEN_CLAIMS: tuple[str, ...] = (
    *("name", "family_name", "given_name", "nickname", "preferred_username", "picture", "locale"),
    *("email", "email_verified"),
)
"""Claims that an ID token carries for its scopes, as at the large providers: apps read them from there.

The others stay in userinfo, so that an ID token fits into a cookie or header.
"""

SUPPORTED_CLAIMS: tuple[str, ...] = (*PROFILE_CLAIMS, "acr", "amr", "auth_time", "sid", "groups", "roles")
"""``claims_supported`` of the discovery document: those, what ID tokens say of the sign-in, and lists of names."""


class Profile(Struct, frozen=True):
    """The claims known about a user: the standard claims of OpenID Connect Core 5.1.

    ``picture``, ``profile`` and ``website`` are URLs, ``birthdate`` is ``YYYY-MM-DD``, ``address`` has the
    fields of section 5.1.1. ``sub`` is the public id of the user.
    """

    sub: str
    email: str | None = None
    email_verified: bool = False
    name: str | None = None
    family_name: str | None = None
    given_name: str | None = None
    middle_name: str | None = None
    nickname: str | None = None
    preferred_username: str | None = None
    profile: str | None = None
    picture: str | None = None
    website: str | None = None
    gender: str | None = None
    birthdate: str | None = None
    zoneinfo: str | None = None
    locale: str | None = None
    phone_number: str | None = None
    phone_number_verified: bool = False
    address: Mapping[str, str] = field(default_factory=dict)
    updated_at: datetime | None = None


def claims_for(profile: Profile, scopes: Collection[str], requested: Collection[str] = ()) -> dict[str, Any]:
    """Return the claims that the scopes release, with the types of Core 5.1; ``sub`` is always included.

    ``requested`` are claims requested by name (Core 5.5). Claims without a value are omitted, because Core 5.3.2
    forbids null and the empty string. A ``…_verified`` flag is omitted with the claim that it belongs to.
    """
    names = ["sub"]
    names += (name for scope, claims in CLAIMS_OF_SCOPE.items() if scope in scopes for name in claims)
    names += (name for name in PROFILE_CLAIMS if name in requested)
    released = {name: _value(profile, name) for name in dict.fromkeys(names)}
    return {name: value for name, value in released.items() if value is not None}


def id_token_claims_for(
    profile: Profile, scopes: Collection[str], requested: Collection[str]
) -> dict[str, Any]:
    """Return the user's claims for an ID token: those of ID_TOKEN_CLAIMS that the scopes release, and the requested."""
    released = (name for name in ID_TOKEN_CLAIMS if SCOPE_OF_CLAIM[name] in scopes)
    return claims_for(profile, (), (*released, *requested))


def _value(profile: Profile, name: str) -> Any:
    if name == "updated_at":
        return None if profile.updated_at is None else int(profile.updated_at.timestamp())
    if name == "address":
        address = {part: profile.address[part] for part in _ADDRESS_FIELDS if profile.address.get(part)}
        return address or None
    if name in _BOOLEANS:
        return bool(getattr(profile, name)) if getattr(profile, _BOOLEANS[name]) else None
    return getattr(profile, name) or None
