"""Webhooks in Chromium: adding, testing and deleting them, wide and narrow, light and dark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import Factory
from tests.support.browser import NARROW, check, sign_in, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]


def test_webhook_is_added_tested_and_deleted(chromium: Any, live_server: Any) -> None:
    make = Factory(live_server.app)
    acme = make.organization(name="Acme")
    user = make.user(acme, role="admin")
    with watched(chromium, **NARROW) as browser:
        page = browser.new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/webhooks")
        sign_in(page, user.email)
        page.wait_for_selector("text=No webhooks yet")
        check(page)
        page.click("text=Add your first webhook")
        page.fill("#url", "https://[2001:db8::1]/hooks")
        page.check("input[value='user.*']")
        page.click("button:has-text('Add')")
        page.wait_for_selector("#errors")
        check(page)
        page.fill(
            "#url", "https://hooks.invalid/a/very/long/address/that/has/to/be/broken/somewhere?tenant=acme"
        )
        page.fill("#description", "Customer list")
        page.fill("#event_types", "client.deleted")
        page.click("button:has-text('Add')")
        assert page.inner_text("#signing-secret").startswith("whsec_")
        check(page)
        page.wait_for_selector("text=No deliveries yet")
        page.click("text=Send a test event")
        page.wait_for_selector("text=The event is being delivered.")
        check(page)
        # The host does not exist, so the attempt fails and the page shows why.
        for _ in range(40):
            if page.query_selector("#delivery-error"):
                break
            page.wait_for_timeout(250)
            page.reload()
        assert (
            page.inner_text("#delivery-error")
            == "The server could not be reached, or sent no complete response in time. "
            "The operator of this instance can find the cause in the server's log."
        )
        check(page)
        page.click("nav.crumbs a >> nth=-1")
        page.wait_for_selector("#deliveries")
        assert "webhook.test" in page.inner_text("#deliveries")
        check(page)
        page.click("text=Rotate signing secret")
        check(page)
        page.click("text=Cancel")
        page.click("main a:has-text('Edit')")
        page.uncheck("#is_enabled")
        check(page)
        page.click("button:has-text('Save')")
        page.wait_for_selector("text=Saved.")
        page.click("nav.crumbs a >> nth=-1")
        page.wait_for_selector("text=Customer list")
        check(page)
        page.click("th a")
        page.click("text=Delete webhook")
        check(page)
        page.click("button:has-text('Delete')")
        page.wait_for_selector("text=Webhook deleted.")
