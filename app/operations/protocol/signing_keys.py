"""Signing keys of an organization: made on first use, published before they sign, kept until nothing needs them."""

from __future__ import annotations

import threading
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models import signing_key as key_model
from app.models.signing_key import SigningKey
from app.operations import audit, clock, directory, keyring
from app.operations.directory import OrganizationView
from app.operations.transaction import after_commit, read, transaction
from app.rules.actor import Actor
from app.rules.errors import InvalidInput
from app.rules.identifiers import new_id
from app.rules.protocol.jwt import compact

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
RSA_BITS = 3072
# The longest that anything signed can be valid: the ceiling of an ID token's and a JWT access token's life.
LONGEST_SIGNED_LIFE = timedelta(days=1)
_CACHED_SECONDS = 60.0

_Key = RSAKey | ECKey | OKPKey


@dataclass(frozen=True, slots=True)
class SigningKeyView:
    """A key that signs."""

    kid: str
    algorithm: str
    key: _Key


_KINDS: dict[str, type[RSAKey] | type[ECKey] | type[OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_making = tuple(threading.Lock() for _ in range(64))
_cache: dict[tuple[bytes, str, int, str], tuple[float, SigningKeyView]] = {}


def active_key(organization: OrganizationView, algorithm: str) -> SigningKeyView:
    """The key that signs now; made, stored and published when there is none yet (KY-1, KY-2).

    Cached by the organization's version, which each rotation raises.
    """
    key = (keyring.derive("signing-key-cache"), organization.id, organization.version, algorithm)
    cached = _cache.get(key)
    if cached is not None and time.monotonic() - cached[0] < _CACHED_SECONDS:
        return cached[1]
    view = _load(organization.id, algorithm)
    if view is not None:
        _keep(key, view)
        return view
    _make(organization.id, algorithm, state=key_model.ACTIVE)
    view = _load(organization.id, algorithm)
    if view is None:
        raise RuntimeError("a signing key that was just stored is not there")
    made = view
    # Rolled back with the unit that made it, the key would go on signing from here and be published nowhere.
    after_commit(lambda: _keep(key, made))
    return view


def _keep(key: tuple[bytes, str, int, str], view: SigningKeyView) -> None:
    if len(_cache) > 5000:
        _cache.clear()
    _cache[key] = (time.monotonic(), view)


def sign(organization: OrganizationView, algorithm: str, claims: dict[str, Any], *, token_type: str) -> str:
    """The claims as a signed JWT of the organization (RFC 7519); ``token_type`` is the header's ``typ``."""
    view = active_key(organization, algorithm)
    header = compact({"alg": algorithm, "kid": view.kid, "typ": token_type})
    signed = urlsafe_b64encode(header).rstrip(b"=") + b"." + urlsafe_b64encode(compact(claims)).rstrip(b"=")
    # joserfc's own serializer warns of EdDSA at each signature and costs more than an ES256 signature does.
    signature = JWSRegistry.algorithms[algorithm].sign(signed, view.key)
    return (signed + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()


def published_keys(organization: OrganizationView) -> list[dict[str, Any]]:
    """As ``public_keys``; of an active organization, a key for its default algorithm stands after the first look."""
    if organization.is_active:
        active_key(organization, organization.settings["oauth"]["signing"]["algorithm"])
    return public_keys(organization.id)


@read
def public_keys(organization_id: str) -> list[dict[str, Any]]:
    """The public half of every key whose signatures may still be checked (RFC 7517)."""
    rows = db.session.scalars(
        select(SigningKey)
        .where(SigningKey.organization_id == organization_id)
        .order_by(SigningKey.id.desc())
        .limit(50)
    )
    now = clock.now()
    return [row.public_jwk for row in rows if row.remove_at is None or row.remove_at > now]


def rotate(actor: Actor, algorithm: str, *, now: bool = False) -> str:
    """A successor of the signing key stands and is published.

    Without ``now`` the first call publishes the next key and a later one, at least a day after, makes it sign; the
    key before stays published until nothing that it signed can still be valid. ``now`` is for a key that somebody
    else may hold: the successor signs at once, and what the old one signed verifies no more (KY-5). Returns the
    successor's ``kid``. Audit: ``signing_key.added`` or ``signing_key.rotated``.
    """
    actor.require("settings:write")
    if algorithm not in ALGORITHMS:
        raise InvalidInput(f"The algorithm must be one of {', '.join(ALGORITHMS)}.", field="algorithm")
    _make(actor.organization_id, algorithm, state=key_model.NEXT)
    return _promote(actor, algorithm, at_once=now)


@transaction
def _promote(actor: Actor, algorithm: str, *, at_once: bool) -> str:
    moment = clock.now()
    successor = _find(actor.organization_id, algorithm, key_model.NEXT)
    if successor is None:
        raise RuntimeError("the next signing key is not there")
    if not at_once and successor.created_at > moment - timedelta(days=1):
        audit.record(actor, "signing_key.added", target_type="signing_key", target_id=successor.kid)
        return successor.kid
    db.session.execute(
        update(SigningKey)
        .where(
            SigningKey.organization_id == actor.organization_id,
            SigningKey.algorithm == algorithm,
            SigningKey.slot == key_model.ACTIVE,
        )
        .values(
            state=key_model.RETIRED,
            slot=None,
            retired_at=moment,
            remove_at=moment if at_once else moment + LONGEST_SIGNED_LIFE,
        )
    )
    successor.state = successor.slot = key_model.ACTIVE
    successor.activated_at = moment
    directory.touch_organization(actor.organization_id)
    audit.record(actor, "signing_key.rotated", target_type="signing_key", target_id=successor.kid)
    return successor.kid


def _make(organization_id: str, algorithm: str, *, state: str) -> None:
    """A key in the state, unless one stands: of many workers at once the unique slot lets one through."""
    # One caller generates and the others of this process wait for its key: an RSA key costs a processor a second.
    with _making[hash((organization_id, algorithm)) % len(_making)]:
        if not _exists(organization_id, algorithm, state):
            _make_one(organization_id, algorithm, state)


def _make_one(organization_id: str, algorithm: str, state: str) -> None:
    key, private = _generate(algorithm)
    kid = key.thumbprint()
    public = {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": algorithm}
    sealed = keyring.seal(organization_id, private, f"signing-key|{kid}")
    try:
        _store(organization_id, algorithm, state, kid, public, sealed)
    except IntegrityError:
        if not _exists(organization_id, algorithm, state):
            raise


@transaction
def _store(
    organization_id: str, algorithm: str, state: str, kid: str, public: dict[str, Any], sealed: bytes
) -> None:
    moment = clock.now()
    db.session.execute(
        insert(SigningKey).values(
            organization_id=organization_id,
            id=new_id(),
            kid=kid,
            algorithm=algorithm,
            state=state,
            slot=state,
            public_jwk=public,
            sealed_private_key=sealed,
            created_at=moment,
            activated_at=moment if state == key_model.ACTIVE else None,
        )
    )
    audit.record(
        Actor.system(organization_id), "signing_key.made", target_type="signing_key", target_id=kid,
        after={"algorithm": algorithm, "state": state},
    )  # fmt: skip


@read
def _exists(organization_id: str, algorithm: str, state: str) -> bool:
    return _find(organization_id, algorithm, state) is not None


@read
def _load(organization_id: str, algorithm: str) -> SigningKeyView | None:
    row = _find(organization_id, algorithm, key_model.ACTIVE)
    if row is None:
        return None
    private = keyring.unseal(organization_id, row.sealed_private_key, f"signing-key|{row.kid}")
    return SigningKeyView(row.kid, algorithm, _KINDS[row.public_jwk["kty"]].import_key(private))


def _find(organization_id: str, algorithm: str, slot: str) -> SigningKey | None:
    return db.session.scalar(
        select(SigningKey).where(
            SigningKey.organization_id == organization_id,
            SigningKey.algorithm == algorithm,
            SigningKey.slot == slot,
        )
    )


def _generate(algorithm: str) -> tuple[_Key, bytes]:
    made: Any
    kind: type[RSAKey] | type[ECKey] | type[OKPKey]
    if algorithm in {"RS256", "PS256"}:
        made, kind = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS), RSAKey
    elif algorithm == "ES256":
        made, kind = ec.generate_private_key(ec.SECP256R1()), ECKey
    else:
        made, kind = ed25519.Ed25519PrivateKey.generate(), OKPKey
    private = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return kind.import_key(private), private
