"""An identity provider in Chromium: an app sends a user to sign in with it, and the user links and unlinks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.operations.sign_in.identity_providers import create_identity_provider
from app.rules.sign_in.identity_providers import code_challenge
from tests.factories import Factory
from tests.support.browser import check, sign_in, watched
from tests.support.databases import MariaDBDatabase
from tests.support.https_server import reaching
from tests.support.identity_provider import identity_provider
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

VERIFIER = "v" * 43
pytestmark = [pytest.mark.live, pytest.mark.browser]


def test_user_of_an_app_signs_in_with_a_provider_and_links_it(
    chromium: Any,
    mariadb: MariaDB,
    instance: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    worker: str,
) -> None:
    with identity_provider() as fake:
        database = MariaDBDatabase(mariadb, f"providers_{worker}")
        server = LiveServer(
            database, instance, tmp_path / "server.log", workers=1, settings=fake.server.settings
        )
        config = reaching(server.app.config["GATEHOUSE"], fake.server)
        monkeypatch.setitem(server.app.config, "GATEHOUSE", config)
        make = Factory(server.app)
        acme = make.organization(name="Acme")
        user, admin = make.user(acme, role="developer"), make.user(acme, role="admin")
        with server.app.app_context():
            create_identity_provider(make.actor(acme, user=admin), {**fake.fields, "create_users": True})
        client = make.client(acme, redirect_uris=[f"{server.url}/healthz"], scopes=["openid"])
        server.start()
        try:
            with watched(chromium, ignore_https_errors=True) as browser:
                page = browser.new_page()
                page.goto(
                    f"{server.url}/organizations/{acme.slug}/oauth/authorize?response_type=code&scope=openid"
                    f"&client_id={client.client_id}&redirect_uri={server.url}/healthz&state=x&code_challenge={code_challenge(VERIFIER)}"
                    "&code_challenge_method=S256"
                )
                page.wait_for_selector("text=Continue with Example")
                check(page)
                page.click("text=Continue with Example")
                page.wait_for_selector("text=Allow")
                assert "grace@acme.example" in page.inner_text("body")
                page.click("button:has-text('Allow')")
                page.wait_for_url("**/healthz?*code=*")
            with watched(chromium, ignore_https_errors=True) as browser:
                fake.claims |= {"sub": "another", "email": "ada@example.net"}
                page = browser.new_page()
                page.goto(f"{server.url}/organizations/{acme.slug}/account/security/identities")
                sign_in(page, user.email)
                page.click("text=Link Example")
                page.wait_for_selector("text=Linked. You can sign in with this account from now on.")
                check(page)
                page.click("text=Unlink Example")
                page.wait_for_selector("text=Not linked")
                fake.error = "access_denied"
                page.click("text=Link Example")
                page.wait_for_selector("text=Nothing was linked, because the sign-in was cancelled.")
                page.goto(f"{server.url}/organizations/{acme.slug}/login?account=another")
                page.click("text=Continue with Example")
                page.wait_for_selector("text=Signing in with Example was cancelled.")
                check(page)
        finally:
            server.stop()
