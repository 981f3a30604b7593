"""A signed-in user who reads pages of the portal and sends their forms."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from tests.support.form_browser import Forms

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
_TAGS = re.compile(r"<[^>]+>")


class PortalUser:
    """A browser with a session; ``text`` is the text of the last page."""

    def __init__(self, app: Flask, make: Any, user: Any) -> None:
        self.http = app.test_client()
        self.user = user
        self.slug = user.organization.slug
        self.base = f"/portal/{self.slug}"
        self.page: TestResponse | None = None
        make.sign_in(user, self.http)

    def get(self, path: str) -> TestResponse:
        """Return a page; the path is below the organization's unless it starts with /portal."""
        self.page = self.http.get(self.address(path))
        return self.page

    def send(self, path: str, **fields: Any) -> TestResponse:
        """Send the form at the path and return the response."""
        if self.page is None or "csrf_token" not in self.page.text:
            self.get(path)
        assert self.page is not None
        token = _TOKEN.search(self.page.text)
        assert token, self.page.text
        data = {"csrf_token": token[1]} | {name.replace("__", "."): value for name, value in fields.items()}
        self.page = self.http.post(self.address(path), data=data, headers={"Sec-Fetch-Site": "same-origin"})
        return self.page

    def follow(self) -> TestResponse:
        """Follow the redirects of the last response."""
        assert self.page is not None and self.page.status_code == 303, self.page and self.page.text
        while self.page.status_code == 303:
            parts = urlsplit(self.page.headers["Location"])
            self.get(f"{parts.path}?{parts.query}" if parts.query else parts.path)
        return self.page

    def submit(self, path: str, **fields: Any) -> TestResponse:
        """Send the form at the path, and return the page that shows its result."""
        self.send(path, **fields)
        return self.follow()

    def undo(self) -> TestResponse:
        """Press the button of the notice on the last page, and return the page that follows."""
        assert self.page is not None
        reader = Forms()
        reader.feed(self.page.text.partition('<div class="note ok')[2])
        assert reader.forms, self.page.text
        form = reader.forms[0]
        self.page = self.http.post(
            form.action, data=dict(form.values), headers={"Sec-Fetch-Site": "same-origin"}
        )
        return self.follow()

    def address(self, path: str) -> str:
        return path if path.startswith(("/portal", "/login")) else f"{self.base}{path}"

    @property
    def text(self) -> str:
        assert self.page is not None
        return " ".join(html.unescape(_TAGS.sub(" ", self.page.text)).split())

    def hidden(self, name: str) -> str:
        """Return the value of a hidden field of the last page."""
        assert self.page is not None
        found = re.search(rf'name="{re.escape(name)}" value="([^"]*)"', self.page.text)
        assert found, self.page.text
        return html.unescape(found[1])


@pytest.fixture
def acme(make: Any) -> Any:
    """Return an organization."""
    return make.organization("acme", name="Acme")


@pytest.fixture
def portal_user(app: Flask, make: Any) -> Callable[..., PortalUser]:
    """Return a function that signs a user in to an organization, by default an administrator."""

    def signed_in(organization: Any, role: str | None = "admin", **more: Any) -> PortalUser:
        return PortalUser(app, make, make.user(organization, role=role, **more))

    return signed_in


@pytest.fixture
def ada(acme: Any, portal_user: Any) -> PortalUser:
    """Return an administrator of the organization in the portal."""
    found: PortalUser = portal_user(acme)
    return found
