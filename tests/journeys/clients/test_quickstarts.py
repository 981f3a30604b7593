"""The quickstarts of libraries in Python, Node.js and the browser, with an organization's default settings."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.journeys.clients import other_languages
from tests.journeys.clients.quickstart import FLASK, HERE, NODE, PYTHON, Quickstart, running
from tests.support.browser import sign_in, watched
from tests.support.servers import ROOT, LiveServer

pytestmark = pytest.mark.live

# Passport and requests-oauthlib send neither a PKCE challenge nor a nonce.
QUICKSTARTS = {
    "authlib_flask": Quickstart(FLASK, callback="/authorize"),
    "requests_oauthlib": Quickstart(FLASK, pkce="public_clients"),
    "openid_client": Quickstart(NODE),
    "auth_core": Quickstart(
        NODE,
        callback="/auth/callback/gatehouse",
        login="/auth/signin",
        profile="/auth/session",
        signed_out="/auth/signout",
    ),
    "passport_openidconnect": Quickstart(NODE, callback="/oauth2/redirect", pkce="public_clients"),
}


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_quickstart_signs_in_refreshes_and_signs_out(node_server: LiveServer, name: str) -> None:
    with running(node_server, QUICKSTARTS[name], name) as app:
        app.walk()


@pytest.mark.browser
def test_quickstart_in_the_browser_signs_in_refreshes_and_signs_out(
    node_server: LiveServer, chromium: Any
) -> None:
    """oidc-client-ts, on a page of another origin than Gatehouse."""
    files = Quickstart(
        (*PYTHON, "-m", "http.server", "--bind", "localhost", "{port}"),
        callback="/",
        signed_out="/",
        type="spa",
    )
    with (
        running(node_server, files, "oidc_client_ts") as app,
        watched(chromium) as context,
    ):
        settings = {"authority": app.user.organization.issuer, "client_id": app.client.client_id}
        (app.folder / "settings.json").write_text(json.dumps(settings))
        page = context.new_page()

        def profile() -> dict[str, Any]:
            page.wait_for_function("document.querySelector('#profile').textContent")
            shown: dict[str, Any] = json.loads(page.text_content("#profile"))
            return shown

        page.goto(app.url)
        page.wait_for_function("document.title === 'Ready'")
        page.click("#login")
        sign_in(page, app.user.email)
        page.click("#consent-allow")
        claims, digest = profile(), app.refresh_digest()
        assert (claims["sub"], claims["email"]) == (app.user.public_id, app.user.email)
        page.click("#refresh")
        assert profile() == claims
        assert app.refresh_digest() != digest
        page.click("#logout")
        page.wait_for_url(f"{app.url}/")
        page.goto(f"{node_server.url}/organizations/{app.user.organization.slug}/account")
        page.wait_for_selector("#login-submit")
        assert not app.has_session()


def test_document_lists_every_program_with_the_command_that_tests_it() -> None:
    rows = re.findall(
        r"\| `(\w+)` \| `(script/test[ a-z]*)` \|$", (ROOT / "docs/clients.md").read_text(), re.MULTILINE
    )
    by_command = {"script/test": {*QUICKSTARTS, "oidc_client_ts"}}
    by_command["script/test clients"] = set(other_languages.QUICKSTARTS)
    assert {(name, command) for command, names in by_command.items() for name in names} == set(rows)
    assert {name for name, _ in rows} == {path.parent.name for path in HERE.glob("*/*")} - {
        "apis",
        "generators",
        "__pycache__",
    }
