"""The whole product in a real browser: first run, a client, sign-in through an application, an API call,
revocation; and the demo, as a newcomer meets it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from app.operations.organizations.setup import issue_setup_token
from tests.factories import PASSWORD
from tests.support import process
from tests.support.browser import sign_in, watched
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.server_script import copy_to, started
from tests.support.servers import ROOT, LiveServer, granian


@pytest.fixture
def new_server(mariadb: MariaDB, tmp_path: Path, worker: str) -> Iterator[LiveServer]:
    """Two workers of an installation that is not set up."""
    keys = tmp_path / "instance"
    keys.mkdir(mode=0o700)
    server = LiveServer(MariaDBDatabase(mariadb, f"first_run_{worker}"), keys, tmp_path / "server.log")
    server.start()
    yield server
    server.stop()


class Application:
    """Run another account's application in its own process; see ``relying_party``."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.port = process.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: Any = None

    @property
    def callback(self) -> str:
        """Return its redirect URI."""
        return f"{self.url}/callback"

    def start(self, issuer: str, client_id: str, client_secret: str) -> None:
        """Start it with what its developer copied from the portal."""
        env = os.environ | {
            "RP_CLIENT_ID": client_id,
            "RP_CLIENT_SECRET": client_secret,
            "RP_METADATA_URL": f"{issuer}/.well-known/openid-configuration",
            "RP_SCOPE": "openid profile email",
        }
        command = granian("tests.journeys.relying_party:app", self.port, workers=1)
        self._process = process.start(command, self.log, env=env, cwd=ROOT)
        process.wait_until(lambda: _is_served(self.url), f"the application (log: {self.log})")

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            process.stop(self._process)


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    """An application whose URL is known before it starts."""
    made = Application(tmp_path / "application.log")
    yield made
    made.stop()


def set_up(page: Page, server: LiveServer) -> tuple[str, str]:
    """Complete the first run with the printed link; return (id, secret) of the management client."""
    with server.app.app_context():
        token = issue_setup_token()
    page.goto(f"{server.url}/setup?token={token}")
    page.fill("#email", "root@example.com")
    page.fill("#name", "Rosa Root")
    page.fill("#password", PASSWORD)
    page.fill("#password_again", PASSWORD)
    page.fill("#organization_name", "Orchard")
    page.click("#setup-submit")
    expect(page.locator("h1")).to_have_text("Gatehouse is set up")
    made = page.inner_text("#client-id").strip(), page.inner_text("#client-secret").strip()
    # The setup link works only once.
    assert page.request.get(f"{server.url}/setup?token={token}").status == 404
    page.click("#setup-sign-in")
    sign_in(page, "root@example.com")
    return made


def register(page: Page, server: LiveServer, application: Application) -> tuple[str, str]:
    """Register a web client in the portal; return (id, secret) as shown then and later."""
    page.goto(f"{server.url}/portal/orchard/clients/new")
    page.get_by_role("link", name="Web app").click()
    page.fill("#name", "Fruit Shop")
    page.fill("#redirect_uris", application.callback)
    page.get_by_role("button", name="Register").click()
    expect(page.locator("#shown-once-title")).to_have_text("Fruit Shop is registered")
    made = page.inner_text("#client-id").strip(), page.inner_text("#client-secret").strip()
    page.reload()
    page.get_by_role("link", name="Manage secrets").click()
    page.get_by_role("button", name="Reveal").click()
    assert page.inner_text("#client-secret").strip() == made[1]
    assert made[1] not in page.url
    return made


def invite(page: Page, server: LiveServer, email: str) -> str:
    """Return an invitation link to the organization."""
    page.goto(f"{server.url}/portal/orchard/administrators/new")
    page.fill("#email", email)
    page.get_by_role("button", name="Add administrator").click()
    return page.inner_text("#invitation-link").strip()


def accept(page: Page, link: str) -> None:
    page.goto(link)
    page.fill("#name", "Grace Hopper")
    page.fill("#password", PASSWORD)
    page.click("#invitation-accept")


def management(server: LiveServer, client: tuple[str, str]) -> dict[str, str]:
    """Return the management client's authorization header."""
    answer = requests.post(
        f"{server.url}/oauth/token", data={"grant_type": "client_credentials"}, auth=client, timeout=60
    )
    return {"Authorization": f"Bearer {answer.json()['access_token']}"}


def test_first_run_to_rejected_token(
    new_server: LiveServer, application: Application, chromium: Browser
) -> None:
    with watched(chromium) as administrator:
        page = administrator.new_page()
        client = set_up(page, new_server)
        expect(page).to_have_url(re.compile(r"/portal/orchard/clients/new"))
        client_id, secret = register(page, new_server, application)
        link = invite(page, new_server, "grace@example.com")

    application.start(f"{new_server.url}/organizations/orchard", client_id, secret)
    with watched(chromium) as visitor:
        page = visitor.new_page()
        accept(page, link)
        page.goto(f"{new_server.url}/organizations/orchard/logout")
        visitor.clear_cookies()
        page.goto(application.url)
        page.click("#sign-in")
        expect(page).to_have_url(re.compile(r"/organizations/orchard/login"))
        sign_in(page, "grace@example.com")
        expect(page.locator("h1")).to_contain_text("Fruit Shop wants to use your")
        page.click("#consent-allow")
        expect(page.locator("#who")).to_have_text("grace@example.com")
        page.goto(f"{application.url}/call")
        expect(page.locator("#status")).to_have_text("200")
        expect(page.locator("#body")).to_have_text("grace@example.com")

        header = management(new_server, client)
        token = requests.get(f"{application.url}/tokens", timeout=60).json()["access_token"]
        body = {"organization_id": "orchard", "token_type": "access_token", "token": token}
        revoked = requests.post(f"{new_server.url}/api/v1/revoke", json=body, headers=header, timeout=60)
        assert (revoked.status_code, revoked.json()) == (200, {"success": True, "data": "Token revoked"})

        page.goto(f"{application.url}/call")
        expect(page.locator("#status")).to_have_text("401")


def test_newcomer_signs_in_to_the_demo_app_with_at_most_three_forms(
    tmp_path: Path, chromium: Browser
) -> None:
    """After two commands, git clone and script/server --demo; whoever set the instance up can sign in too."""
    copy = copy_to(tmp_path)
    with started(copy, "--demo") as server:
        server.answers()
        process.wait_until(lambda: _is_served(server.app_url), "the demo app")
        for user in ("ada@acme.example", "root@gatehouse.example"):
            found = re.search(rf"{user} +(\S+)  ", server.output())
            assert found is not None, server.output()
            with watched(chromium) as newcomer:
                sign_in_to_the_demo_app(newcomer.new_page(), server.app_url, user, found[1])


def sign_in_to_the_demo_app(page: Page, app_url: str, user: str, password: str) -> None:
    """Sign in and out again, and count the forms on the way to the app."""
    forms: list[str] = []
    page.on("request", lambda sent: forms.append(sent.url) if sent.method != "GET" else None)
    page.goto(app_url)
    page.get_by_role("link", name="Sign in").click()
    sign_in(page, user, password)
    page.click("#consent-allow")
    expect(page.get_by_text(f"You are signed in as {user}.")).to_be_visible()
    assert page.url.startswith(app_url)
    assert len(forms) <= 3, forms
    page.get_by_role("link", name="Sign out").click()
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()


def _is_served(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False
