"""Identity providers of the portal in Chromium, wide and narrow, light and dark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import Factory
from tests.support.browser import NARROW, check, sign_in, watched
from tests.support.world_rows import linked

pytestmark = [pytest.mark.live, pytest.mark.browser]


def test_provider_is_entered_shown_and_deleted(chromium: Any, live_server: Any) -> None:
    make = Factory(live_server.app)
    acme = make.organization(name="Acme")
    user, grace = make.user(acme, role="admin"), make.user(acme)
    base = f"{live_server.url}/portal/{acme.slug}"
    redirect_uri = f"{acme.base_url}/organizations/{acme.slug}/login/with/{{}}/callback"
    with watched(chromium, **NARROW) as browser:
        page = browser.new_page()
        page.goto(f"{base}/identity-providers")
        sign_in(page, user.email)
        page.wait_for_selector("text=No identity providers yet")
        check(page)
        page.click("text=Add your first identity provider")
        assert page.inner_text("#redirect-uri") == redirect_uri.format("NAME")
        page.fill("#name", "Example")
        page.fill("#slug", "example")
        assert page.inner_text("#redirect-uri") == redirect_uri.format("example")
        check(page)
        # Nothing answers there.
        page.fill("#issuer", "https://idp.invalid/a/very/long/path/that/has/to/be/broken/somewhere/v2.0")
        page.fill("#client_id", "6a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
        page.fill("#client_secret", "secret")
        page.click("button:has-text('Add identity provider')")
        page.wait_for_selector("#errors")
        assert "can't be used" in page.inner_text("#issuer-error")
        assert page.inner_text("#redirect-uri") == redirect_uri.format("example")
        check(page)
        with live_server.app.app_context():
            provider, _ = linked(make.actor(acme), "example", grace.public_id)
        page.goto(f"{base}/identity-providers")
        check(page)
        page.click("th a")
        assert page.inner_text("#redirect-uri") == redirect_uri.format("example")
        check(page)
        page.click("main a:has-text('Edit')")
        page.check("#trust_emails")
        check(page)
        page.click("text=Save")
        page.wait_for_selector("text=Saved.")
        check(page)
        page.goto(f"{base}/users/{grace.public_id}")
        check(page)
        page.click("text=Unlink")
        check(page)
        page.click("#confirm")
        page.wait_for_selector("text=Account unlinked.")
        page.goto(f"{base}/identity-providers/{provider}/delete")
        check(page)
        page.click("#confirm")
        page.wait_for_selector("text=Identity provider deleted.")
