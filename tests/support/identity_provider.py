"""An OpenID provider that signs in whoever a test names, with discovery, keys, token and userinfo endpoint."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit
from uuid import uuid4

from app.rules.sign_in.identity_providers import code_challenge
from tests.support.https_server import HttpsServer, Request, Response, https_server
from tests.support.signer import compact, new_key

CLIENT_ID, CLIENT_SECRET = "gatehouse-at-the-provider", "s3cret: of the provider"


@dataclass
class FakeProvider:
    """A running provider.

    ``claims`` are those of whoever signs in next, and ``changes`` replace members of the ID token, None removes one.
    ``header`` replaces members of its header, ``metadata`` those of the discovery document. ``userinfo`` are the claims
    that only the userinfo endpoint has. ``error`` is returned in place of a code. With
    ``reuses_codes``, a code can be redeemed again. ``on_token`` is called before a code
    is redeemed. ``asked`` lists the paths of all requests.
    """

    server: HttpsServer
    claims: dict[str, Any] = field(
        default_factory=lambda: {
            "sub": "248289761001",
            "email": "grace@acme.example",
            "email_verified": True,
            "name": "Grace Hopper",
        }
    )
    changes: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Response] = field(default_factory=dict)
    error: str = ""
    reuses_codes: bool = False
    access_token: str = "opaque"
    on_token: Callable[[], object] = lambda: None
    asked: list[str] = field(default_factory=list)
    client_id: str = CLIENT_ID
    algorithm: str = "ES256"
    key: Any = field(default_factory=new_key)
    key_id: str = "first"
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        """Return its issuer, which has a path."""
        return f"{self.server.base_url}/tenant"

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of an identity provider at this address."""
        return {
            "slug": "example",
            "name": "Example",
            "issuer": self.issuer,
            "client_id": self.client_id,
            "client_secret": CLIENT_SECRET,
        }

    def rotate_key(self, key_id: str = "second") -> None:
        """Sign with a new key from now on."""
        self.key, self.key_id = new_key(self.algorithm), key_id

    def authorize(self, url: str) -> str:
        """Sign in at an authorization URL, and return the URL that the browser is redirected to."""
        sent = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        answer = {"state": sent["state"], "iss": self.issuer}
        if self.error:
            answer["error"] = self.error
        else:
            answer["code"] = uuid4().hex
            self._codes[answer["code"]] = sent
        return f"{sent['redirect_uri']}?{urlencode(answer)}"

    def logout_token(self, header: Mapping[str, Any] | None = None, **changes: Any) -> str:
        """Return a logout token for whoever signs in next; ``changes`` replace claims, None removes one."""
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": self.client_id,
            "iat": now,
            "exp": now + 120,
            "jti": uuid4().hex,
            "sub": self.claims["sub"],
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
            **changes,
        }
        header = {"alg": self.algorithm, "kid": self.key_id, "typ": "logout+jwt", **(header or {})}
        return compact(header, claims, self.key, algorithm=self.algorithm)

    def handle(self, request: Request) -> Response:
        """Answer a request."""
        path = urlsplit(request.path).path
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == "/tenant/.well-known/openid-configuration":
            return _json(self._configuration())
        if path == "/keys":
            public = self.key.as_dict(private=False)
            return _json({"keys": [{**public, "kid": self.key_id, "use": "sig"}]})
        if path == "/authorize":
            return Response(303, headers={"Location": self.authorize(request.path)})
        if path == "/token":
            self.on_token()
            return self._redeem(request)
        if path == "/userinfo":
            return _json({"sub": self.claims["sub"], **self.userinfo})
        return Response(404)

    def _configuration(self) -> dict[str, Any]:
        base = self.server.base_url
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "userinfo_endpoint": f"{base}/userinfo",
            "jwks_uri": f"{base}/keys",
            "authorization_response_iss_parameter_supported": True,
        } | self.metadata

    def _redeem(self, request: Request) -> Response:
        sent = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        begun = self._codes.get(sent["code"]) if self.reuses_codes else self._codes.pop(sent["code"], None)
        scheme, _, pair = request.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            sent["client_id"], _, sent["client_secret"] = map(
                unquote, b64decode(pair).decode().partition(":")
            )
        is_right = (
            begun is not None
            and {
                "client_id": self.client_id,
                "client_secret": CLIENT_SECRET,
                "grant_type": "authorization_code",
                "redirect_uri": begun["redirect_uri"],
            }.items()
            <= sent.items()
        )
        if begun is None or not is_right or code_challenge(sent["code_verifier"]) != begun["code_challenge"]:
            return _json({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": self.client_id,
            "iat": now,
            "exp": now + 300,
            "nonce": begun["nonce"],
            **self.claims,
            **self.changes,
        }
        header = {"alg": self.algorithm, "kid": self.key_id, **self.header}
        token = compact(header, claims, self.key, algorithm=self.algorithm)
        return _json({"id_token": token, "access_token": self.access_token, "token_type": "Bearer"})


def _json(content: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(content).encode(), {"Content-Type": "application/json"})


@contextmanager
def identity_provider(**more: Any) -> Iterator[FakeProvider]:
    """Run a provider."""
    made: list[FakeProvider] = []
    with https_server(lambda request: made[0].handle(request)) as server:
        made.append(FakeProvider(server, **more))
        yield made[0]
