"""German pages in Chromium: long words fit the narrowest screen, and axe finds nothing, light and dark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import Pages
from tests.browser.test_account_pages import authorize
from tests.factories import Factory
from tests.support.browser import NARROW, check, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]
ACCOUNT = (
    *("profile", "apps", "sessions", "security", "security/app", "security/passkeys"),
    *("password", "activity", "email"),
)


def _check(page: Any) -> None:
    assert page.get_attribute("html", "lang") == "de"
    check(page)


def test_german_pages_fit(chromium: Any, live_server: Any, make: Factory) -> None:
    acme = make.organization(name="Donaudampfschifffahrtsgesellschaft")
    ada = make.user(acme, email="ada.lovelace@donaudampfschiffe.example")
    client = make.client(acme, name="Kalenderverwaltung", redirect_uris=["https://app.example/cb"])
    with watched(chromium, locale="de-AT", **NARROW) as context:
        pages = Pages(context.new_page(), live_server.url, acme)
        page = pages.open(authorize(client, "https://app.example/cb"))
        _check(page)
        pages.sign_in(ada, "not it at all")
        page.wait_for_selector("#refusal")
        _check(page)
        pages.sign_in(ada)
        page.wait_for_selector("#consent-allow")
        _check(page)
        for path in ACCOUNT:
            _check(pages.open(f"account/{path}"))
        for path in ("forgot", "logout", "/device", "/login"):
            _check(pages.open(path))
        context.clear_cookies()
        _check(pages.open("account/nowhere"))
