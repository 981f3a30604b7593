"""Passkeys in Chromium with a virtual authenticator (MF-5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from app.operations.users.invitations import create_invitation
from tests.factories import Factory, MadeUser
from tests.support.browser import NARROW, check, watched
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.passkey_browser import INTERNAL, open_passkey_browser
from tests.support.servers import LiveServer

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.fixture(scope="module")
def server(mariadb: MariaDB, instance: Path, scratch: Path, worker: str) -> Iterator[LiveServer]:
    database = MariaDBDatabase(mariadb, f"passkeys_{worker}")
    made = LiveServer(database, instance, scratch / "passkeys.log", host="localhost")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def make(server: LiveServer) -> Factory:
    made = Factory(server.app)
    made.root()
    return made


def test_passkey_is_registered_used_renamed_and_removed(
    chromium: Any, server: LiveServer, make: Factory
) -> None:
    """From the page that has none, by the one that signs in, to none again."""
    ada = make.user(make.organization(name="Acme"))
    with open_passkey_browser(chromium, server, ada, **NARROW) as at:
        page = at.page
        at.give_password()
        page.goto(f"{at.home}/account/security/passkeys")
        check(page)
        page.click("#passkey-add")
        check(page)
        page.fill("#name", "Phone")
        page.click("#passkey-new-submit")
        page.wait_for_selector("#recovery-codes")
        check(page)
        page.click("#codes-kept")
        check(page)
        assert page.get_by_text("Phone", exact=True).is_visible()
        [held] = at.passkeys()
        assert (held["rpId"], held["isResidentCredential"]) == ("localhost", True)
        at.sign_out()
        at.touch(at_once=False)
        page.goto(f"{at.home}/login")
        check(page)
        at.touch(at_once=True)
        page.click("#passkey-sign-in-submit")
        page.wait_for_url("**/account/profile")
        page.goto(f"{at.home}/account/security/passkeys")
        page.get_by_role("link", name="Edit Phone").click()
        check(page)
        page.fill("#name", "Old phone")
        page.click("#passkey-rename")
        page.get_by_role("link", name="Edit Old phone").click()
        page.click("#passkey-remove")
        page.wait_for_selector("text=Passkey removed")
        check(page)
        at.sign_out()
        page.goto(f"{at.home}/login")
        page.wait_for_selector("#refusal")
        check(page)


def test_passkey_works_as_second_factor(chromium: Any, server: LiveServer, make: Factory) -> None:
    ada = make.user(make.organization(name="Acme"))
    with open_passkey_browser(chromium, server, ada, **NARROW) as at:
        at.hold_passkey()
        at.give_password()
        at.page.wait_for_selector("#passkey-verify-submit")
        check(at.page)
        at.page.click("#passkey-verify-submit")
        at.page.wait_for_url("**/account/profile")


def test_username_field_offers_passkeys(chromium: Any, server: LiveServer, make: Factory) -> None:
    """Conditional mediation: selecting a passkey signs in without a click on our page."""
    ada = make.user(make.organization())
    with open_passkey_browser(chromium, server, ada) as at:
        at.hold_passkey()
        at.page.goto(f"{at.home}/login")
        at.page.wait_for_url("**/account/profile")


def test_double_click_asks_in_place_of_the_first_click(
    chromium: Any, server: LiveServer, make: Factory
) -> None:
    ada = make.user(make.organization())
    with open_passkey_browser(chromium, server, ada) as at:
        at.touch(at_once=False)
        at.page.goto(f"{at.home}/login")
        at.page.evaluate(
            "() => { const get = navigator.credentials.get.bind(navigator.credentials); window.asked = [];"
            "navigator.credentials.get = options => { asked.push(options); return get(options); }; }"
        )
        at.page.dblclick("#passkey-sign-in-submit")
        at.page.wait_for_function("asked.length === 2")
        assert at.page.evaluate("asked.map(({ signal }) => signal.aborted)") == [True, False]
        assert at.page.is_hidden("#passkey-sign-in [role=alert]")


def test_passkey_of_another_organization_is_rejected(
    chromium: Any, server: LiveServer, make: Factory
) -> None:
    """One origin and RP ID: the browser offers it, but only its own organization accepts it."""
    ada = make.user(make.organization())
    globex = make.organization(name="Globex")
    make.user(globex, email=ada.email)
    with open_passkey_browser(chromium, server, ada) as at:
        at.hold_passkey()
        at.touch(at_once=False)
        at.page.goto(f"{server.url}/organizations/{globex.slug}/login")
        at.touch(at_once=True)
        at.page.click("#passkey-sign-in-submit")
        at.page.wait_for_selector("#refusal")
        assert "doesn't work here" in at.page.inner_text("#refusal")
        assert not [c for c in at.page.context.cookies() if globex.id in c["name"]]


def test_unverified_user_cannot_sign_in(chromium: Any, server: LiveServer, make: Factory) -> None:
    """The browser refuses, and the page shows its error in words."""
    ada = make.user(make.organization())
    with open_passkey_browser(chromium, server, ada) as at:
        at.hold_passkey()
        at.cdp.send("WebAuthn.setUserVerified", {"authenticatorId": at.device, "isUserVerified": False})
        at.page.goto(f"{at.home}/login")
        at.page.click("#passkey-sign-in-submit")
        note = at.page.locator("#passkey-sign-in [role=alert]")
        note.wait_for()
        assert note.inner_text() == "The passkey wasn't used. Try again, or sign in another way."
        check(at.page)


def test_decreased_counter_is_rejected(chromium: Any, server: LiveServer, make: Factory) -> None:
    """A cloned authenticator, as it was before the latest sign-in."""
    ada = make.user(make.organization())
    with open_passkey_browser(chromium, server, ada) as at:
        at.register()
        [before] = at.passkeys()
        for _ in range(2):
            at.sign_out()
            at.page.goto(f"{at.home}/login")
            at.page.wait_for_url("**/account/profile")
        at.cdp.send("WebAuthn.removeVirtualAuthenticator", {"authenticatorId": at.device})
        at.device = at.plug_in(INTERNAL)
        at.cdp.send("WebAuthn.addCredential", {"authenticatorId": at.device, "credential": before})
        at.sign_out()
        at.page.goto(f"{at.home}/login")
        at.page.wait_for_selector("#refusal")
        assert "may have been copied" in at.page.inner_text("#refusal")


def test_same_device_cannot_be_registered_twice(chromium: Any, server: LiveServer, make: Factory) -> None:
    """The browser receives the list of known passkeys and refuses."""
    ada = make.user(make.organization())
    with open_passkey_browser(chromium, server, ada) as at:
        at.register()
        at.page.click("#passkey-add")
        at.page.click("#passkey-new-submit")
        note = at.page.locator("#passkey-new [role=alert]")
        note.wait_for()
        assert note.inner_text() == "This device already has a passkey for this account."


def test_required_passkey_is_registered_during_sign_in(
    chromium: Any, server: LiveServer, make: Factory
) -> None:
    """mfa.policy required without grace, and only passkeys allowed."""
    mfa = {"policy": "required", "methods": ["passkey"], "grace_period_seconds": 0}
    ada = make.user(make.organization(settings={"authentication": {"mfa": mfa}}))
    with open_passkey_browser(chromium, server, ada, **NARROW) as at:
        at.give_password()
        at.page.wait_for_selector("#passkey-enrol-submit")
        check(at.page)
        at.page.click("#passkey-enrol-submit")
        at.page.click("#codes-kept")
        at.page.wait_for_url("**/account/profile")


def test_organization_without_passwords_asks_for_a_passkey(
    chromium: Any, server: LiveServer, make: Factory
) -> None:
    """The page explains what is missing without scripts."""
    acme = make.organization(settings={"authentication": {"password": {"enabled": False}}})
    ada = make.user(acme)
    with open_passkey_browser(chromium, server, ada, **NARROW) as at:
        at.page.goto(f"{at.home}/login")
        assert at.page.locator("#password").count() == 0
        assert at.page.locator("#passkey-sign-in-submit").is_visible()
        check(at.page)
    with watched(chromium, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{server.url}/organizations/{acme.slug}/login")
        assert not page.locator("#passkey-sign-in-submit").is_visible()
        assert "uses passkeys instead of passwords" in page.inner_text("#main")


def test_page_left_open_fetches_a_new_challenge(chromium: Any, server: LiveServer, make: Factory) -> None:
    """A challenge expires after five minutes, so the button fetches another one."""
    ada = make.user(make.organization())
    with open_passkey_browser(chromium, server, ada) as at:
        at.hold_passkey()
        at.page.clock.install()
        at.cdp.send("WebAuthn.setUserVerified", {"authenticatorId": at.device, "isUserVerified": False})
        at.page.goto(f"{at.home}/login")
        shown = json.loads(at.page.get_attribute("#passkey-sign-in", "data-passkey") or "")
        at.page.clock.fast_forward(250_000)
        with at.page.expect_response("**/login/passkey") as answered:
            at.page.click("#passkey-sign-in-submit")
        assert answered.value.json()["challenge"] != shown["challenge"]


def test_invited_user_joins_with_a_passkey_where_passwords_are_disabled(
    chromium: Any, server: LiveServer, make: Factory
) -> None:
    without = {"authentication": {"password": {"enabled": False}}}
    acme = make.organization(name="Acme", settings=without)
    with server.app.app_context():
        link = create_invitation(
            make.actor(acme), acme.slug, email="grace@acme.example", role="developer"
        ).link
    assert link is not None
    with open_passkey_browser(
        chromium, server, MadeUser(acme, uuid4(), "grace@acme.example"), **NARROW
    ) as at:
        page = at.page
        page.goto(f"{at.home}/invite/{link.rpartition('/')[2]}")
        check(page)
        page.fill("#name", "Grace Hopper")
        page.click("#invitation-passkey-submit")
        page.wait_for_url(f"**/portal/{acme.slug}")
        [held] = at.passkeys()
        assert (held["isResidentCredential"], held["userName"]) == (True, "grace@acme.example")
