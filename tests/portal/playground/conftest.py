"""A developer and their runs in the playground."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.factories import Factory, MadeClient
from tests.portal.conftest import PortalUser
from tests.support.databases import Database
from tests.support.form_browser import Page

SETTINGS = {"oauth": {"signing": {"algorithm": "ES256"}}}
CODE = "authorization_code"


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization("acme", name="Acme", settings=SETTINGS)


@pytest.fixture
def grace(portal_user: Any, acme: Any) -> PortalUser:
    """A developer."""
    found: PortalUser = portal_user(acme, "developer", email="grace@acme.example")
    return found


@pytest.fixture
def orchard(make: Factory, acme: Any, grace: PortalUser) -> MadeClient:
    """The developer's own confidential client, which members may not allow without an administrator."""
    return own_client(make, acme, grace)


def own_client(make: Factory, organization: Any, user: PortalUser, **fields: Any) -> MadeClient:
    with make.app.app_context():
        return make.client(organization, by=make.actor(organization, user=user.user), **fields)


class Try:
    """A run in the browser of ``user``."""

    def __init__(self, user: PortalUser, client: MadeClient, grant_type: str = CODE, **choices: Any) -> None:
        self.user, self.client = user, client
        user.get(f"/playground?client={client.client_id}&grant_type={grant_type}")
        fields = {
            "client": client.client_id,
            "grant_type": grant_type,
            "scopes": ["openid", "email"],
            "prompt": "",
        }
        page = user.send("/playground", **(fields | choices))
        assert page.status_code == 303, user.text[-900:]
        self.path = urlsplit(page.headers["Location"]).path
        user.get(self.path)

    @property
    def request(self) -> dict[str, str]:
        """The parameters of the authorization request on the page."""
        found = re.search(r'id="go" href="([^"]+)"', self.user.get(self.path).text)
        assert found
        return dict(parse_qsl(urlsplit(unescape(found[1])).query))

    def authorize(self, http: Any = None, **changes: str) -> TestResponse:
        """Send the authorization request, allow it if asked to, and return the last response."""
        http = http or self.user.http
        issuer = f"/organizations/{self.user.slug}"
        answer = http.get(f"{issuer}/oauth/authorize", query_string=self.request | changes)
        if "/authorize/resume" in answer.headers.get("Location", ""):
            answer = allow(http, answer.headers["Location"])
        return answer

    def come_back(self) -> str:
        """Authorize, open the callback and return the code."""
        location = self.authorize().headers["Location"]
        page = self.user.get(f"{urlsplit(location).path}?{urlsplit(location).query}")
        assert page.status_code == 200, self.user.text[-900:]
        return parse_qs(urlsplit(location).query)["code"][0]

    def press(self, action: str, **fields: str) -> TestResponse:
        """Press a button and return the page that follows."""
        answer = self.user.send(self.path, action=action, **fields)
        assert answer.status_code == 303, self.user.text[-900:]
        return self.user.get(self.path)

    def redeem(self, code: str, broken: str = "") -> TestResponse:
        return self.press("token", code=code, **({"break": broken} if broken else {}))

    def response(self, name: str) -> str:
        """Return a member of the newest response on the page."""
        found = re.findall(rf'"{name}": "([^"]+)"', unescape(self.user.get(self.path).text))
        assert found, self.user.text[-900:]
        return str(found[-1])


def sealed(database: Database) -> Any:
    return database.query("SELECT sealed FROM playground_runs")


def allow(http: FlaskClient, consent_page: str) -> TestResponse:
    """Press the button of the consent page, and return the response."""
    page = http.get(consent_page)
    form = Page("", page.status_code, page.text).form_with("consent-allow")
    body: dict[str, list[str]] = {}
    for name, value in (*form.values, form.buttons["consent-allow"]):
        body.setdefault(name, []).append(value)
    return http.post(form.action, data=body)
