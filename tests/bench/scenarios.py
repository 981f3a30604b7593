"""The requests of each scenario, and their expected responses."""

from __future__ import annotations

import hashlib
import http.client
import json
import random
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
        asks.append(Ask(request("POST", path, body, headers=basic(caller)), 200, b'"client_id"'))
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


def userinfo(tokens: Sequence[str]) -> MakeVisitor:
    """Read the claims of a user, with another access token each time."""
    headers = [{"Authorization": f"Bearer {token}"} for token in tokens]
    return cycle([Ask(request("GET", "/oauth/userinfo", headers=each), 200, b'"sub"') for each in headers])


def authorization_path(client: Credentials) -> str:
    """Return the path of an authorization request of the client."""
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": REDIRECT_URI,
        "scope": "openid profile email offline_access",
        "state": "xyz",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    return f"/oauth/authorize?{urlencode(query)}"


def code_flow(client: Credentials, cookies: Sequence[str]) -> MakeVisitor:
    """A signed-in user who has consented, another one each time: authorize, then redeem the code with PKCE."""

    def visitor(number: int) -> Visitor:
        users = random.Random(number)
        while True:
            cookie, code = users.choice(cookies), ""
            path = authorization_path(client)
            while not code:
                answer: Answer = yield Ask(request("GET", path, headers={"Cookie": cookie}), 303)
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


def floor_of(*paths: str) -> MakeVisitor:
    """The baseline of an operation of so many requests; those that issue read a form of the usual size first."""

    def visitor(_number: int) -> Visitor:
        asks = [
            Ask(request("POST", path, b"grant_type=client_credentials"), 200, b'"access_token"')
            if path != "/select"
            else Ask(request("GET", path), 200, b'"active"')
            for path in paths
        ]
        while True:
            for ask in asks:  # noqa: UP028 - a visitor is sent the answer, which an iterator of a list cannot take
                yield ask
            yield DONE

    return visitor


def client_tokens(port: int, clients: Sequence[Credentials]) -> list[str]:
    """Return an active access token of each client."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    tokens = []
    for client in clients:
        form = {"Content-Type": "application/x-www-form-urlencoded", **basic(client)}
        connection.request("POST", TOKEN, "grant_type=client_credentials", form)
        tokens.append(json.loads(connection.getresponse().read())["access_token"])
    connection.close()
    return tokens


def tokens_of_users(port: int, client: Credentials, cookies: Sequence[str]) -> list[dict[str, str]]:
    """Return a token response for each of the signed-in users, each from its own code flow."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    found = []
    for cookie in cookies:
        steps = code_flow(client, [cookie])(0)
        ask = next(steps)
        while True:
            head, _, body = ask.request.partition(b"\r\n\r\n")
            method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[2:])
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            raw = "".join(f"{name}: {value}\r\n" for name, value in response.getheaders()).encode()
            answer = Answer(response.status, raw, response.read())
            if method == "POST":
                found.append(json.loads(answer.body))
                break
            ask = steps.send(answer)
    connection.close()
    return found


def credentials_of(client: MadeClient) -> Credentials:
    """Return the client authentication parameters."""
    return Credentials(client.client_id, client.secret)


def basic(client: Credentials) -> dict[str, str]:
    """Return the header of client_secret_basic."""
    return {"Authorization": "Basic " + b64encode(f"{client.client_id}:{client.secret}".encode()).decode()}
