"""Authorization requests in Chromium: form_post, account chooser, new accounts and logos."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html import escape
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from PIL import Image

from app.operations.clients import logos
from app.operations.store import clock
from app.operations.store.outbox import Message
from app.rules.identifiers import new_id
from tests.browser.conftest import Pages
from tests.browser.test_account_pages import authorize
from tests.factories import PASSWORD, Factory
from tests.support.back_channel import serve_at
from tests.support.browser import sign_in, watched
from tests.support.https_server import HttpsServer, Response, https_server, reaching

pytestmark = [pytest.mark.live, pytest.mark.browser]
CALLBACK = "https://orchard.example/callback"
# Whether the logo image was loaded and drawn, and its width.
DRAWN = "(({complete, naturalWidth}) => [complete, naturalWidth])(document.querySelector('img#client-logo'))"


@pytest.fixture
def acme(make: Factory) -> Any:
    open_to_all = {"registration": {"mode": "open", "verify_email": False}}
    return make.organization(name="Acme", settings={"authentication": open_to_all})


@pytest.fixture
def orchard(make: Factory, acme: Any) -> Any:
    links = {"policy_uri": "https://orchard.example/privacy", "tos_uri": "https://orchard.example/terms"}
    return make.client(acme, name="Orchard", trust="first_party", redirect_uris=[CALLBACK], **links)


@pytest.fixture
def logo_server(live_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpsServer]:
    """A server for the client's logo that the service may reach."""
    out = io.BytesIO()
    Image.new("RGB", (64, 64), (200, 30, 30)).save(out, "PNG")
    with https_server(
        lambda _request: Response(200, out.getvalue(), {"Content-Type": "image/png"})
    ) as server:
        settings = reaching(live_server.app.config["GATEHOUSE"], server)
        monkeypatch.setitem(live_server.app.config, "GATEHOUSE", settings)
        yield server


@pytest.fixture
def welcome() -> Iterator[str]:
    """The page that the client redirects to: a third origin on a real server, unlike an intercepted redirect."""
    page = Response(200, b"<title>welcome</title>", {"Content-Type": "text/html"})
    with https_server(lambda _request: page) as server:
        yield f"{server.base_url}/welcome"


def received(page: Any, welcome: str) -> list[dict[str, str]]:
    """Forms posted to the client's callback, which redirects to ``welcome``."""
    forms: list[dict[str, str]] = []

    def answer(route: Any) -> None:
        forms.append(
            dict(parse_qsl(route.request.post_data or "")) | {"origin": route.request.headers["origin"]}
        )
        route.fulfill(status=303, headers={"Location": welcome})

    page.route(re.compile(r"https://orchard\.example/callback"), answer)
    return forms


@pytest.mark.parametrize("scripts", [True, False])
def test_form_post_response_reaches_another_origin(
    chromium: Any, live_server: Any, acme: Any, orchard: Any, ada: Any, welcome: str, scripts: bool
) -> None:
    """Form Post Response Mode: by script or by its button, under our CSP, through the client's own redirect."""
    with watched(chromium, java_script_enabled=scripts) as context:
        page = context.new_page()
        pages = Pages(page, live_server.url, acme)
        forms = received(page, welcome)
        pages.open(authorize(orchard, CALLBACK, response_mode="form_post", state='say "hi" & <b>'))
        pages.sign_in(ada)
        if not scripts:
            page.click("#authorization-continue")
        page.wait_for_url(welcome)
    [form] = forms
    assert form["code"].startswith("gth_ac_")
    assert (form["state"], form["origin"]) == ('say "hi" & <b>', live_server.url)


def test_cross_site_form_request_finds_the_session(pages: Pages, orchard: Any, ada: Any) -> None:
    """SameSite=Lax withholds the cookies from the POST, but the user is not asked to sign in again."""
    pages.open("login")
    pages.sign_in(ada)
    pages.page.wait_for_url("**/account/profile")
    address = authorize(orchard, CALLBACK)
    fields = "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">'
        for name, value in parse_qsl(urlsplit(address).query)
    )
    form = f'<form method="post" action="{pages.base}/oauth/authorize">{fields}<button id="go">Go</button></form>'
    pages.page.route(
        "http://orchard.test/", lambda route: route.fulfill(status=200, content_type="text/html", body=form)
    )
    pages.page.goto("http://orchard.test/")
    pages.page.click("#go")
    pages.page.wait_for_url("https://orchard.example/**")
    assert "code" in parse_qs(urlsplit(pages.page.url).query)


