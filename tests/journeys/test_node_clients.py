"""Clients that nobody here wrote, in their strictest settings: openid-client, oauth4webapi and jose, by https.

What each script looks at stands in the script, under ``node/``; here stands which client it is run as.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.rules.tenancy.settings_table import GRANT_TYPES, TOKEN_EXCHANGE
from tests.factories import Factory, MadeClient, MadeUser
from tests.journeys.conftest import REDIRECT_URI, SCOPE
from tests.journeys.node_clients import EXERCISED, NodeClient, Site, Walk
from tests.support.back_channel import serve_at
from tests.support.databases import MariaDBDatabase
from tests.support.https_server import certificate, https_server
from tests.support.mariadb import MariaDB
from tests.support.person import Person
from tests.support.servers import LiveServer
from tests.support.signer import Signer

pytestmark = pytest.mark.live

OPEN = {
    "authentication": {"registration": {"mode": "open"}},
    "oauth": {
        "grant_types": [*GRANT_TYPES, TOKEN_EXCHANGE],
        "dynamic_registration": {"mode": "initial_access_token", "client_id_metadata_documents": True},
        "device_poll_interval_seconds": 1,
    },
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    with https_server(made) as server:
        made.server = server
        yield made


@pytest.fixture(scope="module")
def server(mariadb: MariaDB, scratch: Path, worker: str, site: Site) -> Iterator[LiveServer]:
    """Two workers that speak https, and believe and reach the site."""
    keys = scratch / "node-instance"
    keys.mkdir(mode=0o700)
    made = LiveServer(
        MariaDBDatabase(mariadb, f"node_{worker}"),
        keys,
        scratch / "node.log",
        settings=site.server.settings,
        certificate=certificate(),
    )
    made.start()
    Factory(made.app).root()
    yield made
    made.stop()


@dataclass(frozen=True, slots=True)
class Grove:
    """An organization with everything switched on, a user of it, and the scripts that meet it."""

    server: LiveServer
    site: Site
    make: Factory
    user: MadeUser

    def register(self, **fields: Any) -> MadeClient:
        """A client of the organization, a web client unless ``fields`` say otherwise."""
        good: dict[str, Any] = {"redirect_uris": [REDIRECT_URI], "scopes": SCOPE.split()}
        return self.make.client(self.user.organization, **(good | fields))

    def walk(self, script: str, client: MadeClient | None = None, **given: Any) -> Walk:
        """The script met the organization as the client, and used the metadata that ``EXERCISED`` says."""
        person = Person(self.server.url, ca_path=self.site.server.ca_path)
        known: dict[str, Any] = {"issuer": self.user.organization.issuer, "redirect_uri": REDIRECT_URI}
        if client is not None:
            known["client_id"] = client.client_id
            known["client_secret"] = client.registered.secret
            known["method"] = client.registered.client.token_endpoint_auth_method
        run = NodeClient(
            script,
            person,
            self.user.email,
            self.user.password,
            self.site.server.ca_path,
            self.site,
            known | given,
        )
        ended = run.walk()
        assert EXERCISED.get(script, frozenset()) - ended.used == set()
        return ended


@pytest.fixture
def grove(server: LiveServer, site: Site) -> Grove:
    make = Factory(server.app)
    return Grove(server, site, make, make.user(make.organization(settings=OPEN)))


def private(signer: Signer) -> dict[str, Any]:
    """The key of a client, as its own code holds it."""
    return {**signer.key.as_dict(private=True), "kid": signer.key_id, "alg": signer.algorithm}


@pytest.mark.parametrize(
    ("method", "algorithm"),
    [
        ("client_secret_basic", "RS256"),
        ("client_secret_post", "PS256"),
        ("private_key_jwt", "EdDSA"),
        ("none", "ES256"),
    ],
)
def test_the_code_flow(grove: Grove, method: str, algorithm: str) -> None:
    """Every way to authenticate and every algorithm of ID tokens (RFC 6749, 7636, 9207; OpenID Connect Core)."""
    signer = Signer()
    fields: dict[str, Any] = {"token_endpoint_auth_method": method}
    if method == "private_key_jwt":
        fields["jwks_uri"] = "https://orchard.example/jwks.json"
    client = grove.register(
        type="spa" if method == "none" else "web", id_token_signed_response_alg=algorithm, **fields
    )
    if method == "private_key_jwt":
        serve_at(grove.server.app, client, jwks_uri=grove.site.publish("/jwks.json", signer.jwks))
    walk = grove.walk("code", client, algorithm=algorithm, key=private(signer))
    assert walk.found["sub"] == grove.user.public_id
