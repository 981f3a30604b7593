"""The measured installation: its organizations, clients, users and tokens, created by the real operations."""

from __future__ import annotations

import http.client
import json
import urllib.request
from pathlib import Path

from tests.bench import fill
from tests.bench.fill import Credentials
from tests.bench.load import Answer
from tests.bench.scenarios import REDIRECT_URI, basic, code_flow, credentials_of
from tests.factories import Factory, MadeUser
from tests.support.applications import application, environment
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB

BASE_URL = "http://127.0.0.1"


class Instance:
    """One organization with a machine client, one with JWT access tokens, and a web client with signed-in users."""

    def __init__(self, server: MariaDB, folder: Path, name: str = "gatehouse") -> None:
        self.database = MariaDBDatabase(server, name)
        keys = folder / f"{name}-instance"
        keys.mkdir(mode=0o700)
        self.app = application(self.database, keys, BASE_URL)
        self.env = environment(self.database, keys, BASE_URL) | {
            "GATEHOUSE_REQUEST_LOG": "off",
            "GATEHOUSE_LOG_LEVEL": "warning",
        }
        self.make = Factory(self.app)
        self.make.root()
        self.organization = self.make.organization("orchard")
        self.machine = self.make.machine(self.organization, "clients:read")
        # One organization for each algorithm, with a machine client whose tokens are JWTs.
        self.jwt_machines = {
            algorithm: self.make.machine(
                self.make.organization(
                    f"signed-{algorithm.lower()}",
                    settings={
                        "oauth": {"access_token": {"format": "jwt"}, "signing": {"algorithm": algorithm}}
                    },
                ),
                "clients:read",
            )
            for algorithm in ("ES256", "EdDSA", "RS256", "PS256")
        }
        self.user_organization = self.make.organization(
            "users", settings={"oauth": {"signing": {"algorithm": "ES256"}}}
        )
        self.web = self.make.client(
            self.user_organization,
            redirect_uris=[REDIRECT_URI],
            scopes=["openid", "offline_access"],
            trust="first_party",
        )
        self._users: list[MadeUser] = []
        self._cookies: list[str] = []
        self._copies: list[Credentials] = []
        self._sample: list[str] = []

    def cookies(self, count: int) -> list[str]:
        """Return the cookie headers of this number of signed-in users."""
        name = self.make.cookie_name(self.user_organization)
        while len(self._cookies) < count:
            user = self.make.user(self.user_organization)
            self._cookies.append(f"{name}={self.make.sign_in(user).token}")
        return self._cookies[:count]

    def some_tokens(self, port: int, count: int) -> list[str]:
        """Return this number of active access tokens of the machine client."""
        return self.tokens_of(port, [credentials_of(self.machine)] * count)

    def tokens_of(self, port: int, clients: list[Credentials]) -> list[str]:
        """Return an active access token of each client."""
        connection = http.client.HTTPConnection("127.0.0.1", port)
        tokens = []
        for client in clients:
            form = {"Content-Type": "application/x-www-form-urlencoded", **basic(client)}
            connection.request("POST", "/oauth/token", "grant_type=client_credentials", form)
            tokens.append(json.loads(connection.getresponse().read())["access_token"])
        connection.close()
        return tokens

    def refresh_tokens(self, port: int, count: int) -> list[str]:
        """Return a refresh token of each of this number of users, each from its own code flow."""
        connection = http.client.HTTPConnection("127.0.0.1", port)
        visit = code_flow(credentials_of(self.web), self.cookies(count))
        tokens = []
        for number in range(count):
            steps = visit(number)
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
                    tokens.append(json.loads(answer.body)["refresh_token"])
                    break
                ask = steps.send(answer)
        connection.close()
        return tokens

    def warm(self, port: int, path: str) -> None:
        """Send a first request, which may have to generate a key."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            answer.read()

    def fill(self, port: int, rows: int) -> list[str]:
        """Create this number of token rows; return tokens from all over them."""
        if not self._sample:
            self._sample = self.some_tokens(port, 1000)
        with self.database.connect() as connection:
            self._sample += fill.fill_tokens(connection, self.machine, rows)
        return self._sample

    def organizations(self, count: int) -> list[Credentials]:
        """Create a client in each of this number of organizations."""
        with self.database.connect() as connection:
            self._copies += fill.copies_of(connection, self.machine, count - 1 - len(self._copies))
        return [credentials_of(self.machine), *self._copies]
