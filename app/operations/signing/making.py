"""How a signing key comes to be: generated, its private half sealed, stored in the one slot of its state (KY-2)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc.jwk import ECKey, OKPKey, RSAKey
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models import signing_key as key_model
from app.models.signing_key import SigningKey
from app.operations import audit, clock, keyring, view_changes
from app.operations.transaction import read, transaction
from app.rules.actor import Actor
from app.rules.identifiers import new_id

RSA_BITS = 3072
AnyKey = RSAKey | ECKey | OKPKey

_KINDS: dict[str, type[RSAKey] | type[ECKey] | type[OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_making = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key pair that stands nowhere yet."""

    organization_id: str
    algorithm: str
    kid: str
    public_jwk: dict[str, Any]
    sealed_private_key: bytes = field(repr=False)


def stand(actor: Actor, algorithm: str, state: str) -> None:
    """A key of the algorithm is in the state, unless one was: of many workers at once one stores its own.

    Audit: ``signing_key.created``.
    """
    organization_id = actor.organization_id
    # One caller generates and the others of this process wait for its key: an RSA key costs a processor a second.
    with _making[hash((organization_id, algorithm)) % len(_making)]:
        if _is_taken(organization_id, algorithm, state):
            return
        try:
            _store_alone(actor, generate(organization_id, algorithm), state)
        except IntegrityError:
            if not _is_taken(organization_id, algorithm, state):
                raise


def generate(organization_id: str, algorithm: str) -> NewKey:
    """A fresh key pair, its private half sealed under the organization's data key (KY-3)."""
    key, private = _pair(algorithm)
    kid = key.thumbprint()
    public = {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": algorithm}
    sealed = keyring.seal(organization_id, private, _place(kid))
    return NewKey(organization_id, algorithm, kid, public, sealed)


def store(actor: Actor, key: NewKey, state: str) -> None:
    """The key stands in the state's slot; part of the transaction under way. Audit: ``signing_key.created``."""
    moment = clock.now()
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
            created_at=moment,
            activated_at=moment if state == key_model.ACTIVE else None,
        )
    )
    # Its public half is in the key set of every worker from the commit on.
    view_changes.mark(key.organization_id)
    after = {"algorithm": key.algorithm, "state": state}
    audit.record(actor, "signing_key.created", target_type="signing_key", target_id=key.kid, after=after)


def opened(row: SigningKey) -> AnyKey:
    """The private key of a row. Raises sealing.CannotOpen when the row was tampered with."""
    private = keyring.unseal(row.organization_id, row.sealed_private_key, _place(row.kid))
    return _KINDS[row.public_jwk["kty"]].import_key(private)


def find_in_slot(organization_id: str, algorithm: str, slot: str) -> SigningKey | None:
    """The one key of the algorithm that is next, or that is active; part of a unit of work."""
    return db.session.scalar(
        select(SigningKey).where(
            SigningKey.organization_id == organization_id,
            SigningKey.algorithm == algorithm,
            SigningKey.slot == slot,
        )
    )


@transaction
def _store_alone(actor: Actor, key: NewKey, state: str) -> None:
    store(actor, key, state)


@read
def _is_taken(organization_id: str, algorithm: str, state: str) -> bool:
    return find_in_slot(organization_id, algorithm, state) is not None


def _place(kid: str) -> str:
    return f"signing-key|{kid}"


def _pair(algorithm: str) -> tuple[AnyKey, bytes]:
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
