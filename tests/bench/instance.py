"""The measured installation: its organizations, clients, users and tokens, created by the real operations."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from app.operations.authorization.consents import store_consent
from app.operations.directory.lookups import find_client
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.bench import fill
from tests.bench.fill import Credentials
from tests.bench.scenarios import REDIRECT_URI, client_tokens, credentials_of
from tests.factories import Factory, MadeUser
from tests.support.applications import application, environment
from tests.support.databases import Database

BASE_URL = "http://127.0.0.1"


class Instance:
    """One organization with a machine client, one with JWT access tokens, and a web client with signed-in users."""

    def __init__(self, database: Database, folder: Path, name: str = "gatehouse") -> None:
        self.database = database
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
        # With the defaults: RS256, and a client of a third party that each user allows.
        self.user_organization = self.make.organization("users")
        self.web = self.make.client(
            self.user_organization,
            redirect_uris=[REDIRECT_URI],
            scopes=["openid", "profile", "email", "offline_access"],
        )
        self._users: list[MadeUser] = []
        self._cookies: list[str] = []
        self._copies: list[Credentials] = []
        self._sample: list[str] = []

    def cookies(self, count: int) -> list[str]:
        """Return the cookie headers of this number of signed-in users who allowed the web client its scopes."""
        name = self.make.cookie_name(self.user_organization)
        while len(self._cookies) < count:
            user = self.make.user(self.user_organization)
            self._cookies.append(f"{name}={self.make.sign_in(user).token}")
            with self.app.app_context():
                client = find_client(self.web.client_id)
                assert client is not None
                actor = Actor.anonymous(client.organization.id, None, None)
                transaction(store_consent)(actor, client, user.id, tuple(client.document["scopes"]))
        return self._cookies[:count]

    def some_tokens(self, port: int, count: int) -> list[str]:
        """Return this number of active access tokens of the machine client."""
        return client_tokens(port, [credentials_of(self.machine)] * count)

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
