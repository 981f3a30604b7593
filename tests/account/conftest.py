"""A test browser for pages: it keeps cookies and sends forms with the CSRF token of their page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.operations.sign_in.identity_providers import create_identity_provider
from tests.account.providers import Provider
from tests.factories import PASSWORD
from tests.support.caches import clear_cached_providers
from tests.support.https_server import reaching
from tests.support.identity_provider import identity_provider

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


class Visitor:
    """A browser that uses the application under test."""

    def __init__(self, app: Flask) -> None:
        self.http = app.test_client()
        self.page: TestResponse | None = None

    def get(self, path: str, **more: Any) -> TestResponse:
        """Open a page; later posts take their CSRF token from it."""
        self.page = self.http.get(path, **more)
        return self.page

    def token(self) -> str:
        """Return the CSRF token of the last page."""
        assert self.page is not None
        found = _TOKEN.search(self.page.text)
        assert found, self.page.text
        return found[1]

    def post(self, path: str, headers: Any = SAME_ORIGIN, **fields: str) -> TestResponse:
        """Submit a form of the last page."""
        return self.http.post(path, data={"csrf_token": self.token()} | fields, headers=headers)

    def sign_in(self, user: Any, password: str = PASSWORD, **more: str) -> TestResponse:
        """Submit the sign-in form of the user's organization."""
        path = f"/organizations/{user.organization.slug}/login"
        self.get(path)
        return self.post(path, email=user.email, password=password, **more)

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie, or None."""
        found = self.http.get_cookie(name, domain="localhost")
        return found.value if found else None


@pytest.fixture
def visitor(app: Flask) -> Visitor:
    """Return a browser without cookies."""
    return Visitor(app)


@pytest.fixture
def acme(make: Any) -> Any:
    """Create an organization."""
    return make.organization(name="Acme", settings={"authentication": {"lockout": {"max_failures": 3}}})


@pytest.fixture
def provider(app: Flask, make: Any, acme: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """Return the identity provider of ``acme``."""
    clear_cached_providers()
    with identity_provider() as fake:
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], fake.server))
        admin = make.actor(acme, user=make.user(acme, role="admin"))
        with app.app_context():
            record = create_identity_provider(admin, fake.fields)
        yield Provider(app, make, acme, fake, record, admin)
