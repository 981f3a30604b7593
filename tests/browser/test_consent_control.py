"""Consent choices in Chromium: expiry, optional scopes, changed apps and approval; keyboard, narrow, dark."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.operations.clients.clients import update_client
from tests.browser.conftest import Pages
from tests.browser.test_account_pages import authorize
from tests.factories import Factory
from tests.support.browser import NARROW, check, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]
CALLBACK = "https://orchard.example/callback"
# Whether the middle of the element with the focus is not below another one (WCAG 2.4.11).
_IS_IN_VIEW = """() => {
  const {left, top, width, height} = document.activeElement.getBoundingClientRect()
  return document.activeElement.contains(document.elementFromPoint(left + width / 2, top + height / 2))
}"""


@pytest.fixture
def orchard(make: Factory, acme: Any) -> Any:
    return make.client(
        acme,
        name="Orchard",
        optional_scopes=["email", "offline_access"],
        redirect_uris=[CALLBACK],
        policy_uri="https://orchard.example/privacy",
    )


def change(make: Factory, acme: Any, client: Any, **fields: Any) -> None:
    with make.app.app_context():
        update_client(make.actor(acme), client.client_id, fields)


def test_consent_works_by_keyboard_only(pages: Pages, ada: Any, orchard: Any) -> None:
    """CO-1: Tab, Space, arrows and Enter; optional scopes start unchecked."""
    page = pages.open(authorize(orchard, CALLBACK))
    pages.sign_in(ada)
    page.wait_for_selector("#consent-allow")
    page.set_viewport_size({"width": 320, "height": 180})  # 1280 by 720 pixels at 400 %
    assert "Required" in page.inner_text("li:has(#scope-openid)")
    assert not page.is_checked("#scope-email") and not page.is_checked("#scope-offline_access")
    assert page.input_value("#lasts") == "until_removed"
    for _ in range(30):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.id")
        assert page.evaluate(_IS_IN_VIEW), f"{focused} is covered"
        if focused == "scope-email":
            page.keyboard.press("Space")
        if focused == "lasts":
            page.keyboard.press("Home")
        if focused == "consent-allow":
            break
    assert page.is_checked("#scope-email") and page.input_value("#lasts") == "today"
    page.keyboard.press("Enter")
    page.wait_for_url("https://orchard.example/**")
    assert "code" in parse_qs(urlsplit(page.url).query)
    page = pages.open("account/apps")
    assert "expires in 24 hours" in page.inner_text(".list") and "email" in page.inner_text(".list")


def test_changed_app_shows_what_is_different(
    pages: Pages, make: Factory, acme: Any, ada: Any, orchard: Any
) -> None:
    page = pages.open(authorize(orchard, CALLBACK))
    pages.sign_in(ada)
    page.click("#consent-allow")
    page.wait_for_url("https://orchard.example/**")
    change(make, acme, orchard, name="Your Bank", tos_uri="https://orchard.example/terms")
    page = pages.open(authorize(orchard, CALLBACK))
    words = page.inner_text("#client-changes")
    assert "The name (was Orchard)" in words and "The terms of service" in words
    assert page.inner_text("h1") == "Your Bank wants to use your Acme account"


def test_member_requests_approval_and_continues_after_it(
    chromium: Any, live_server: Any, pages: Pages, make: Factory, acme: Any, ada: Any, orchard: Any
) -> None:
    change(make, acme, orchard, approval="review")
    page = pages.open(authorize(orchard, CALLBACK))
    pages.sign_in(ada)
    page.fill("#reason", "To plan the harvest")
    page.click("#client-request-send")
    page.wait_for_selector("#client-request-waiting")
    page.click("#consent-deny")
    page.wait_for_url("https://orchard.example/**")
    assert parse_qs(urlsplit(page.url).query)["error"] == ["access_denied"]
    boss = make.user(acme, role="admin")
    with watched(chromium) as context:
        admin = Pages(context.new_page(), live_server.url, acme)
        desk = admin.open(f"/portal/{acme.slug}/client-requests")
        admin.sign_in(boss)
        desk.wait_for_selector("text=To plan the harvest")
        desk.click(f"[aria-label='Approve Orchard for {ada.email}']")
        desk.check("#verified")
        desk.click("#request-approve")
        desk.wait_for_selector("text=Client approved")
    page = pages.open(authorize(orchard, CALLBACK))
    assert "Reviewed by Acme" in page.inner_text("main")
    page.click("#consent-allow")
    page.wait_for_url("https://orchard.example/**")


def test_every_page_is_accessible_and_fits_its_screen(
    chromium: Any,
    live_server: Any,
    make: Factory,
    acme: Any,
    ada: Any,
    orchard: Any,
) -> None:
    """Consent, changes, approval request, queue, decision, and the client's own tab."""
    long_name = "A Calendar and Harvest Planning Robot for the Whole Cooperative"
    other = make.client(acme, name=long_name, redirect_uris=[CALLBACK])
    change(make, acme, other, approval="review")
    boss = make.user(acme, role="admin")
    with watched(chromium, **NARROW) as context:
        page = context.new_page()
        pages = Pages(page, live_server.url, acme)
        pages.open(authorize(orchard, CALLBACK))
        pages.sign_in(ada)
        page.wait_for_selector("#consent-allow")
        check(page)
        page.select_option("#lasts", "today")
        page.click("#consent-allow")
        page.wait_for_url("https://orchard.example/**")
        change(
            make, acme, orchard, name="Orchard Two", logo_uri=None, redirect_uris=[CALLBACK, f"{CALLBACK}/2"]
        )
        pages.open(authorize(orchard, CALLBACK))
        check(page)
        pages.open("account/apps")
        check(page)
        pages.open(authorize(other, CALLBACK))
        check(page)
        page.fill("#reason", "To plan the harvest, " * 10)
        page.click("#client-request-send")
        page.wait_for_selector("#client-request-waiting")
        check(page)
        page.context.clear_cookies()
        pages.open(f"/portal/{acme.slug}/client-requests")
        pages.sign_in(boss)
        page.wait_for_selector("table")
        check(page)
        page.click(f"[aria-label='Approve {long_name} for {ada.email}']")
        page.wait_for_selector("#request-approve")
        check(page)
        pages.open(f"/portal/{acme.slug}/clients/{other.client_id}/access")
        check(page)
        change(make, acme, other, approval="blocked")
        pages.open(authorize(other, CALLBACK))
        assert "This app is blocked" in page.inner_text("main")
        check(page)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (320, 568)])
def test_cancel_and_allow_are_in_view_on_a_phone(
    chromium: Any, live_server: Any, acme: Any, ada: Any, make: Factory, width: int, height: int
) -> None:
    """Without scrolling, also with many permissions."""
    client = make.client(
        acme,
        name="Orchard",
        scopes=["openid", "profile", "email", "offline_access"],
        redirect_uris=[CALLBACK],
    )
    with watched(chromium, viewport={"width": width, "height": height}) as context:
        pages = Pages(context.new_page(), live_server.url, acme)
        page = pages.open(authorize(client, CALLBACK))
        pages.sign_in(ada)
        page.wait_for_selector("#consent-allow")
        for button in ("#consent-allow", "#consent-deny"):
            box = page.locator(button).bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= height, (button, box)
            assert box["height"] >= 24 and box["x"] >= 0 and box["x"] + box["width"] <= width
