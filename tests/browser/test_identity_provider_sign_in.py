"""An identity provider in Chromium: another organization signs users in, for an app and to link an account."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from app.operations.sign_in.identity_providers import create_identity_provider
from app.rules.sign_in.identity_providers import code_challenge
from tests.factories import Factory
from tests.support.browser import check, sign_in, watched
from tests.support.databases import MariaDBDatabase
from tests.support.https_server import certificate
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

pytestmark = [pytest.mark.live, pytest.mark.browser]


def test_another_organization_signs_users_in(
    chromium: Any,
    mariadb: MariaDB,
    instance: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    worker: str,
) -> None:
    own, authority = certificate()
    database = MariaDBDatabase(mariadb, f"providers_{worker}")
    server = LiveServer(
        database, instance, tmp_path / "server.log", certificate=(own, authority), host="localhost"
    )
    reached = f"localhost:{server.port}"
    server.settings = {
        "GATEHOUSE_OUTGOING_CA_BUNDLE": str(authority),
        "GATEHOUSE_OUTGOING_ALLOWED_HOSTS": reached,
    }
    config = dataclasses.replace(
        server.app.config["GATEHOUSE"],
        outgoing_ca_bundle=authority,
        outgoing_allowed_hosts=frozenset({reached}),
    )
    monkeypatch.setitem(server.app.config, "GATEHOUSE", config)
    make = Factory(server.app)
    acme, orchard = make.organization(name="Acme"), make.organization(name="Orchard")
    home = f"{server.url}/organizations/{acme.slug}"
    grace, eve = (make.user(orchard, email=f"{name}@orchard.example", name=name) for name in ("Grace", "Eve"))
    ada = make.user(acme, role="admin")
    there = make.client(
        orchard,
        name="Acme",
        redirect_uris=[f"{home}/login/with/orchard/callback"],
        scopes=["openid", "email", "profile"],
    )
    app = make.client(acme, redirect_uris=[f"{server.url}/healthz"], scopes=["openid"])
    server.start()
    with server.app.app_context():
        create_identity_provider(
            make.actor(acme, user=ada),
            {
                "slug": "orchard",
                "name": "Orchard",
                "issuer": f"{server.url}/organizations/{orchard.slug}",
                "client_id": there.client_id,
                "client_secret": there.secret,
                "create_users": True,
            },
        )
    try:
        with watched(chromium) as browser:
            page = browser.new_page()
            page.goto(
                f"{home}/oauth/authorize?response_type=code&scope=openid&client_id={app.client_id}&state=x"
                f"&redirect_uri={server.url}/healthz&code_challenge={code_challenge('v' * 43)}"
                "&code_challenge_method=S256"
            )
            page.wait_for_selector("text=Continue with Orchard")
            check(page)
            page.click("text=Continue with Orchard")
            page.wait_for_selector("text=Sign in to Orchard")
            sign_in(page, grace.email)
            page.click("button:has-text('Allow')")
            page.wait_for_url(f"{home}/oauth/**")
            assert grace.email in page.inner_text("body")
            page.click("button:has-text('Allow')")
            page.wait_for_url("**/healthz?*code=*")
        with watched(chromium) as browser:
            page = browser.new_page()
            page.goto(f"{home}/account/security/identities")
            sign_in(page, ada.email)
            page.click("text=Link Orchard")
            sign_in(page, eve.email)
            page.click("#consent-deny")
            page.wait_for_selector("text=Nothing was linked, because the sign-in was cancelled.")
            page.click("text=Link Orchard")
            page.click("#account-continue")
            page.click("button:has-text('Allow')")
            page.wait_for_selector("text=Linked. You can sign in with this account from now on.")
            check(page)
            page.click("text=Unlink Orchard")
            page.wait_for_selector("text=Not linked")
    finally:
        server.stop()
