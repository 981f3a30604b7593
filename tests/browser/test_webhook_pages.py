"""Webhooks in a real Chromium: added, tried out, looked into and deleted, wide and narrow, light and dark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.factories import PASSWORD, Factory
from tests.support.browser import watched

pytestmark = [pytest.mark.live, pytest.mark.browser]
LOOKS = {
    "wide and light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "narrow and dark": {"viewport": {"width": 320, "height": 720}, "color_scheme": "dark"},
    "narrow without scripts": {"viewport": {"width": 320, "height": 720}, "java_script_enabled": False},
    "wide and dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
}


class Visit:
    """A page that has to fit its window, wherever it leads."""

    def __init__(self, page: Any, look: str) -> None:
        self.page, self.look, self.seen = page, look.replace(" ", "-"), 0

    def check(self) -> None:
        """It fits its screen (WCAG 1.4.10), and axe finds nothing; a picture is kept where somebody asks for one."""
        self.seen += 1
        width = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert self.page.evaluate(width), self.page.url
        if "without" not in self.look:
            self.page.evaluate(AXE_SCRIPT)
            found = self.page.evaluate("axe.run().then(found => found.violations)")
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], self.page.url
        folder = os.environ.get("GATEHOUSE_PICTURES")
        if folder:
            self.page.screenshot(path=Path(folder) / f"{self.look}-{self.seen}.png", full_page=True)


@pytest.mark.parametrize("look", LOOKS)
def test_an_administrator_adds_tries_and_deletes_a_webhook(
    chromium: Any, live_server: Any, look: str
) -> None:
    make = Factory(live_server.app)
    acme = make.organization(name="Acme")
    user = make.user(acme, role="admin")
    with watched(chromium, **LOOKS[look]) as browser:
        page = browser.new_page()
        visit = Visit(page, look)
        page.goto(f"{live_server.url}/portal/{acme.slug}/webhooks")
        page.fill("#username", user.email)
        page.fill("#password", PASSWORD)
        page.click("#login-submit")
        page.wait_for_selector("text=No webhooks yet")
        visit.check()
        page.click("text=Add the first webhook")
        page.fill("#url", "https://[2001:db8::1]/hooks")
        page.check("input[value='user.*']")
        page.click("button:has-text('Add')")
        page.wait_for_selector("#errors")
        visit.check()
        page.fill(
            "#url", "https://hooks.invalid/a/very/long/address/that/has/to/be/broken/somewhere?tenant=acme"
        )
        page.fill("#description", "Customer list")
        page.fill("#event_types", "client.deleted")
        page.click("button:has-text('Add')")
        assert page.inner_text("#signing-secret").startswith("whsec_")
        visit.check()
        page.click("text=Done")
        page.wait_for_selector("text=It was told nothing yet")
        page.click("text=Send a test event")
        page.wait_for_selector("text=It is on its way.")
        visit.check()
        # The name leads nowhere: the attempt fails, and the page says so.
        for _ in range(40):
            if page.query_selector("#fault"):
                break
            page.wait_for_timeout(250)
            page.reload()
        assert page.inner_text("#fault") == "The server's name was not found."
        visit.check()
        page.click("nav.crumbs a >> nth=-1")
        page.wait_for_selector("#deliveries")
        assert "webhook.test" in page.inner_text("#deliveries")
        visit.check()
        page.click("text=New signing secret")
        visit.check()
        page.click("text=Cancel")
        page.click("main a:has-text('Edit')")
        page.uncheck("#is_enabled")
        visit.check()
        page.click("text=Save")
        page.wait_for_selector("text=Saved.")
        page.click("nav.crumbs a >> nth=-1")
        page.wait_for_selector("text=Customer list")
        visit.check()
        page.click("th a")
        page.click("text=Delete…")
        visit.check()
        page.click("button:has-text('Delete')")
        page.wait_for_selector("text=The webhook is deleted.")
