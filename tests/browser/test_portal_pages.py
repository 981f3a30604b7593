"""The portal in Chromium: managing a client, and every page light and dark, wide and narrow.

Every page is looked at in German, whose words are longer. ``script/test pictures`` looks at both languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from app.operations.clients.resources import define_resource
from app.operations.grants.signing_keys import get_active_key
from tests.factories import Factory
from tests.support.browser import NARROW, faults_of, sign_in, watched
from tests.support.world_rows import access_requested, refused

pytestmark = [pytest.mark.live, pytest.mark.browser]
SECRET = re.compile(r"gth_cs_[A-Za-z0-9_-]{40,}")
PAGES = [
    "",
    "/clients",
    "/clients?q=nothing+like+it",
    "/clients/new",
    "/clients/new?type=web",
    "/clients/new?type=machine",
    "/clients/new?type=machine&api={api}",
    "/clients/new?type=device",
    "/clients/{client}/quickstart",
    "/clients/{public}/quickstart",
    "/clients/{client}/owner",
    "/clients?owner_id={user}",
    "/clients/{client}/credentials",
    "/clients/{client}/credentials/new",
    "/clients/{client}/credentials/{secret}/reveal",
    "/clients/{client}/credentials/{secret}/revoke",
    "/clients/{client}/redirects",
    "/clients/{client}/access",
    "/clients/{client}/apis",
    "/clients/{client}/claims",
    "/clients/{client}/roles",
    "/inspect",
    "/playground?client={client}",
    "/search?q=secret",
    "/clients/{client}/apis/{api}",
    "/clients/{client}/details",
    "/clients/{client}/advanced",
    "/clients/{client}/delete",
    "/clients/{client}/logs",
    "/clients/{client}/tokens",
    "/audit",
    "/audit?action=nothing",
    "/logs",
    "/logs?view=all",
    # Not the page that looks again every two seconds, which may take that long here.
    "/logs?request_id=nothing&tries=5",
    "/logs/{failed}",
    "/clients/{public}/credentials",
    "/apis",
    "/apis?q=nothing+like+it",
    "/apis/new",
    "/apis/{api}",
    "/apis/{api}/delete",
    "/apis/{api}/clients",
    "/access-requests",
    "/access-requests/{access}/withdraw",
    "/users",
    "/users?q=nothing+like+it",
    "/users/{user}",
    "/users/{user}/delete",
    "/users/{user}/transfer",
    "/administrators",
    "/administrators/new",
    "/administrators/{admin}/remove",
    "/settings/general",
    "/settings/sign-in",
    "/settings/sessions",
    "/settings/registration",
    "/settings/tokens",
    "/settings/clients",
    "/settings/self-registration",
    "/registration-tokens",
    "/settings/branding",
    "/settings/audit",
    "/settings/keys",
    "/settings/keys/EdDSA/replace",
    "/settings/permissions",
    "/settings/permissions/developer",
    "/settings/permissions/new",
    "/settings/delete",
    "/docs",
    "/docs?q=secret",
    "/docs/errors",
    "/docs/protect-an-api",
    "/docs/api",
    "/docs/api?tag=credentials",
    "/docs/api/registerClient",
    "/nowhere",
    "/portal",
]
ROOT_PAGES = [
    "/organizations",
    "/organizations/new",
    "/organizations/acme",
    "/organizations/acme/delete",
    "/instance-limits",
    "/instance-limits/oauth.grant_types",
    "/portal/{slug}",
]


@pytest.fixture
def ada(make: Factory, acme: Any) -> Any:
    return make.user(acme, role="admin")


@pytest.fixture(params=[True, False], ids=["scripts", "no-scripts"])
def page(request: Any, chromium: Any) -> Iterator[Any]:
    """Return a page of a new browser, with and without scripts."""
    with watched(chromium, java_script_enabled=request.param) as context:
        yield context.new_page()


def test_client_is_registered_rotated_and_deleted(page: Any, live_server: Any, acme: Any, ada: Any) -> None:
    page.goto(f"{live_server.url}/portal/{acme.slug}")
    sign_in(page, ada.email)

    # Register: an invalid redirect URI shows an error at its field and keeps the input.
    page.click("main >> text=Register a client >> nth=0")
    page.click("text=Web app")
    page.fill("#name", "Acme Web")
    page.fill("#redirect_uris", "javascript:alert(1)")
    page.click("button:has-text('Register')")
    assert page.get_attribute("#redirect_uris", "aria-invalid") == "true"
    assert page.input_value("#name") == "Acme Web"
    page.fill("#redirect_uris", "https://app.acme.example/callback")
    page.click("button:has-text('Register')")
    assert page.inner_text("#shown-once-title") == "Acme Web is registered"
    secret = page.inner_text("#client-secret")
    assert SECRET.fullmatch(secret) and secret not in page.url

    # Reveal the secret.
    page.reload()
    assert secret not in page.content()
    page.click("nav a:has-text('Credentials')")
    page.click("button:has-text('Reveal')")
    assert page.inner_text("#client-secret") == secret

    # Rotate: the first secret expires.
    page.click("text=Add a secret")
    page.fill("#name", "next")
    page.check("input[value=retire]")
    page.click("button:has-text('Add secret')")
    assert page.inner_text("#client-secret") != secret
    assert "expires in" in page.inner_text("main")

    # Revoke the old secret before it expires.
    page.click("a:has-text('Revoke') >> nth=1")
    page.click("button:has-text('Revoke')")
    assert "Secret revoked" in page.inner_text("[role=status]")
    assert page.locator("tbody tr").count() == 1

    # Delete: the name has to be typed.
    page.click(".tabs >> text=Settings")
    page.click("text=Delete client")
    page.fill("#typed", "Acme")
    page.click("button:has-text('Delete')")
    assert page.get_attribute("#typed", "aria-invalid") == "true"
    page.fill("#typed", "Acme Web")
    page.click("button:has-text('Delete')")
    assert "Client deleted" in page.inner_text("[role=status]")
    assert "No clients yet" in page.inner_text("main")


def test_settings_are_previewed_saved_and_reset(
    page: Any, live_server: Any, make: Factory, acme: Any, ada: Any
) -> None:
    _sign_in(page.context, make, ada, live_server)
    page.goto(f"{live_server.url}/portal/{acme.slug}/settings/sessions")
    idle = "[name='authentication.sessions.idle_timeout_seconds']"

    page.fill(idle, "3")
    page.click("text=Preview changes")
    assert "1 setting would change" in page.inner_text("[role=status]")
    assert page.input_value(idle) == "3"
    page.fill(idle, "100")
    page.press(idle, "Enter")
    page.wait_for_selector("#errors")
    assert page.get_attribute(idle, "aria-invalid") == "true"
    page.fill(idle, "2")
    page.click("button:has-text('Save')")
    assert "Saved" in page.inner_text("[role=status]")
    page.click("button:has-text('Reset')")
    assert "Reset to the default" in page.inner_text("[role=status]")
    assert page.input_value(idle) == "1"


def test_error_summary_gets_focus_and_links_to_fields(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any
) -> None:
    with watched(chromium) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/administrators/new")
        page.evaluate("document.querySelector('main form').noValidate = true")
        page.click("main button:has-text('Add')")
        page.wait_for_selector("#errors:focus")
        page.click("#errors a")
        assert page.evaluate("document.activeElement.id") == "email"


def test_second_click_sends_no_second_form(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any
) -> None:
    with watched(chromium) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/clients/new?type=machine")
        page.fill("#name", "Reports")
        # The form waits for its response as long as the test wants it to.
        page.evaluate(
            """addEventListener('submit', (event) => {
                document.title = `${document.title}, ${event.defaultPrevented ? 'ignored' : 'sent'}`
                event.preventDefault()
            })"""
        )
        for _ in range(2):
            page.keyboard.press("Enter")
        assert page.title().endswith(", sent, ignored")
        # As after Back, which shows the same page again.
        page.evaluate("dispatchEvent(new Event('pageshow'))")
        page.keyboard.press("Enter")
        assert page.title().endswith(", sent, ignored, sent")


def test_copy_button_copies_value(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any
) -> None:
    client = make.client(acme)
    with watched(chromium, permissions=["clipboard-read", "clipboard-write"]) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/clients/{client.client_id}/credentials")
        page.click("button[aria-label='Copy the client ID']")
        page.wait_for_selector("text=Copied")
        assert page.evaluate("navigator.clipboard.readText()") == client.client_id


def test_long_name_without_spaces_hides_nothing_beside_it(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any
) -> None:
    name = "W" * 100
    make.client(acme, name=name)
    with live_server.app.app_context():
        fields = {"identifier": "https://w.example/", "name": name, "scopes": [{"name": "w:read"}]}
        define_resource(make.actor(acme), fields)
    with watched(chromium) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        for path, frame in (
            ("clients", ".scroll"),
            ("apis", ".scroll"),
            ("clients/new?type=web", "form.card"),
        ):
            page.goto(f"{live_server.url}/portal/{acme.slug}/{path}")
            assert name in page.content()
            assert page.eval_on_selector(frame, "it => it.scrollWidth <= it.clientWidth"), path


def test_content_is_reachable_by_keyboard(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any
) -> None:
    with watched(chromium) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/clients")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/clients/new")
        page.emulate_media(forced_colors="active")
        outline = "it => getComputedStyle(it).outlineStyle"
        assert page.eval_on_selector(".nav [aria-current]", outline) == "solid"
        assert page.eval_on_selector(".nav a:not([aria-current])", outline) == "none"


def test_every_page_is_accessible_in_every_look(
    chromium: Any, live_server: Any, make: Factory, acme: Any, ada: Any
) -> None:
    client = make.client(acme, name="An orchard with quite a long name that has to wrap somewhere")
    public = make.client(acme, name="Blossom", type="spa")
    address = f"somebody.with.a.long.address@{acme.slug}.subsidiary.example"
    auditor = make.user(acme, email=address, name="Grace", role="auditor")
    with live_server.app.app_context():
        get_active_key(acme, "EdDSA")
        scopes = [{"name": f"orders:read-number-{number}", "title": "See your orders"} for number in range(3)]
        fields = {
            "identifier": "https://a-long-name.orders.example/api/v1",
            "name": "Orders",
            "scopes": scopes,
        }
        api = define_resource(make.actor(acme), fields)
        failed = refused(client, datetime.now(UTC))
        access_requested(client, api.public_id)
        access = access_requested(public, api.public_id, status="granted")
    names = {
        "client": client.client_id,
        "public": public.client_id,
        "api": api.public_id,
        "access": access,
        "failed": failed,
        "user": auditor.public_id,
        "secret": client.registered.credential.public_id,
    }
    with watched(chromium, locale="de", **NARROW) as context:
        page = _sign_in(context, make, ada, live_server).new_page()
        page.goto(f"{live_server.url}/portal/{acme.slug}/administrators")
        found = re.search(r"adm_[a-z0-9]+", page.content())
        assert found
        paths = [path.format(admin=found[0], **names) for path in PAGES]
        _look_at(page, live_server.url, acme.slug, paths)


def test_every_root_page_is_accessible_in_every_look(chromium: Any, live_server: Any, make: Factory) -> None:
    operator = make.user(make.root(), role="admin")
    acme = make.organization(name="Acme")
    with watched(chromium, locale="de", **NARROW) as context:
        page = _sign_in(context, make, operator, live_server).new_page()
        _look_at(page, live_server.url, "root", [path.format(slug=acme.slug) for path in ROOT_PAGES])


def _sign_in(context: Any, make: Factory, user: Any, server: Any) -> Any:
    """Add the user's session to the context."""
    cookie = {
        "name": make.cookie_name(user.organization),
        "value": make.sign_in(user).token,
        "url": server.url,
    }
    context.add_cookies([cookie])
    return context


def _look_at(page: Any, base: str, slug: str, paths: list[str]) -> None:
    wrong: list[str] = []
    for path in paths:
        page.goto(f"{base}{path}" if path.startswith("/portal") else f"{base}/portal/{slug}{path}")
        faults = faults_of(page)
        if page.get_attribute("html", "lang") != "de":
            faults.append("not in German")
        wrong += [f"{path}: {fault}" for fault in faults]
    assert not wrong, "\n".join(wrong)
