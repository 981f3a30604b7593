"""Two organizations in one browser: independent sessions in the portal and OAuth flows (TN-16)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import Pages
from tests.browser.test_account_pages import authorize
from tests.factories import Factory
from tests.support.browser import watched

pytestmark = [pytest.mark.live, pytest.mark.browser]
CALLBACKS = {"acme": "https://orchard.example/callback", "globex": "https://meadow.example/callback"}


def test_signing_out_of_one_organization_keeps_the_other_session(
    chromium: Any, live_server: Any, make: Factory
) -> None:
    """TN-16: the other's portal and apps continue; the one that was left requires a sign-in everywhere."""
    acme, globex = make.organization(name="Acme"), make.organization(name="Globex")
    ada, bob = make.user(acme, role="admin"), make.user(globex, role="admin")
    apps = {
        slug: make.client(organization, trust="first_party", redirect_uris=[CALLBACKS[slug]])
        for slug, organization in (("acme", acme), ("globex", globex))
    }
    with watched(chromium) as context:
        page = context.new_page()
        at_acme = Pages(page, live_server.url, acme)
        at_globex = Pages(page, live_server.url, globex)

        def reaches(app: str) -> bool:
            """Return whether the app gets a code from this browser without another sign-in."""
            asked = f"{live_server.url}{authorize(apps[app], CALLBACKS[app])}"
            answer = context.request.get(asked, max_redirects=0)
            assert answer.status == 303
            target = answer.headers["location"]
            assert target.startswith(CALLBACKS[app]) or "/login?" in target
            return target.startswith(CALLBACKS[app]) and "code=" in target

        for pages, user in ((at_acme, ada), (at_globex, bob)):
            pages.open(f"/portal/{user.organization.slug}")
            pages.sign_in(user)
            page.wait_for_selector("h1:has-text('Home')")
        # Each shows its own user; neither session is valid for the other.
        for user, other in ((ada, bob), (bob, ada)):
            page.goto(f"{live_server.url}/portal/{user.organization.slug}")
            assert user.email in page.content() and other.email not in page.content()
        switcher = page.locator(".switch")
        for close in (lambda: page.keyboard.press("Escape"), lambda: page.click("h1")):
            switcher.locator("summary").click()
            assert switcher.evaluate("it => it.open")
            close()
            assert not switcher.evaluate("it => it.open")
        assert reaches("acme") and reaches("globex")

        at_acme.open("account/profile")
        page.click("text=Sign out")
        page.wait_for_selector("#logged-out")

        page.goto(f"{live_server.url}/portal/{globex.slug}")
        assert page.inner_text("h1") == "Home" and bob.email in page.content()
        assert reaches("globex")
        page.goto(f"{live_server.url}/portal/{acme.slug}")
        page.wait_for_selector("#username")
        assert f"/organizations/{acme.slug}/login" in page.url
        assert not reaches("acme")

        # A new sign-in there changes nothing here.
        at_acme.sign_in(ada)
        page.wait_for_selector("h1:has-text('Home')")
        assert reaches("acme") and reaches("globex")
