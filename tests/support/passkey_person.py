"""Somebody at a real Chromium with the authenticator that it has for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.factories import MadeUser
from tests.support.browser import sign_in, watched
from tests.support.servers import LiveServer

INTERNAL = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
}


class Person:
    """Somebody at a browser with an authenticator."""

    def __init__(self, context: Any, server: LiveServer, user: MadeUser) -> None:
        self.page = context.new_page()
        self.user = user
        self.home = f"{server.url}/organizations/{user.organization.slug}"
        self.cdp = context.new_cdp_session(self.page)
        self.cdp.send("WebAuthn.enable", {"enableUI": False})
        self.device = self.plug_in(INTERNAL)

    def plug_in(self, options: dict[str, Any]) -> str:
        """The id of an authenticator that is there from now on."""
        made = self.cdp.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        return str(made["authenticatorId"])

    def passkeys(self) -> list[dict[str, Any]]:
        """What the authenticator holds."""
        found = self.cdp.send("WebAuthn.getCredentials", {"authenticatorId": self.device})
        return list(found["credentials"])

    def give_password(self, at: str = "/login") -> None:
        """The password is sent from the sign-in page."""
        self.touch(at_once=False)
        self.page.goto(self.home + at)
        sign_in(self.page, self.user.email, self.user.password)
        self.touch(at_once=True)

    def register(self, name: str = "Phone") -> None:
        """A passkey is made, after the password was given."""
        self.give_password()
        self.page.wait_for_url("**/account/profile")
        self.page.goto(f"{self.home}/account/security/passkeys")
        self.page.click("#passkey-add")
        self.page.fill("#name", name)
        self.page.click("#passkey-new-submit")
        self.page.click("#codes-kept")
        self.page.wait_for_url("**/security/passkeys")

    def touch(self, *, at_once: bool) -> None:
        """Whether the person touches the device as soon as it asks: also for the list at the field of the name."""
        options = {"authenticatorId": self.device, "enabled": at_once}
        self.cdp.send("WebAuthn.setAutomaticPresenceSimulation", options)

    def sign_out(self) -> None:
        """The browser holds no sign-in."""
        self.page.context.clear_cookies()


@contextmanager
def person(chromium: Any, server: LiveServer, user: MadeUser, **options: Any) -> Iterator[Person]:
    with watched(chromium, **options) as context:
        yield Person(context, server, user)
