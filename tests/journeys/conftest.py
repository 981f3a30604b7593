"""Fixtures for journeys: a real server, real HTTP, third-party clients, and an organization per test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from authlib.integrations.requests_client import OAuth2Session

from tests.factories import Factory, MadeClient, MadeUser
from tests.journeys.certification import SETTINGS, Suite
from tests.journeys.node_clients import EVERYTHING_ON, REDIRECT_URI, SCOPE, Grove, Site
from tests.support.databases import MariaDBDatabase
from tests.support.form_browser import FormBrowser, Page
from tests.support.https_server import certificate, https_server
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

VERIFIER = "one-verifier-for-all-journeys-since-each-has-a-server-of-its-own"


@dataclass(frozen=True, slots=True)
class Journey:
    """An organization with a web client and a user, on a real server."""

    server: LiveServer
    make: Factory
    client: MadeClient
    user: MadeUser

    @property
    def issuer(self) -> str:
        """The issuer of the organization."""
        return self.client.organization.issuer

    def metadata(self) -> dict[str, Any]:
        """Return the discovery document."""
        return (
            FormBrowser(self.server.url)
            .session.get(f"{self.issuer}/.well-known/openid-configuration", timeout=60)
            .json()
        )

    def session(self, **changes: Any) -> OAuth2Session:
        """Return an Authlib session of the web client."""
        good = {
            "client_id": self.client.client_id,
            "client_secret": self.client.secret,
            "scope": SCOPE,
            "redirect_uri": REDIRECT_URI,
            "code_challenge_method": "S256",
            "token_endpoint_auth_method": "client_secret_basic",
            "revocation_endpoint_auth_method": "client_secret_basic",
        }
        return OAuth2Session(**(good | changes))

    def authorize(self, session: OAuth2Session, visitor: FormBrowser, **parameters: Any) -> Page:
        """Sign in, consent, and return the final redirect URL."""
        url, _state = session.create_authorization_url(
            self.metadata()["authorization_endpoint"], code_verifier=VERIFIER, **parameters
        )
        page = visitor.visit(url)
        if page.left is None and page.has("login-submit"):
            page = visitor.sign_in(page, self.user.email, self.user.password)
        if page.left is None and page.has("consent-allow"):
            page = visitor.press(page, "consent-allow")
        return page

    def tokens(self, session: OAuth2Session, **parameters: Any) -> dict[str, Any]:
        """Run a whole code flow and return the tokens."""
        page = self.authorize(session, FormBrowser(self.server.url), **parameters)
        assert page.left is not None, (page.url, page.status, page.text[:2000])
        return session.fetch_token(
            self.metadata()["token_endpoint"], authorization_response=page.left, code_verifier=VERIFIER
        )


@pytest.fixture
def journey(live_server: LiveServer, live_make: Factory) -> Journey:
    """A new organization with one web client and one user."""
    organization = live_make.organization()
    live_make.signing_key(organization)
    client = live_make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    return Journey(live_server, live_make, client, live_make.user(organization))


@pytest.fixture(scope="session")
def node_site() -> Iterator[Site]:
    """The site that hosts documents of the ``node/`` clients."""
    made = Site()
    with https_server(made) as server:
        made.server = server
        yield made


@pytest.fixture(scope="session")
def node_server(mariadb: MariaDB, scratch: Path, worker: str, node_site: Site) -> Iterator[LiveServer]:
    """Two workers on https that trust and can reach the site."""
    keys = scratch / "node-instance"
    keys.mkdir(mode=0o700)
    made = LiveServer(
        MariaDBDatabase(mariadb, f"node_{worker}"),
        keys,
        scratch / "node.log",
        settings=node_site.server.settings,
        certificate=certificate(),
    )
    made.start()
    Factory(made.app).root()
    yield made
    made.stop()


@pytest.fixture
def grove(node_server: LiveServer, node_site: Site) -> Grove:
    """A new organization with every feature enabled, for the ``node/`` clients."""
    make = Factory(node_server.app)
    return Grove(node_server, node_site, make, make.user(make.organization(settings=EVERYTHING_ON)))


@pytest.fixture(scope="session")
def suite(node_server: LiveServer, node_site: Site) -> Suite:
    """The organization that the certification plans run against, configured once."""
    return Suite(node_server, node_site, SETTINGS)
