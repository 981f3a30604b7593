"""The playground and the token inspector in Chromium: from registering a client to its token, and what it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.factories import Factory
from tests.support.browser import NARROW, check, sign_in, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_developer_registers_a_client_and_gets_a_token(
    chromium: Any, live_server: Any, scripts: bool
) -> None:
    """Wide with scripts, narrow and dark without."""
    make = Factory(live_server.app)
    acme = make.organization(name="Acme", settings={"oauth": {"signing": {"algorithm": "ES256"}}})
    user = make.user(acme, role="developer")
    look = {} if scripts else NARROW
    with watched(chromium, **look, java_script_enabled=scripts) as browser:
        page = browser.new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/clients/new?type=web")
        sign_in(page, user.email)
        page.fill("#name", "Orchard")
        page.fill("#redirect_uris", "https://orchard.example/callback")
        page.click("main button.primary")
        page.wait_for_selector("text=gth_cs_")
        page.goto(f"{live_server.url}/portal/{acme.slug}/playground")
        check(page, audited=scripts)
        page.select_option("#client", label="Orchard")
        page.click("#choose")
        check(page, audited=scripts)
        page.click("#build")
        page.wait_for_selector("#authorize-url")
        check(page, audited=scripts)
        page.click("#go")
        page.click("#consent-allow")
        page.wait_for_selector("text=state ✓")
        check(page, audited=scripts)
        page.click("button#token-verifier")
        page.wait_for_selector("text=invalid_grant")
        page.click("button#token")
        page.wait_for_selector("text=Signature ✓")
        assert page.inner_text("#step-id-token").count("✓") == 6
        page.click("button#userinfo")
        page.wait_for_selector(f"#step-next pre:has-text('{user.email}')")
        check(page, audited=scripts)
        token = re.search(r"gth_at_[\w-]+", page.content())
        assert token
        page.goto(f"{live_server.url}/portal/{acme.slug}/inspect")
        page.fill("#token", token[0])
        page.click("#inspect")
        page.wait_for_selector("text=Access token (opaque)")
        check(page, audited=scripts)
        assert page.inner_text("#result .badge") == "Valid"
        page.click("summary:has-text('Revoke this token')")
        page.click("button#revoke")
        page.wait_for_selector("text=Access token revoked.")
