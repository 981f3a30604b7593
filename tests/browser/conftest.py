"""Fixtures of the tests in Chromium: organizations of the live server, and its pages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import PASSWORD, Factory
from tests.support.browser import sign_in


@pytest.fixture
def make(live_server: Any) -> Factory:
    """Factory for the live server."""
    return Factory(live_server.app)


class Pages:
    """Navigation through the pages of one server."""

    def __init__(self, page: Any, base: str, organization: Any) -> None:
        self.page, self.base, self.organization = page, base, organization

    def open(self, path: str) -> Any:
        """Open a path; without a leading slash it is relative to the organization's URL."""
        below = path if path.startswith("/") else f"/organizations/{self.organization.slug}/{path}"
        self.page.goto(f"{self.base}{below}")
        return self.page

    def sign_in(self, user: Any, password: str = PASSWORD) -> Any:
        sign_in(self.page, user.email, password)
        return self.page


@pytest.fixture
def pages(page: Any, live_server: Any, acme: Any) -> Pages:
    return Pages(page, live_server.url, acme)
