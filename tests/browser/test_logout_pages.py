"""Logout in Chromium: confirmation, the redirect to the app, and cross-site forms."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from app.operations.grants import signing_keys
from tests.browser.conftest import Pages
from tests.factories import Factory
from tests.support.form_browser import FormBrowser

pytestmark = [pytest.mark.live, pytest.mark.browser]
CALLBACK = "https://orchard.example/callback"
BACK = "https://orchard.example/signed-out"


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization(name="Acme", settings={"oauth": {"signing": {"algorithm": "ES256"}}})


@pytest.fixture
def ada(make: Factory, acme: Any) -> Any:
    return make.user(acme)


@pytest.fixture
def orchard(make: Factory, acme: Any) -> Any:
    return make.client(acme, trust="first_party", redirect_uris=[CALLBACK], post_logout_redirect_uris=[BACK])


@pytest.fixture
def pages(page: Any, live_server: Any, acme: Any, ada: Any) -> Pages:
    """Navigation through the pages; ada is signed in."""
    made = Pages(page, live_server.url, acme)
    made.open("login")
    made.sign_in(ada)
    page.wait_for_url("**/account**")
    return made


def id_token(make: Factory, user: Any, client: Any) -> str:
    """Return an ID token of the user for the client."""
    claims = {"iss": user.organization.issuer, "aud": client.client_id, "sub": user.public_id}
    claims |= {"iat": 1, "exp": 2, "auth_time": 1, "at_hash": "x"}
    with make.app.app_context():
        return signing_keys.sign_jwt(user.organization, "ES256", claims, token_type="JWT")


def test_confirmation_names_the_client_and_signs_out(pages: Pages, ada: Any, orchard: Any) -> None:
    """CF-4."""
    page = pages.open(f"/oauth/logout?{urlencode({'client_id': orchard.client_id})}")
    assert page.locator("h1").inner_text() == "Sign out of Acme?"
    assert "Orchard is asking to sign you out" in page.locator("main").inner_text()
    assert ada.email in page.locator("main").inner_text()
    page.click("#logout-confirm")
    page.wait_for_selector("#logged-out")
    pages.open("account/profile")
    page.wait_for_selector("#login-submit")


def test_confirmed_logout_redirects_to_the_app_under_the_real_headers(
    pages: Pages, make: Factory, acme: Any, orchard: Any
) -> None:
    """The form ends with a redirect to another site, which form-action would have blocked silently."""
    hint = id_token(make, make.user(acme), orchard)
    sent = {"id_token_hint": hint, "post_logout_redirect_uri": BACK, "state": "a state"}
    page = pages.open(f"/oauth/logout?{urlencode(sent)}")
    page.click("#logout-confirm")
    page.wait_for_url("https://orchard.example/**")
    assert page.url == f"{BACK}?state=a%20state"


def test_cross_site_form_signs_out_without_cookies(
    pages: Pages, make: Factory, ada: Any, orchard: Any
) -> None:
    """SameSite=Lax withholds the cookie from the POST; the browser sends it when it follows our redirect."""
    hint = id_token(make, ada, orchard)
    page = pages.page
    form = f"""
      <form method="post" action="{pages.base}/oauth/logout"><input name="id_token_hint" value="{hint}">
      <input name="post_logout_redirect_uri" value="{BACK}"><button id="leave">Leave</button></form>"""
    page.route(
        "https://orchard.example/leave",
        lambda route: route.fulfill(status=200, content_type="text/html", body=form),
    )
    page.goto("https://orchard.example/leave")
    page.click("#leave")
    page.wait_for_url("https://orchard.example/signed-out**")
    assert page.url == BACK
    pages.open("account/profile")
    page.wait_for_selector("#login-submit")


def test_user_can_stay_signed_in(pages: Pages, orchard: Any) -> None:
    page = pages.open(f"/oauth/logout?{urlencode({'client_id': orchard.client_id})}")
    page.click("text=Stay signed in")
    page.wait_for_url("**/account**")


def test_logout_works_without_scripts(live_server: Any, acme: Any, ada: Any, orchard: Any) -> None:
    visitor = FormBrowser(live_server.url)
    page = visitor.visit(f"/organizations/{acme.slug}/login")
    visitor.sign_in(page, ada.email, ada.password)
    page = visitor.press(visitor.visit(f"/oauth/logout?client_id={orchard.client_id}"), "logout-confirm")
    assert page.has("logged-out")
