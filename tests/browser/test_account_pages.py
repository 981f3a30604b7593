"""Sign-in, consent and account pages in Chromium: forms, real headers, keyboard and narrow screens."""

from __future__ import annotations

import secrets
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.browser.conftest import Pages
from tests.factories import PASSWORD, Factory
from tests.support.browser import NARROW, looks, watched

pytestmark = [pytest.mark.live, pytest.mark.browser]
NEW = "nine small otters in a kiln"
ACCOUNT_PAGES = ("profile", "apps", "sessions", "password", "activity")


def authorize(client: Any, redirect_uri: str, **more: str) -> str:
    """Return the path and query of an authorization request."""
    challenge = urlsafe_b64encode(sha256(secrets.token_bytes(32)).digest()).rstrip(b"=").decode()
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "scope": "openid profile email offline_access",
        "state": "a state, with spaces",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    return f"/oauth/authorize?{urlencode(parameters | more)}"


def test_user_signs_in_and_out(pages: Pages, ada: Any) -> None:
    page = pages.open("login")
    pages.sign_in(ada, "wrong")
    assert "9 attempts left" in page.inner_text("#refusal")
    assert page.input_value("#username") == ada.email
    assert page.input_value("#password") == ""
    pages.sign_in(ada)
    page.wait_for_url("**/account/profile")
    page.click("text=Sign out")
    page.wait_for_selector("#logged-out")


def test_every_account_form_is_accepted(pages: Pages, make: Factory, ada: Any) -> None:
    """CF-2: the origin check accepts every form under the real Referrer-Policy and CSP."""
    page = pages.open("login")
    pages.sign_in(ada)
    page.wait_for_url("**/profile")
    page.fill("#name", "Ada King")
    page.click("text=Save")
    page.wait_for_selector("[role=status]")
    assert page.input_value("#name") == "Ada King"
    make.sign_in(ada)
    pages.open("account/sessions")
    page.click("text=Sign out all other browsers")
    page.wait_for_selector("text=You were signed out of all other browsers")
    pages.open("account/password")
    page.fill("#current_password", PASSWORD)
    page.fill("#new_password", NEW)
    page.click("#password-change")
    page.wait_for_selector("text=Password changed. You were signed out")
    pages.open("logout")
    page.click("#logout-confirm")
    page.wait_for_selector("#logged-out")