def test_account_chooser_continues_or_switches(
    pages: Pages, make: Factory, acme: Any, orchard: Any, ada: Any
) -> None:
    """prompt=select_account."""
    page = pages.open("login")
    pages.sign_in(ada)
    page.wait_for_url("**/account/profile")
    pages.open(authorize(orchard, CALLBACK, prompt="select_account"))
    page.click("#account-continue")
    page.wait_for_url("https://orchard.example/**code=**")
    pages.open(authorize(orchard, CALLBACK, prompt="select_account"))
    page.click("#account-other")
    assert page.input_value("#username") == ""
    pages.sign_in(make.user(acme, email="eve@acme.example"))
    page.wait_for_url("https://orchard.example/**code=**")


def test_new_account_is_created_during_authorization(pages: Pages, orchard: Any) -> None:
    """prompt=create."""
    page = pages.open(authorize(orchard, CALLBACK, prompt="create", login_hint="new@acme.example"))
    assert page.input_value("#username") == "new@acme.example"
    page.fill("#name", "New Person")
    page.fill("#password", "short")
    page.click("#register-submit")
    page.wait_for_selector("#password-error")
    page.fill("#password", PASSWORD)
    page.click("#register-submit")
    page.wait_for_selector("#registered")
    sign_in(page, "new@acme.example")
    page.wait_for_url("https://orchard.example/**")


def test_signed_in_user_confirms_with_the_password(pages: Pages, orchard: Any, ada: Any) -> None:
    """prompt=login: the page names the account and the app with its policy and terms."""
    page = pages.open("login")
    pages.sign_in(ada)
    page.wait_for_url("**/account/profile")
    pages.open(authorize(orchard, CALLBACK, prompt="login"))
    page.wait_for_selector("#confirm")
    assert page.input_value("#username") == ada.email
    assert all(page.query_selector(f"#{name}") for name in ("client-logo", "client-policy", "client-tos"))
    page.fill("#password", PASSWORD)
    page.click("#login-submit")
    page.wait_for_url("https://orchard.example/**")


def test_client_logo_is_shown_on_sign_in_and_consent(
    pages: Pages, live_server: Any, make: Factory, acme: Any, ada: Any, logo_server: HttpsServer
) -> None:
    """PO-2: the CSP allows the image, and only the service fetches it from the app's server, once."""
    client = make.client(
        acme, name="Pear", redirect_uris=[CALLBACK], logo_uri="https://pear.example/logo.png"
    )
    serve_at(live_server.app, client, logo_uri=f"{logo_server.base_url}/logo.png")
    with live_server.app.app_context():
        message = Message(
            acme.id, new_id(), logos.KIND, "", {"client": client.client_id}, 1, *([clock.now()] * 3)
        )
        logos.fetch_logo(message)
    page = pages.open(authorize(client, CALLBACK))
    assert page.evaluate(DRAWN) == [True, 64]
    pages.sign_in(ada)
    page.wait_for_selector("#consent-allow")
    assert page.evaluate(DRAWN) == [True, 64]
    assert len(logo_server.requests) == 1


def test_profile_is_saved_and_an_invalid_claim_is_shown_at_its_field(pages: Pages, ada: Any) -> None:
    page = pages.open("login")
    pages.sign_in(ada)
    page.wait_for_url("**/account/profile")
    page.fill("#birthdate", "soon")
    page.fill("#phone_number", "+41 44 668 18 00")
    page.fill("#address-street_address", "Bahnhofstrasse 1\nHinterhaus")
    page.click("#profile-save")
    page.wait_for_selector("#birthdate-error")
    page.fill("#birthdate", "0000-12-10")
    page.click("#profile-save")
    page.wait_for_selector("[role=status]")
    assert page.input_value("#birthdate") == "0000-12-10"
    assert page.input_value("#phone_number") == "+41446681800"
    assert page.input_value("#address-street_address") == "Bahnhofstrasse 1\nHinterhaus"
