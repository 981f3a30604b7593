"""The requests of each scenario, and their expected responses."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.bench.fill import Credentials
from tests.bench.load import DONE, Answer, Ask, MakeVisitor, Visitor, cycle, request
from tests.factories import MadeClient

TOKEN = "/oauth/token"
REDIRECT_URI = "https://orchard.example/callback"
VERIFIER = "a-verifier-of-the-bench-that-is-long-enough-0123456789"
CHALLENGE = urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()


def client_credentials(clients: Sequence[Credentials]) -> MakeVisitor:
    """Issue a token, to another client each time."""
    body = b"grant_type=client_credentials"
    return cycle(
        [
            Ask(request("POST", TOKEN, body, headers=basic(client)), 200, b'"access_token"')
            for client in clients
        ]
    )


def introspection(caller: Credentials, tokens: Sequence[str]) -> MakeVisitor:
    """Introspect a token, another one each time."""
    return introspection_by_each([caller] * len(tokens), tokens)


def introspection_by_each(callers: Sequence[Credentials], tokens: Sequence[str]) -> MakeVisitor:
    """Each client introspects its own token."""
    asks = []
    for caller, token in zip(callers, tokens, strict=True):
        body = urlencode({"token": token}).encode()
        path = "/oauth/introspect"
        asks.append(Ask(request("POST", path, body, headers=basic(caller)), 200, b'"active": true'))
    return cycle(asks)


def refresh(client: Credentials, tokens: Sequence[str]) -> MakeVisitor:
    """Each visitor rotates its own refresh token repeatedly."""

    def visitor(number: int) -> Visitor:
        token = tokens[number]
        while True:
            body = urlencode({"grant_type": "refresh_token", "refresh_token": token}).encode()
            answer: Answer = yield Ask(
                request("POST", TOKEN, body, headers=basic(client)), 200, b'"refresh_token"'
            )
            token = json.loads(answer.body)["refresh_token"]
            yield DONE

    return visitor


def issue_and_revoke(client: Credentials) -> MakeVisitor:
    """Issue and revoke a token (RFC 7009): two requests per operation."""

    def visitor(_number: int) -> Visitor:
        issue = Ask(
            request("POST", TOKEN, b"grant_type=client_credentials", headers=basic(client)),
            200,
            b'"access_token"',
        )
        while True:
            answer: Answer = yield issue
            body = urlencode({"token": json.loads(answer.body)["access_token"]}).encode()
            yield Ask(request("POST", "/oauth/revoke", body, headers=basic(client)))
            yield DONE

    return visitor


def code_flow(client: Credentials, cookies: Sequence[str]) -> MakeVisitor:
    """A signed-in user who has consented: authorize, then redeem the code with PKCE."""
    query = urlencode(
        {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": REDIRECT_URI,
            "scope": "openid offline_access",
            "state": "xyz",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
    )

    def visitor(number: int) -> Visitor:
        while True:
            code = ""
            path = f"/oauth/authorize?{query}"
            while not code:
                answer: Answer = yield Ask(request("GET", path, headers={"Cookie": cookies[number]}), 303)
                location = answer.header(b"location").decode()
                code = parse_qs(urlsplit(location).query).get("code", [""])[0]
                if not code and not location.startswith(("/", "http://127.0.0.1")):
                    raise RuntimeError(f"authorize went to {location or answer.body[:300]!r}")
                path = location
            form = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER}
            body = urlencode(form | {"redirect_uri": REDIRECT_URI}).encode()
            yield Ask(request("POST", TOKEN, body, headers=basic(client)), 200, b'"id_token"')
            yield DONE

    return visitor


def get(path: str, holds: bytes) -> MakeVisitor:
    """Fetch the same document repeatedly."""
    return cycle([Ask(request("GET", path), 200, holds)])


def insert() -> MakeVisitor:
    """The baseline of issuing; it reads a form of the usual size first."""
    return cycle([Ask(request("POST", "/insert", b"grant_type=client_credentials"), 200, b'"access_token"')])


def credentials_of(client: MadeClient) -> Credentials:
    """Return the client authentication parameters."""
    return Credentials(client.client_id, client.secret)


def basic(client: Credentials) -> dict[str, str]:
    """Return the header of client_secret_basic."""
    return {"Authorization": "Basic " + b64encode(f"{client.client_id}:{client.secret}".encode()).decode()}
