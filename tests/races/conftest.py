"""Races run on MariaDB against two workers: SQLite serialises writers and would hide them.

More requests race for each single-use value with ``GATEHOUSE_CROWD=1000``.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.factories import Factory, MadeClient, MadeUser
from tests.journeys.conftest import REDIRECT_URI, SCOPE, VERIFIER, Journey
from tests.oauth.conftest import FAST_KEYS
from tests.support.concurrent_requests import Post
from tests.support.form_browser import FormBrowser
from tests.support.servers import LiveServer

# Several times as many requests as the workers have threads: the first of them race, and the rest only lose.
CROWD = int(os.environ.get("GATEHOUSE_CROWD", "64"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "races" in item.path.parts:
            item.add_marker("race")


class Race(Journey):
    """A journey whose single-use values many threads use at once."""

    def signed_in(self) -> FormBrowser:
        """Return a new browser with a session of the user, which was not started by the form: hashes take long."""
        visitor = FormBrowser(self.server.url)
        token = self.make.sign_in(self.user).token
        visitor.session.cookies.set(self.make.cookie_name(self.user.organization), token)
        return visitor

    def code(self, visitor: FormBrowser | None = None) -> str:
        """Return a new authorization code."""
        page = self.authorize(self.session(), visitor or self.signed_in())
        return page.query["code"]

    def redemption(self, code: str) -> Post:
        """Return the request that redeems the code."""
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER}
        return Post("/oauth/token", form | {"redirect_uri": REDIRECT_URI}, self.client.basic)

    def refresh(self, token: str) -> Post:
        """Return the request that rotates the refresh token."""
        form = {"grant_type": "refresh_token", "refresh_token": token}
        return Post("/oauth/token", form, self.client.basic)

    def introspection(self, token: str) -> Post:
        """Return the request that introspects the token."""
        return Post("/oauth/introspect", {"token": token}, self.client.basic)

    def revocation(self, token: str) -> Post:
        """Return the request that revokes the token (RFC 7009)."""
        return Post("/oauth/revoke", {"token": token}, self.client.basic)

    def audited(self, action: str) -> list[tuple[Any, ...]]:
        """Return the organization's audit events of this action."""
        return self.server.database.query(
            "SELECT target_id FROM audit_events WHERE organization_id = %s AND action = %s",
            self.client.organization.id.encode(),
            action.encode(),
        )


@pytest.fixture
def race(live_server: LiveServer, live_make: Factory) -> Race:
    """Create an organization with one web client and one user."""
    organization = live_make.organization(settings=FAST_KEYS)
    client: MadeClient = live_make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    user: MadeUser = live_make.user(organization)
    return Race(live_server, live_make, client, user)
