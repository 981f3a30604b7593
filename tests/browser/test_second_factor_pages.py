"""Second-factor pages in Chromium: light and dark, wide and narrow, under the real CSP."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.organizations.settings import update_settings
from tests.browser.conftest import Pages
from tests.factories import Factory
from tests.support.authenticator import Authenticator
from tests.support.browser import NARROW, check, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.fixture
def ada(make: Factory, acme: Any) -> Any:
    return make.user(acme, email="ada@acme.example", role="admin")


def app_on(pages: Pages, user: Any, server: Any) -> Authenticator:
    """Return an authenticator app set up with the key shown on the page."""
    pages.page.click("summary:has-text('Enter the key instead')")
    return Authenticator(server.app, user, pages.page.inner_text("#app-key").replace(" ", ""))


def test_app_is_set_up_used_and_replaced_by_a_recovery_code(
    pages: Pages, ada: Any, acme: Any, live_server: Any, make: Factory
) -> None:
    """MF-2, MF-4, MF-6: from the requirement to the download, without scripts."""
    document = {"authentication": {"mfa": {"policy": "required", "grace_period_seconds": 0}}}
    with live_server.app.app_context():
        update_settings(make.system(acme), acme.slug, document)
    page = pages.open("login")
    pages.sign_in(ada)
    page.wait_for_selector("#enrol-now")
    box = page.locator("svg.qr").bounding_box()
    assert box and 150 < box["width"] == box["height"]
    phone = app_on(pages, ada, live_server)
    page.fill("#code", phone.shown())
    page.click("#enrol-submit")
    page.wait_for_selector("#recovery-codes")
    with page.expect_download() as download:
        page.click("#codes-download")
    kept = download.value.path().read_text().split("\n")
    assert download.value.suggested_filename == f"recovery-codes-{acme.slug}.txt" and len(kept) == 13
    assert kept[0] == f"Recovery codes for {ada.email} at {acme.name}" == page.inner_text("#codes-for")
    page.click("#codes-kept")
    page.wait_for_url(f"**/portal/{acme.slug}")
    page.context.clear_cookies()
    pages.open("login")
    pages.sign_in(ada)
    page.fill("#code", phone.code())
    page.click("#verify-submit")
    page.wait_for_url(f"**/portal/{acme.slug}")
    page.context.clear_cookies()
    pages.open("login")
    pages.sign_in(ada)
    page.click("#use-recovery")
    page.fill("#code", kept[2])
    page.click("#verify-submit")
    page.wait_for_url(f"**/portal/{acme.slug}")


def test_every_page_is_accessible_and_fits_its_screen(
    chromium: Any, ada: Any, acme: Any, live_server: Any, make: Factory
) -> None:
    with watched(chromium, **NARROW) as context:
        page = context.new_page()
        pages = Pages(page, live_server.url, acme)
        pages.open("login")
        pages.sign_in(ada)
        page.wait_for_url("**/portal/**")
        check(pages.open("account/security"))
        check(pages.open("account/security/app"))
        phone = app_on(pages, ada, live_server)
        page.fill("#code", "000000")
        page.click("#app-confirm")
        page.wait_for_selector("#errors")
        check(page)
        page.fill("#code", phone.shown())
        page.click("#app-confirm")
        page.wait_for_selector("#recovery-codes")
        check(page)
        for path in ("security", "security/app/remove", "security/recovery-codes"):
            check(pages.open(f"account/{path}"))
        check(pages.open(f"/portal/{acme.slug}/users/{ada.public_id}"))
        check(pages.open(f"/portal/{acme.slug}/users/{ada.public_id}/second-factors/reset"))
        check(pages.open(f"/portal/{acme.slug}/settings/mfa"))
        context.clear_cookies()
        pages.open("login")
        pages.sign_in(ada)
        page.wait_for_selector("#verify-submit")
        check(page)
        page.fill("#code", "000000")
        page.click("#verify-submit")
        page.wait_for_selector("#refusal")
        check(page)
        page.click("#use-recovery")
        page.wait_for_selector("text=Recovery code")
        check(page)
