"""Scenarios of DPoP and pushed requests: each operation needs its own signature."""

from __future__ import annotations

import json
import secrets
import time
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import urlencode

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.bench.fill import Credentials
from tests.bench.load import DONE, Ask, MakeVisitor, Visitor, request
from tests.bench.scenarios import CHALLENGE, REDIRECT_URI, TOKEN, basic

PAR = "/oauth/par"


class ProvingKey:
    """A key that signs DPoP proofs (RFC 9449 section 4.2), ES256."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        numbers = self._key.public_key().public_numbers()
        jwk = {"kty": "EC", "crv": "P-256"} | {
            name: _encoded(value.to_bytes(32, "big")) for name, value in (("x", numbers.x), ("y", numbers.y))
        }
        self._header = _encoded_json({"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk})

    def proof(self, method: str, url: str) -> str:
        """Return a new proof."""
        claims = {"jti": secrets.token_urlsafe(16), "htm": method, "htu": url, "iat": int(time.time())}
        signed = f"{self._header}.{_encoded_json(claims)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def client_credentials_with_proof(client: Credentials, base_url: str) -> MakeVisitor:
    """Request a token that is bound to the visitor's own key."""
    body = b"grant_type=client_credentials"

    def visitor(_number: int) -> Visitor:
        key = ProvingKey()
        while True:
            headers = basic(client) | {"DPoP": key.proof("POST", base_url + TOKEN)}
            yield Ask(request("POST", TOKEN, body, headers=headers), 200, b'"token_type": "DPoP"')
            yield DONE

    return visitor


def pushed_request(client: Credentials) -> MakeVisitor:
    """Push an authorization request (RFC 9126)."""
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": REDIRECT_URI,
        "scope": "openid offline_access",
        "state": "xyz",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    ask = Ask(
        request("POST", PAR, urlencode(parameters).encode(), headers=basic(client)), 201, b'"request_uri"'
    )

    def visitor(_number: int) -> Visitor:
        while True:
            yield ask
            yield DONE

    return visitor


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _encoded_json(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())
