"""What is entered in a form survives a sign-in, in Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import Factory
from tests.support.browser import sign_in

pytestmark = [pytest.mark.live, pytest.mark.browser]


def test_form_has_what_was_entered_before_the_session_ended(pages: Any, make: Factory, acme: Any) -> None:
    """It is shown to the same user only, once, and without anything confidential."""
    developer, other = (
        make.user(acme, email=email, role="developer") for email in ("dev@acme.example", "ops@acme.example")
    )
    page = pages.open(f"/portal/{acme.slug}")
    pages.sign_in(developer)

    def send() -> None:
        page.goto(f"{pages.base}/portal/{acme.slug}/clients/new?type=web")
        page.fill("#name", "Shop")
        page.fill("#redirect_uris", "shop.example")
        page.click("main form[method=post] .primary")
        # The link changes the URL of the page.
        page.click("#errors a")
        page.fill("#redirect_uris", "https://shop.example/cb\nhttps://shop.example/cb2")
        page.context.clear_cookies(name=make.cookie_name(acme))
        page.click("main form[method=post] .primary")
        page.wait_for_selector("#unsaved")

    send()
    sign_in(page, developer.email)
    assert page.is_visible("#not-saved")
    assert page.input_value("#name") == "Shop"
    assert page.input_value("#redirect_uris") == "https://shop.example/cb\nhttps://shop.example/cb2"
    page.reload()
    assert page.is_hidden("#not-saved") and page.input_value("#name") == ""

    send()
    sign_in(page, other.email)
    assert page.is_hidden("#not-saved") and page.input_value("#name") == ""
    assert page.evaluate("sessionStorage.length") == 0

    page.goto(f"{pages.base}/portal/{acme.slug}/inspect")
    page.fill("#token", "gth_at_secret")
    page.context.clear_cookies(name=make.cookie_name(acme))
    page.click("main form[method=post] .primary")
    page.wait_for_selector("#unsaved")
    assert "gth_at_secret" not in page.evaluate("sessionStorage.getItem('entered')")


def test_form_that_was_submitted_again_is_not_called_unsaved(pages: Any, make: Factory, acme: Any) -> None:
    """Its page has an older version of what was changed since."""
    page = pages.open("account/profile")
    pages.sign_in(make.user(acme))
    page.fill("#name", "Ada King")
    page.context.clear_cookies(name="gatehouse")
    page.click("main form[method=post] .primary")
    page.click("#resend")
    page.wait_for_url("**/account/profile")
    assert page.input_value("#name") == "Ada King" and page.is_hidden("#not-saved")


def test_page_that_only_asks_has_nothing_to_restore(pages: Any, make: Factory, acme: Any) -> None:
    admin = make.user(acme, role="admin")
    page = pages.open(f"/portal/{acme.slug}/users/{make.user(acme).public_id}/disable")
    pages.sign_in(admin)
    page.context.clear_cookies(name=make.cookie_name(acme))
    page.click("main form[method=post] button")
    page.wait_for_selector("#unsaved")
    sign_in(page, admin.email)
    page.wait_for_url("**/disable")
    assert page.is_hidden("#not-saved")
