"""Signing keys: signing, publication and rotation.

A key is published as next, becomes active, is retired and then removed (KY-1). A compromised key can also be replaced
immediately (KY-5).
"""

from __future__ import annotations

import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key
from joserfc.jws import JWSRegistry
from msgspec import Struct
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.fast_path import cache_invalidation
from app.fast_path.cache import BoundedCache, ValidatedCache
from app.models import token as token_model
from app.models.token import SigningKey
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.store import audit, clock, keyring
from app.operations.store.transactions import on_commit_or_now, read, transaction_part
from app.rules import jws
from app.rules.actor import Actor
from app.rules.identifiers import new_id
from app.rules.tokens.claims import compact

_CACHED_SECONDS = 60.0
RSA_BITS = 3072
AnyKey = RSAKey | ECKey | OKPKey
_JWK_TYPES: dict[str, type[RSAKey] | type[ECKey] | type[OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_generation_locks = tuple(threading.Lock() for _ in range(64))


class SigningKeySnapshot(Struct, frozen=True):
    """An active signing key."""

    kid: str
    algorithm: str
    key: AnyKey


_cache: BoundedCache[tuple[float, SigningKeySnapshot]] = BoundedCache(5_000)
_public_keys: ValidatedCache[dict[Any, tuple[str, Any]]] = ValidatedCache()


def get_active_key(organization: OrganizationSnapshot, algorithm: str) -> SigningKeySnapshot:
    """Return the active key, creating and publishing it if there is none yet (KY-1, KY-2).

    The cache key contains the organization's version, which each rotation raises.
    """
    cache_key = (keyring.derive_instance_key("signing-key-cache"), organization.version, algorithm)
    cached = _cache.get(organization.id, *cache_key)
    if cached is not None and time.monotonic() - cached[0] < _CACHED_SECONDS:
        return cached[1]
    key = _load(organization.id, algorithm)
    if key is None:
        ensure_key(Actor.system(organization.id), algorithm, token_model.ACTIVE)
        key = _load(organization.id, algorithm)
    if key is None:
        raise RuntimeError("a signing key that was just stored is missing")
    found = key
    # If the transaction rolls back, a cached key would sign here without ever being published.
    on_commit_or_now(lambda: _cache.put(organization.id, *cache_key, value=(time.monotonic(), found)))
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


def read_jwt(organization_id: str, token: str, *, token_type: str) -> dict[str, Any] | None:
    """Return the claims of a JWT that the organization signed with a published key, expired or not, else None.

    ``token_type`` is its ``typ`` header. A signature that is encoded in another way than ours is not accepted.
    """
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        return None
    header, claims = jws.read_part(parts[0]), jws.read_part(parts[1])
    if header is None or claims is None or header.get("typ") != token_type:
        return None
    published = _public_keys.get(organization_id) or _public_keys.load(
        organization_id, load=lambda: _load_public_keys(organization_id)
    )
    kid = header.get("kid")
    algorithm, key = (published or {}).get(kid if isinstance(kid, str) else "", ("", None))
    if key is None or header.get("alg") != algorithm:
        return None
    try:
        signature = jws.decode_base64url(parts[2])
        is_signed = JWSRegistry.algorithms[algorithm].verify(
            f"{parts[0]}.{parts[1]}".encode(), signature, key
        )
    except (JoseError, ValueError):
        return None
    return claims if is_signed and urlsafe_b64encode(signature).rstrip(b"=") == parts[2].encode() else None


def _load_public_keys(organization_id: str) -> dict[Any, tuple[str, Any]]:
    return {
        jwk["kid"]: (jwk["alg"], import_key({name: jwk[name] for name in jwk if name not in {"use", "alg"}}))
        for jwk in list_public_keys(organization_id)
    }


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
    row = find_key_in_slot(organization_id, algorithm, token_model.ACTIVE)
    return None if row is None else SigningKeySnapshot(row.kid, algorithm, open_private_key(row))


@dataclass(frozen=True, slots=True)
class NewKey:
    """A generated key pair that is not stored yet."""

    organization_id: str
    algorithm: str
    kid: str
    public_jwk: dict[str, Any]
    sealed_private_key: bytes = field(repr=False)


def record_key_removals(actor: Actor, ids: Sequence[UUID]) -> None:
    """Record that the janitor removes these retired keys, in its transaction.

    Audit: ``signing_key.removed``.
    """
    organization_id = actor.organization_id
    rows = db.session.execute(
        select(SigningKey.kid, SigningKey.algorithm).where(
            SigningKey.organization_id == organization_id, SigningKey.id.in_(ids)
        )
    ).all()
    cache_invalidation.invalidate(organization_id)
    for kid, algorithm in rows:
        record_key_event(actor, "removed", kid, algorithm)


def ensure_key(actor: Actor, algorithm: str, state: str) -> None:
    """Create a key of the algorithm in this state unless there is one.

    Only one of several concurrent workers stores its key. Audit: ``signing_key.created``.
    """
    organization_id = actor.organization_id
    # One thread generates while the others of this process wait, because an RSA key takes a second of CPU time.
    with _generation_locks[hash((organization_id, algorithm)) % len(_generation_locks)]:
        if _has_key(organization_id, algorithm, state):
            return
        try:
            store_key(actor, generate_key(organization_id, algorithm), state)
        except IntegrityError:
            if not _has_key(organization_id, algorithm, state):
                raise


def generate_key(organization_id: str, algorithm: str) -> NewKey:
    """Generate a key pair with the private key sealed under the organization's data key (KY-3)."""
    key, private = _generate_pair(algorithm)
    kid = key.thumbprint()
    public = {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": algorithm}
    sealed = keyring.seal(organization_id, private, _sealing_context(kid))
    return NewKey(organization_id, algorithm, kid, public, sealed)


@transaction_part
def store_key(actor: Actor, key: NewKey, state: str) -> None:
    """Insert the key in the state's slot. Audit: ``signing_key.created``."""
    now = clock.now()
    db.session.execute(
        insert(SigningKey).values(
            organization_id=key.organization_id,
            id=new_id(),
            kid=key.kid,
            algorithm=key.algorithm,
            state=state,
            slot=state,
            public_jwk=key.public_jwk,
            sealed_private_key=key.sealed_private_key,
            created_at=now,
            activated_at=now if state == token_model.ACTIVE else None,
        )
    )
    # Every worker must publish the public key as soon as this transaction commits.
    cache_invalidation.invalidate(key.organization_id)
    after = {"algorithm": key.algorithm, "state": state}
    audit.record(actor, "signing_key.created", "signing_key", key.kid, after=after)


def open_private_key(row: SigningKey) -> AnyKey:
    """Return the private key of a row. Raises sealing.UnsealError if the row was tampered with."""
    private = keyring.unseal(row.organization_id, row.sealed_private_key, _sealing_context(row.kid))
    return _JWK_TYPES[row.public_jwk["kty"]].import_key(private)


def find_key_in_slot(organization_id: str, algorithm: str, slot: str) -> SigningKey | None:
    """Return the algorithm's key in the slot (next or active), or None. Call it in a transaction."""
    return db.session.scalar(
        select(SigningKey).where(
            SigningKey.organization_id == organization_id,
            SigningKey.algorithm == algorithm,
            SigningKey.slot == slot,
        )
    )


@read
def _has_key(organization_id: str, algorithm: str, state: str) -> bool:
    return find_key_in_slot(organization_id, algorithm, state) is not None


def _sealing_context(kid: str) -> str:
    return f"signing-key|{kid}"


def _generate_pair(algorithm: str) -> tuple[AnyKey, bytes]:
    private_key: Any
    jwk_type: type[RSAKey] | type[ECKey] | type[OKPKey]
    if algorithm in {"RS256", "PS256"}:
        private_key, jwk_type = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS), RSAKey
    elif algorithm == "ES256":
        private_key, jwk_type = ec.generate_private_key(ec.SECP256R1()), ECKey
    else:
        private_key, jwk_type = ed25519.Ed25519PrivateKey.generate(), OKPKey
    pem = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return jwk_type.import_key(pem), pem


def record_key_event(actor: Actor, event: str, kid: str, algorithm: str, **details: Any) -> None:
    after = {"algorithm": algorithm, **details}
    audit.record(actor, f"signing_key.{event}", "signing_key", kid, after=after)
