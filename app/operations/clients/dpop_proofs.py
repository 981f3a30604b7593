"""Verification of DPoP proofs (RFC 9449): single use, nonces, and the key of a presented token.

The content of a proof is validated by ``rules/clients/dpop``; this module adds what needs state or a clock.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode

from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot
from app.operations.grants.grants import TokenSnapshot
from app.operations.store import clock, idempotency, keyring
from app.rules.clients import dpop
from app.rules.clients.client_coherence import is_fapi2, requires_dpop
from app.rules.clients.dpop import InvalidProof, MissingProof, NonceNeeded, Proof
from app.rules.errors import Unauthenticated

# A nonce is valid in the slot in which it was generated and in the next, for two to four minutes.
NONCE_SLOT_SECONDS = 120


class ProofRefused(Unauthenticated):
    """The token is valid, but its proof is not; ``client`` is the one that the token was issued to."""

    def __init__(self, refusal: InvalidProof | NonceNeeded, client: ClientSnapshot) -> None:
        super().__init__(refusal.description, code=refusal.code)
        self.client = client


def fresh_nonce() -> str:
    """Return the current nonce, the same on every worker; nothing is stored for it (RFC 9449 section 8)."""
    return _nonce_of(_slot())


def is_demanded(client: ClientSnapshot) -> bool:
    """Return whether every token of the client must be bound to a key."""
    required: bool | None = client.derived.get("dpop")
    if required is None:
        required = client.derived["dpop"] = requires_dpop(client.document, client.organization.settings)
    return required


def key_of_request(
    authenticated: AuthenticatedClient, proof: str | None, *, method: str, url: str
) -> str | None:
    """Return the thumbprint of the key that the issued tokens are bound to, or None without a proof.

    The proof is used up. Raises InvalidProof if it is invalid, MissingProof if client or organization require one, and
    NonceNeeded if it must contain a nonce of this service.
    """
    client = authenticated.client
    if proof is None:
        if is_demanded(client):
            message = "Tokens of this client are bound to a key. Send a DPoP proof."
            raise MissingProof(message).with_cause("dpop_missing")
        return None
    validated = dpop.validate_proof(proof, method=method, url=url, now=clock.now())
    _use_proof(client, validated)
    return validated.jkt


def require_holder(
    token_snapshot: TokenSnapshot, *, token: str, proof: str | None, method: str, url: str
) -> None:
    """Raise unless the proof shows that the caller has the key that the token is bound to (DC-6).

    ``method`` and ``url`` are those of the request. The proof is used up. Raises Unauthenticated for a token that is
    not bound to a key (RFC 9449 section 7.1) or to another one, ProofRefused if the proof is invalid.
    """
    if token_snapshot.dpop_jkt is None:
        raise Unauthenticated("The access token is not bound to a key. Send it with the scheme Bearer.")
    try:
        if not proof:
            raise InvalidProof("Send a DPoP proof in the header DPoP.")
        validated = dpop.validate_proof(proof, method=method, url=url, now=clock.now(), access_token=token)
        if not hmac.compare_digest(validated.jkt, token_snapshot.dpop_jkt):
            raise Unauthenticated("The access token is bound to another key than the one of the proof.")
        _use_proof(token_snapshot.client, validated)
    except (InvalidProof, NonceNeeded) as refusal:
        raise ProofRefused(refusal, token_snapshot.client) from None


def _use_proof(client: ClientSnapshot, proof: Proof) -> None:
    if proof.nonce is None:
        if is_fapi2(client.document):
            raise NonceNeeded
    else:
        slot = _slot()
        valid_nonces = [_nonce_of(at).encode() for at in (slot, slot - 1)]
        if not any(hmac.compare_digest(proof.nonce.encode(), nonce) for nonce in valid_nonces):
            raise NonceNeeded
    organization = client.organization
    # A restored backup does not know which proofs were used after it.
    if organization.is_before_restore(proof.since) or not idempotency.claim(
        organization.id, "dpop", proof.jkt, proof.jti, expires_at=proof.until
    ):
        raise InvalidProof("The DPoP proof was already used. Its jti must be unique.").with_cause(
            "dpop_replayed"
        )


def _slot() -> int:
    return int(clock.now().timestamp()) // NONCE_SLOT_SECONDS


def _nonce_of(slot: int) -> str:
    made = hmac.digest(keyring.derive_instance_key("dpop-nonce"), str(slot).encode(), "sha256")
    return urlsafe_b64encode(made[:18]).decode()
