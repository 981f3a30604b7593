"""A user in Chromium with a virtual authenticator."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from app.operations.sign_in.passkey_registration import begin_registration, finish_registration
from app.operations.sign_in.sign_in import Browser
from tests.factories import Factory, MadeUser
from tests.support.browser import sign_in, watched
from tests.support.security_key import Authenticator, decoded
from tests.support.servers import LiveServer

INTERNAL = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
}


class PasskeyBrowser:
    """A user in Chromium with a virtual authenticator."""

    def __init__(self, context: Any, server: LiveServer, user: MadeUser) -> None:
        self.page = context.new_page()
        self.server, self.user = server, user
        self.home = f"{server.url}/organizations/{user.organization.slug}"
        self.cdp = context.new_cdp_session(self.page)
        self.cdp.send("WebAuthn.enable", {"enableUI": False})
        self.device = self.plug_in(INTERNAL)

    def plug_in(self, options: dict[str, Any]) -> str:
        """Add an authenticator and return its id."""
        made = self.cdp.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        return str(made["authenticatorId"])

    def passkeys(self) -> list[dict[str, Any]]:
        """Return the passkeys of the authenticator."""
        found = self.cdp.send("WebAuthn.getCredentials", {"authenticatorId": self.device})
        return list(found["credentials"])

    def give_password(self, at: str = "/login") -> None:
        """Submit the password on the sign-in page."""
        self.touch(at_once=False)
        self.page.goto(self.home + at)
        sign_in(self.page, self.user.email, self.user.password)
        self.touch(at_once=True)

    def register(self, name: str = "Phone") -> None:
        """Sign in with the password and register a passkey."""
        self.give_password()
        self.page.wait_for_url("**/account/profile")
        self.page.goto(f"{self.home}/account/security/passkeys")
        self.page.click("#passkey-add")
        self.page.fill("#name", name)
        self.page.click("#passkey-new-submit")
        self.page.click("#codes-kept")
        self.page.wait_for_url("**/security/passkeys")

    def hold_passkey(self) -> None:
        """Put a passkey of the user into the authenticator, as ``register`` and ``sign_out`` do, without the pages."""
        key, here = (
            Authenticator(origin=self.server.url, counter=None),
            Browser(id="b" * 43, user_agent="tests"),
        )
        actor = Factory(self.server.app).actor(self.user.organization, user=self.user)
        with self.server.app.app_context():
            finish_registration(actor, key.create(begin_registration(actor, here)), "Phone", here)
        private = key.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        contents = {
            "credentialId": key.credential_id,
            "privateKey": private,
            "userHandle": decoded(key.handle or ""),
        }
        credential = {name: b64encode(content).decode() for name, content in contents.items()}
        credential |= {"isResidentCredential": True, "rpId": key.party, "signCount": 1}
        self.cdp.send("WebAuthn.addCredential", {"authenticatorId": self.device, "credential": credential})
        self.touch(at_once=True)

    def touch(self, *, at_once: bool) -> None:
        """Set whether the user confirms every request of the device at once, including autofill."""
        options = {"authenticatorId": self.device, "enabled": at_once}
        self.cdp.send("WebAuthn.setAutomaticPresenceSimulation", options)

    def sign_out(self) -> None:
        """Remove the browser's session."""
        self.page.context.clear_cookies()


@contextmanager
def open_passkey_browser(
    chromium: Any, server: LiveServer, user: MadeUser, **options: Any
) -> Iterator[PasskeyBrowser]:
    with watched(chromium, **options) as context:
        yield PasskeyBrowser(context, server, user)
