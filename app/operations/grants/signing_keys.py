"""Sign JWTs with the active key, which is created at its first use, and list the keys that verifiers need."""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Any

from joserfc.jws import JWSRegistry
from sqlalchemy import select

from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.models import signing_key as key_model
from app.models.signing_key import SigningKey
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import key_rotation
from app.operations.store import clock, keyring
from app.operations.store.transactions import on_commit_or_now, read
from app.rules.actor import Actor
from app.rules.tokens.claims import compact

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
_CACHED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SigningKeySnapshot:
    """An active signing key."""

    kid: str
    algorithm: str
    key: key_rotation.AnyKey


_cache: BoundedCache[tuple[float, SigningKeySnapshot]] = BoundedCache(5_000)


def get_active_key(organization: OrganizationSnapshot, algorithm: str) -> SigningKeySnapshot:
    """Return the active key, creating and publishing it if there is none yet (KY-1, KY-2).

    The cache key contains the organization's version, which each rotation raises.
    """
    cache_key = (keyring.derive_instance_key("signing-key-cache"), organization.version, algorithm)
    cached = _cache.get(organization.id, *cache_key)
    if cached is not None and time.monotonic() - cached[0] < _CACHED_SECONDS:
        return cached[1]
    key = _load(organization.id, algorithm)
    if key is not None:
        _cache.put(organization.id, *cache_key, value=(time.monotonic(), key))
        return key
    key_rotation.ensure_key(Actor.system(organization.id), algorithm, key_model.ACTIVE)
    key = _load(organization.id, algorithm)
    if key is None:
        raise RuntimeError("a signing key that was just stored is missing")
    created = key
    # If the transaction rolls back, a cached key would sign here without ever being published.
    on_commit_or_now(lambda: _cache.put(organization.id, *cache_key, value=(time.monotonic(), created)))
    return key


def sign_jwt(
    organization: OrganizationSnapshot, algorithm: str, claims: dict[str, Any], *, token_type: str
) -> str:
    """Return the claims as a signed JWT (RFC 7519) of the organization. ``token_type`` is the ``typ`` header."""
    key = get_active_key(organization, algorithm)
    header = compact({"alg": algorithm, "kid": key.kid, "typ": token_type})
    signed = urlsafe_b64encode(header).rstrip(b"=") + b"." + urlsafe_b64encode(compact(claims)).rstrip(b"=")
    # The serializer of joserfc warns about EdDSA at each signature and takes longer than an ES256 signature.
    signature = JWSRegistry.algorithms[algorithm].sign(signed, key.key)
    return (signed + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()


def list_published_keys(organization: OrganizationSnapshot) -> list[dict[str, Any]]:
    """List the public keys, creating one for the default algorithm of an active organization."""
    if organization.is_active:
        get_active_key(organization, organization.settings["oauth"]["signing"]["algorithm"])
    return list_public_keys(organization.id)


@read
def list_public_keys(organization_id: str) -> list[dict[str, Any]]:
    """List the public key of every key whose signatures may still be valid (RFC 7517)."""
    rows = db.session.scalars(
        select(SigningKey)
        .where(SigningKey.organization_id == organization_id)
        .order_by(SigningKey.id.desc())
        .limit(50)
    )
    now = clock.now()
    return [row.public_jwk for row in rows if row.remove_at is None or row.remove_at > now]


@read
def _load(organization_id: str, algorithm: str) -> SigningKeySnapshot | None:
    row = key_rotation.find_key_in_slot(organization_id, algorithm, key_model.ACTIVE)
    return None if row is None else SigningKeySnapshot(row.kid, algorithm, key_rotation.open_private_key(row))
