"""German pages in a real Chromium: long words fit the narrowest screen, light and dark, and axe finds nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.browser.test_account_pages import Pages, authorize
from tests.factories import Factory
from tests.support.browser import watched

pytestmark = [pytest.mark.live, pytest.mark.browser]
ACCOUNT = (
    *("profile", "apps", "sessions", "security", "security/app", "security/passkeys"),
    *("password", "activity", "email"),
)
TOO_WIDE = """() => document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] :
    [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth)
        .map(e => e.outerHTML.slice(0, 200))"""


@pytest.fixture
def make(live_server: Any) -> Factory:
    return Factory(live_server.app)


def _check(page: Any, name: str) -> None:
    assert page.get_attribute("html", "lang") == "de"
    assert page.evaluate(TOO_WIDE) == [], name
    page.evaluate(AXE_SCRIPT)
    found = page.evaluate("() => axe.run()")["violations"]
    assert found == [], [(wrong["id"], wrong["nodes"][0]["html"]) for wrong in found]
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name.replace('/', '-')}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_german_pages_fit(chromium: Any, live_server: Any, make: Factory, scheme: Any, width: int) -> None:
    acme = make.organization(name="Donaudampfschifffahrtsgesellschaft")
    ada = make.user(acme, email="ada.lovelace@donaudampfschiffe.example")
    client = make.client(acme, name="Kalenderverwaltung", redirect_uris=["https://app.example/cb"])
    screen = {"width": width, "height": 700}
    with watched(chromium, locale="de-AT", color_scheme=scheme, viewport=screen) as context:
        pages = Pages(context.new_page(), live_server.url, acme)
        name = f"{width}-{scheme}"
        page = pages.open(authorize(client, "https://app.example/cb"))
        _check(page, f"{name}-login")
        pages.sign_in(ada, "not it at all")
        page.wait_for_selector("#refusal")
        _check(page, f"{name}-refused")
        pages.sign_in(ada)
        page.wait_for_selector("#consent-allow")
        _check(page, f"{name}-consent")
        for path in ACCOUNT:
            _check(pages.open(f"account/{path}"), f"{name}-{path}")
        for path in ("forgot", "logout", "/device", "/login"):
            _check(pages.open(path), f"{name}-{path.strip('/')}-page")
        context.clear_cookies()
        _check(pages.open("account/nowhere"), f"{name}-nowhere")
