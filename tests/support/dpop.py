"""DPoP proofs as clients make them (RFC 9449), right or wrong on purpose."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from base64 import urlsafe_b64encode
from functools import cached_property
from typing import Any

from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

Key = ECKey | OKPKey | RSAKey


def new_key(algorithm: str = "ES256") -> Key:
    """A fresh key for the algorithm."""
    if algorithm == "ES256":
        return ECKey.generate_key("P-256", auto_kid=False)
    if algorithm in {"EdDSA", "Ed25519"}:
        return OKPKey.generate_key("Ed25519", auto_kid=False)
    return RSAKey.generate_key(2048, auto_kid=False)


class Prover:
    """A client's key and the proofs it makes; ``changes`` replace members of the payload, and None leaves one out."""

    def __init__(self, algorithm: str = "ES256", key: Key | None = None) -> None:
        self.algorithm, self.key = algorithm, key or new_key(algorithm)

    @cached_property
    def jkt(self) -> str:
        """The thumbprint of the key (RFC 7638)."""
        return str(self.key.thumbprint())

    def proof(
        self,
        method: str,
        url: str,
        *,
        access_token: str | None = None,
        header: dict[str, Any] | None = None,
        key: Key | None = None,
        **changes: Any,
    ) -> str:
        """A proof for the request; signed by ``key`` where it shall not be by the key it shows."""
        payload = {"jti": str(uuid.uuid4()), "htm": method, "htu": url, "iat": int(time.time())}
        if access_token is not None:
            payload["ath"] = _encode(hashlib.sha256(access_token.encode()).digest())
        head = {"typ": "dpop+jwt", "alg": self.algorithm, "jwk": self.key.as_dict(private=False)} | (
            header or {}
        )
        signed = ".".join(
            _encode(json.dumps(_without_none(part)).encode()) for part in (head, payload | changes)
        )
        signature = JWSRegistry.algorithms[self.algorithm].sign(signed.encode(), key or self.key)
        return f"{signed}.{_encode(signature)}"

    def headers(
        self, method: str, url: str, *, access_token: str | None = None, **changes: Any
    ) -> dict[str, str]:
        """The headers of a request: the proof, and the token where one is presented."""
        sent = {"DPoP": self.proof(method, url, access_token=access_token, **changes)}
        return sent if access_token is None else sent | {"Authorization": f"DPoP {access_token}"}


def _without_none(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
