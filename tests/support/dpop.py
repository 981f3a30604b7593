"""DPoP proofs as clients make them (RFC 9449), valid or deliberately wrong."""

from __future__ import annotations

import hashlib
import time
import uuid
from functools import cached_property
from typing import Any

from tests.support.signer import Key, compact, encode, new_key


class Prover:
    """A client's key and its proofs; ``changes`` replace members of the payload, None removes one."""

    def __init__(self, algorithm: str = "ES256", key: Key | None = None) -> None:
        self.algorithm, self.key = algorithm, key or new_key(algorithm)

    @cached_property
    def jkt(self) -> str:
        """Return the key's thumbprint (RFC 7638)."""
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
        """Return a proof for the request; ``key`` signs instead of the key in the header."""
        payload = {"jti": str(uuid.uuid4()), "htm": method, "htu": url, "iat": int(time.time())}
        if access_token is not None:
            payload["ath"] = encode(hashlib.sha256(access_token.encode()).digest())
        good = {"typ": "dpop+jwt", "alg": self.algorithm, "jwk": self.key.as_dict(private=False)}
        # The header may name another algorithm; the signature still uses that of the key.
        head = good | (header or {})
        return compact(head, payload | changes, key or self.key, algorithm=self.algorithm)

    def headers(
        self, method: str, url: str, *, access_token: str | None = None, **changes: Any
    ) -> dict[str, str]:
        """Return the request headers: the proof, and the token if one is given."""
        sent = {"DPoP": self.proof(method, url, access_token=access_token, **changes)}
        return sent if access_token is None else sent | {"Authorization": f"DPoP {access_token}"}
