"""A device without a browser, and the user who approves it in another browser."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flask.testing import FlaskClient
from sqlalchemy import update
from werkzeug.test import TestResponse

from app.extensions import db
from app.models.token import DeviceCode
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.authorization.interaction import parse_user_code
from tests.factories import Factory, MadeClient, MadeUser
from tests.support.form_browser import Page

GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class Device:
    """A client of type device, public unless ``fields`` say otherwise, and a signed-in user."""

    def __init__(self, http: FlaskClient, make: Factory, user: MadeUser, **fields: Any) -> None:
        self.http, self.make, self.user = http, make, user
        self.organization = user.organization
        self.client = self.register(**fields)

    def register(self, **fields: Any) -> MadeClient:
        """Register another client of the organization that may use the device flow."""
        good = {"name": "Television", "type": "device", "redirect_uris": []}
        good["token_endpoint_auth_method"] = "none"
        return self.make.client(self.organization, **(good | fields))

    @property
    def page_path(self) -> str:
        """Return the path where users enter codes."""
        return f"/organizations/{self.organization.slug}/device"

    def ask(
        self,
        path: str = "/oauth/device_authorization",
        headers: dict[str, str] | None = None,
        **changes: str | None,
    ) -> TestResponse:
        """Call the device authorization endpoint and return the response."""
        good: dict[str, str | None] = {"client_id": self.client.client_id, "scope": "openid profile"}
        sent = {k: v for k, v in (good | changes).items() if v is not None}
        return self.http.post(path, data=sent, headers=headers)

    def code(self, headers: dict[str, str] | None = None, **changes: str | None) -> dict[str, Any]:
        """Return new device and user codes."""
        answer = self.ask(headers=headers, **changes)
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json())

    def poll(
        self, presented: str | None, headers: dict[str, str] | None = None, **changes: str | None
    ) -> TestResponse:
        """Poll the token endpoint as the device."""
        good: dict[str, str | None] = {
            "grant_type": GRANT,
            "device_code": presented,
            "client_id": self.client.client_id,
        }
        sent = {k: v for k, v in (good | changes).items() if v is not None}
        return self.http.post("/oauth/token", data=sent, headers=headers or {})

    def change(self, **values: object) -> None:
        """Set the values on every device code."""

        @transaction
        def act() -> None:
            db.session.execute(update(DeviceCode).values(values))

        with self.make.app.app_context():
            act()

    def wait(self) -> None:
        """Move the last poll back far enough for the next one."""
        with self.make.app.app_context():
            now = clock.now()
        self.change(next_poll_at=now - timedelta(seconds=1))

    def sign_in(self) -> None:
        """Give the browser a signed-in session of the user."""
        self.make.sign_in(self.user, self.http)

    def enter(self, user_code: str) -> TestResponse:
        """Submit the user code and return the page."""
        page = self.http.get(self.page_path)
        assert page.status_code == 200, (page.status_code, page.headers.get("Location"))
        return self.press(page, "device-find", user_code=user_code)

    def press(self, page: TestResponse, button: str, **typed: str) -> TestResponse:
        """Press the button with this id and return the page."""
        form = Page("", page.status_code, page.text).form_with(button)
        values: dict[str, list[str]] = {}
        for name, value in [*form.values, form.buttons[button], *typed.items()]:
            if name in typed:
                values[name] = [typed[name]]
            elif name:
                values.setdefault(name, []).append(value)
        return self.http.post(form.action, data=values)

    def allow(self, user_code: str) -> TestResponse:
        """Approve the device, with consent, and return the last page."""
        page = self.press(self.enter(user_code), "device-continue")
        if "consent-allow" in page.text:
            page = self.press(page, "consent-allow")
        assert 'id="device-allowed"' in page.text, page.text[-2500:]
        return page


def plain(user_code: str) -> str:
    """Return the letters of a user code."""
    letters = parse_user_code(user_code)
    assert letters is not None
    return letters
