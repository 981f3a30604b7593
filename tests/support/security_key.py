"""A software authenticator: creates and uses passkeys, correctly or with one deliberate fault."""

from __future__ import annotations

import hashlib
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from webauthn.helpers import encode_cbor

PRESENT, VERIFIED, MAY_SYNC, SYNCED, ATTESTED = 1, 4, 8, 16, 64


def encoded(content: bytes) -> str:
    """Return base64url without padding."""
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    """Decode base64url without padding."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(slots=True)
class Authenticator:
    """One passkey on its own device; with ``counter`` None it does not count."""

    origin: str = "http://localhost"
    party: str = "localhost"
    flags: int = PRESENT | VERIFIED
    counter: int | None = 0
    credential_id: bytes = field(default_factory=lambda: os.urandom(32))
    handle: str | None = None
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def create(self, options: Mapping[str, Any], *, client: Mapping[str, Any] | None = None) -> str:
        """Answer creation options; ``client`` changes the client data."""
        self.handle = options["user"]["id"]
        point = self.key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")}
        attested = bytes(16) + len(self.credential_id).to_bytes(2, "big") + self.credential_id
        data = self._data(self.flags | ATTESTED, 0) + attested + encode_cbor(cose)
        attestation = encode_cbor({"fmt": "none", "attStmt": {}, "authData": data})
        said = self._said("webauthn.create", options["challenge"], client)
        response = {
            "clientDataJSON": encoded(said),
            "attestationObject": encoded(attestation),
            "transports": ["internal", "hybrid"],
        }
        return self._answer(response, {"credProps": {"rk": True}})

    def get(self, options: Mapping[str, Any], *, client: Mapping[str, Any] | None = None) -> str:
        """Answer request options and increase the counter."""
        if self.counter is not None:
            self.counter += 1
        data = self._data(self.flags, self.counter or 0)
        said = self._said("webauthn.get", options["challenge"], client)
        signature = self.key.sign(data + hashlib.sha256(said).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": encoded(said),
            "authenticatorData": encoded(data),
            "signature": encoded(signature),
            "userHandle": self.handle,
        }
        return self._answer(response, {})

    def _data(self, flags: int, counter: int) -> bytes:
        return hashlib.sha256(self.party.encode()).digest() + bytes([flags]) + counter.to_bytes(4, "big")

    def _said(self, kind: str, challenge: str, changed: Mapping[str, Any] | None) -> bytes:
        said = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}
        return json.dumps(said | dict(changed or {})).encode()

    def _answer(self, response: Mapping[str, Any], extensions: Mapping[str, Any]) -> str:
        name = encoded(self.credential_id)
        answer = {"id": name, "rawId": name, "type": "public-key", "response": response}
        return json.dumps(answer | {"clientExtensionResults": extensions})
