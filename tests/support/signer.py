"""JWTs that clients sign, valid or deliberately wrong: client assertions and request objects."""

from __future__ import annotations

import json
import time
import uuid
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from app.rules.clients.client_assertions import TYPE

Key = ECKey | OKPKey | RSAKey


def new_key(algorithm: str = "ES256") -> Key:
    """Return a new key for the algorithm."""
    if algorithm == "ES256":
        return ECKey.generate_key("P-256", auto_kid=False)
    if algorithm in {"EdDSA", "Ed25519"}:
        return OKPKey.generate_key("Ed25519", auto_kid=False)
    return RSAKey.generate_key(2048, auto_kid=False)


@cache
def _shared_key(algorithm: str) -> Key:
    # RSA keys are slow to generate, and tests do not depend on whose key it is.
    return new_key(algorithm)


def encode(data: bytes) -> str:
    """Return base64url without padding."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def compact(
    header: dict[str, Any],
    claims: dict[str, Any] | bytes,
    key: Key | OctKey | None,
    *,
    algorithm: str | None = None,
) -> str:
    """Return a compact JWS; None removes a member, and without a key the signature is empty.

    ``algorithm`` signs if the header names another or none.
    """
    payload = claims if isinstance(claims, bytes) else json.dumps(_without_none(claims)).encode()
    signed = f"{encode(json.dumps(_without_none(header)).encode())}.{encode(payload)}"
    if key is None:
        return f"{signed}."
    made = JWSRegistry.algorithms[algorithm or header["alg"]].sign(signed.encode(), key)
    return f"{signed}.{encode(made)}"


class Signer:
    """A client's key and what it signs; ``changes`` replace members of the payload, None removes one."""

    def __init__(
        self, algorithm: str = "ES256", *, key_id: str | None = "one", key: Key | None = None
    ) -> None:
        self.algorithm, self.key_id = algorithm, key_id
        self.key = key or _shared_key(algorithm)

    @property
    def jwk(self) -> dict[str, Any]:
        """Return the public key as clients register it."""
        members = {name: value for name, value in self.key.as_dict(private=False).items() if name != "kid"}
        return members | ({"kid": self.key_id} if self.key_id is not None else {})

    @property
    def jwks(self) -> dict[str, Any]:
        """Return a key set with the key."""
        return {"keys": [self.jwk]}

    @property
    def registration(self) -> dict[str, Any]:
        """Return the registration fields of a client that authenticates with this key."""
        return {"token_endpoint_auth_method": "private_key_jwt", "jwks": self.jwks}

    def sign(self, claims: dict[str, Any] | bytes, *, key: Key | OctKey | None = None, **header: Any) -> str:
        """Return a JWT of the claims; ``header`` replaces members of the header, ``key`` replaces the key."""
        head = {"alg": self.algorithm, "kid": self.key_id} | header
        return compact(head, claims, key or self.key)

    def assertion(
        self,
        client_id: str,
        audience: Any,
        *,
        header: dict[str, Any] | None = None,
        key: Key | None = None,
        **changes: Any,
    ) -> str:
        """Return a client assertion (RFC 7523)."""
        now = int(time.time())
        good = {"iss": client_id, "sub": client_id, "aud": audience, "exp": now + 60, "iat": now}
        return self.sign(good | {"jti": str(uuid.uuid4())} | changes, key=key, **(header or {}))

    def fields(self, client_id: str, audience: Any, **changes: Any) -> dict[str, str]:
        """Return the form fields of private_key_jwt."""
        return {
            "client_assertion_type": TYPE,
            "client_assertion": self.assertion(client_id, audience, **changes),
        }

    def request_object(
        self,
        parameters: dict[str, Any],
        audience: Any,
        *,
        header: dict[str, Any] | None = None,
        key: Key | None = None,
        **changes: Any,
    ) -> str:
        """Return a request object (RFC 9101) with the parameters."""
        now = int(time.time())
        good = {"iss": parameters.get("client_id"), "aud": audience, "iat": now, "nbf": now, "exp": now + 300}
        head = {"typ": "oauth-authz-req+jwt"} | (header or {})
        return self.sign({**parameters, **good, **changes}, key=key, **head)


def _without_none(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}
