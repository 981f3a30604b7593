"""Device pages and the failed-request log in Chromium: narrow, dark, keyboard, without scripts."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.factories import PASSWORD, Factory
from tests.oauth.device import GRANT
from tests.support.browser import NARROW, check, sign_in, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.fixture
def television(make: Factory, acme: Any) -> Any:
    fields = {"type": "device", "redirect_uris": [], "token_endpoint_auth_method": "none"}
    return make.client(acme, name="Television in the living room", scopes=["openid", "profile"], **fields)


def ask(live_server: Any, client: Any) -> dict[str, Any]:
    form = {"client_id": client.client_id, "scope": "openid profile"}
    answer = requests.post(f"{live_server.url}/oauth/device_authorization", data=form, timeout=60)
    assert answer.ok, answer.text
    return dict(answer.json())


def poll(live_server: Any, client: Any, codes: dict[str, Any]) -> requests.Response:
    form = {"grant_type": GRANT, "device_code": codes["device_code"], "client_id": client.client_id}
    return requests.post(f"{live_server.url}/oauth/token", data=form, timeout=60)


def is_dark(page: Any) -> bool:
    """Return whether the page uses the dark color scheme."""
    color = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return sum(int(part) for part in color.removeprefix("rgb(").rstrip(")").split(",")) < 150


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_user_approves_a_device_on_a_narrow_dark_screen(
    chromium: Any, live_server: Any, make: Factory, acme: Any, television: Any, scripts: bool
) -> None:
    """DV-1: from the link on the device to the tokens, through sign-in and back."""
    user = make.user(acme)
    codes = ask(live_server, television)
    with watched(chromium, **NARROW, java_script_enabled=scripts) as browser:
        page = browser.new_page()
        page.goto(codes["verification_uri_complete"])
        sign_in(page, user.email)
        page.wait_for_selector("#user-code")
        assert page.input_value("#user-code") == codes["user_code"]
        check(page, audited=False)
        assert is_dark(page)
        page.click("#device-find")
        assert page.inner_text("#device-client") == "Television in the living room"
        assert page.inner_text("#device-address") == "127.0.0.1"
        check(page, audited=False)
        page.click("#device-continue")
        page.wait_for_selector("#consent-allow")
        check(page, audited=False)
        page.click("#consent-allow")
        page.wait_for_selector("#device-allowed")
        check(page, audited=False)
    assert poll(live_server, television, codes).status_code == 200


def test_device_code_entry_works_by_keyboard_and_forgives_formatting(
    page: Any, live_server: Any, make: Factory, acme: Any, television: Any
) -> None:
    user = make.user(acme)
    codes = ask(live_server, television)
    page.goto(codes["verification_uri"])
    page.wait_for_selector("#username:focus")
    page.keyboard.type(user.email)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("#user-code:focus")
    page.keyboard.type(codes["user_code"].lower().replace("-", " "))
    page.keyboard.press("Enter")
    page.wait_for_selector("#device-stop")
    page.focus("#device-stop")
    page.keyboard.press("Enter")
    page.wait_for_selector("#device-denied")
    assert poll(live_server, television, codes).json()["error"] == "access_denied"


def test_developer_finds_and_fixes_a_failed_request(
    chromium: Any, live_server: Any, make: Factory, acme: Any
) -> None:
    """From the error page to the log entry, written by a worker thread, to the fix."""
    admin = make.user(acme, role="admin")
    client = make.client(acme, redirect_uris=["https://orchard.example/callback"])
    address = (
        f"{live_server.url}/oauth/authorize?client_id={client.client_id}&response_type=code"
        "&redirect_uri=https://orchard.example/callback/"
    )
    with watched(chromium, **NARROW) as browser:
        page = browser.new_page()
        page.goto(f"{live_server.url}/organizations/{acme.slug}/login")
        sign_in(page, admin.email)
        page.wait_for_url("**/portal/**")
        page.goto(address)
        page.click("#inspect")
        # The page of the request looks again until a worker thread has written the entry.
        page.wait_for_selector("#received mark")
        assert page.inner_text("#received mark") == "/"
        check(page, audited=False)
        assert is_dark(page)
        page.click("button:has-text('Add redirect URI')")
        page.wait_for_selector("text=Fixed. The change is live.")
        for path in ("", "?view=all", "?view=all&cause=redirect_uri_not_registered&period=week"):
            page.goto(f"{live_server.url}/portal/{acme.slug}/logs{path}")
            page.wait_for_selector("text=sent a redirect URI that is not registered")
            check(page)
    answer = requests.get(address, allow_redirects=False, timeout=60)
    assert answer.headers["Location"].startswith("https://orchard.example/callback/?error=")