@pytest.fixture
def native_app() -> Iterator[str]:
    """The redirect URI of an app on this device, which waits for its code and answers 501."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/callback"
        server.shutdown()


@pytest.mark.parametrize("kind", ["web", "native"])
def test_sign_in_and_consent_redirect_to_a_client_on_another_origin(
    pages: Pages, make: Factory, acme: Any, ada: Any, kind: str, native_app: str
) -> None:
    """The CSP must allow the whole chain of forms and redirects."""
    redirect_uri = "https://calendarbot.example/callback?keep=1" if kind == "web" else native_app
    method = {"token_endpoint_auth_method": "none"} if kind == "native" else {}
    client = make.client(acme, name="Calendar Bot", type=kind, redirect_uris=[redirect_uri], **method)
    page = pages.open(authorize(client, redirect_uri))
    assert "to continue to Calendar Bot" in page.inner_text("main")
    pages.sign_in(ada)
    page.wait_for_selector("#consent-allow")
    text = page.inner_text("main")
    assert "Calendar Bot wants to use your Acme account" in text
    assert "Not reviewed by Acme" in text
    assert ("calendarbot.example" in text) == (kind == "web")
    assert ("return to an app on this device" in text) == (kind == "native")
    page.click("#consent-allow")
    page.wait_for_url(f"{redirect_uri}*")
    query = parse_qs(urlsplit(page.url).query)
    assert query["code"][0].startswith("gth_ac_")
    assert query["state"] == ["a state, with spaces"]
    assert query["iss"] == [acme.issuer]


def test_custom_uri_scheme_receives_its_code(pages: Pages, make: Factory, acme: Any, ada: Any) -> None:
    redirect_uri = "com.example.orchard:/callback"
    client = make.client(
        acme, name="Orchard", type="native", redirect_uris=[redirect_uri], token_endpoint_auth_method="none"
    )
    pages.open(authorize(client, redirect_uri))
    pages.sign_in(ada)
    pages.page.wait_for_selector("#consent-allow")
    with pages.page.expect_response(lambda answer: "/decision" in answer.url) as decided:
        pages.page.click("#consent-allow")
    assert decided.value.status == 303
    assert decided.value.headers["location"].startswith(f"{redirect_uri}?code=gth_ac_")


def test_cancel_returns_access_denied_to_the_client(pages: Pages, make: Factory, acme: Any, ada: Any) -> None:
    redirect_uri = "https://calendarbot.example/callback"
    client = make.client(acme, name="Calendar Bot", redirect_uris=[redirect_uri])
    pages.open(authorize(client, redirect_uri))
    pages.sign_in(ada)
    pages.page.click("#consent-deny")
    pages.page.wait_for_url(f"{redirect_uri}*")
    assert parse_qs(urlsplit(pages.page.url).query)["error"] == ["access_denied"]


def test_not_you_switches_to_another_sign_in(pages: Pages, make: Factory, acme: Any, ada: Any) -> None:
    grace = make.user(acme, email="grace@acme.example", name="Grace")
    redirect_uri = "https://calendarbot.example/callback"
    client = make.client(acme, name="Calendar Bot", redirect_uris=[redirect_uri])
    page = pages.open(authorize(client, redirect_uri))
    pages.sign_in(ada)
    page.click("text=Not you?")
    pages.sign_in(grace)
    page.wait_for_selector("#consent-allow")
    assert "grace@acme.example" in page.inner_text("main")


def test_connected_app_is_listed_and_removed(pages: Pages, make: Factory, acme: Any, ada: Any) -> None:
    redirect_uri = "https://calendarbot.example/callback"
    client = make.client(acme, name="Calendar Bot", redirect_uris=[redirect_uri])
    page = pages.open(authorize(client, redirect_uri))
    pages.sign_in(ada)
    page.click("#consent-allow")
    page.wait_for_url(f"{redirect_uri}*")
    pages.open("account/apps")
    page.click("a.btn.danger")
    page.click("#app-remove")
    page.wait_for_selector("text=No connected apps")


def test_two_organizations_work_in_one_browser(pages: Pages, make: Factory, ada: Any) -> None:
    globex = make.organization(name="Globex")
    bob = make.user(globex, email="bob@globex.example", name="Bob")
    page = pages.open("login")
    pages.sign_in(ada)
    pages.open(f"/organizations/{globex.slug}/login")
    pages.sign_in(bob)
    pages.open("/login")
    assert page.locator("ul.list li").count() == 2
    pages.open(f"/organizations/{globex.slug}/logout")
    page.click("#logout-confirm")
    page.wait_for_selector("#logged-out")
    pages.open("account/profile")
    assert "ada@acme.example" in page.inner_text("main")


def test_user_signs_in_by_keyboard_only(pages: Pages, ada: Any) -> None:
    page = pages.open("login")
    page.wait_for_selector("#username:focus")
    page.keyboard.type(ada.email)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "password"
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/profile")


@pytest.mark.parametrize("scripts", [True, False])
def test_every_page_is_accessible_and_fits_its_screen(
    chromium: Any, live_server: Any, ada: Any, scripts: bool
) -> None:
    """Reflow at 320 px (WCAG 1.4.10), targets of 24 px (2.5.8), labels, one heading, no CSP violation."""
    with watched(chromium, java_script_enabled=scripts, **NARROW) as context:
        pages = Pages(context.new_page(), live_server.url, ada.organization)
        for path in ("/login", "/login?organization=nobody", "login", "/nothing"):
            _check(pages.open(path))
        pages.open("login")
        pages.sign_in(ada, "wrong")
        pages.page.wait_for_selector("#refusal")
        _check(pages.page)
        pages.sign_in(ada)
        pages.page.wait_for_url("**/profile")
        for name in ACCOUNT_PAGES:
            _check(pages.open(f"account/{name}"))
        _check(pages.open("logout"))


_CHECK = """() => {
  const visible = (element) => element.getClientRects().length && getComputedStyle(element).clipPath === 'none'
  const small = [...document.querySelectorAll('button, .btn, input:not([type=hidden]), select, nav a')]
    .filter(visible).filter((element) => element.getBoundingClientRect().height < 24)
  const nameless = [...document.querySelectorAll('input:not([type=hidden])')].filter(visible)
    .filter((element) => !element.labels.length)
  return {
    width: document.documentElement.scrollWidth,
    headings: document.querySelectorAll('h1').length,
    small: small.map((element) => element.outerHTML),
    nameless: nameless.map((element) => element.outerHTML),
    lang: document.documentElement.lang,
    inline: document.querySelectorAll('[style], style, script:not([src])').length,
  }
}"""


def _check(page: Any) -> None:
    for look in looks(page):
        found = page.evaluate(_CHECK)
        assert found["width"] <= page.viewport_size["width"], (page.url, look)
        assert (found["headings"], found["lang"], found["inline"]) == (1, "en", 0), (page.url, look)
        assert found["small"] == [], (page.url, look)
        assert found["nameless"] == [], (page.url, look)
