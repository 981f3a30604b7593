"""The organization in which valid requests are made, and a request."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.operations.clients import credentials, resources
from app.operations.sign_in.sessions import start_session
from app.operations.users import import_runner
from app.operations.users.groups import add_member
from app.rules.clients.client_types import TOKEN_EXCHANGE
from app.rules.identifiers import public_id
from app.rules.organizations.settings_table import GRANT_TYPES
from tests.factories import PASSWORD, Factory, MadeUser, bearer_header
from tests.support import importing, world_rows
from tests.support.authenticator import with_app
from tests.support.form_browser import Forms, Page
from tests.support.mail_server import Mailbox
from tests.support.matrix import world_of
from tests.support.pictures import picture

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}
SETTINGS: dict[str, Any] = {
    "authentication": {
        "registration": {"mode": "open"},
        "passkeys": {"passwordless": True},
        "mfa": {"policy": "optional"},
    },
    "user_permissions": {"members_can_delete_account": True},
    "oauth": {
        "signing": {"algorithm": "ES256"},
        "dynamic_registration": {"mode": "open"},
        "grant_types": [*GRANT_TYPES, TOKEN_EXCHANGE],
    },
}
# Values that make an empty field valid, by the last part of its name.
TYPED: dict[str, str] = {
    "name": "Orchard",
    "typed": "Orchard",
    "email": "newcomer@example.com",
    "identifier": "https://api.example/",
    "id": "role-1",
    "slug": "org-1",
    "url": "https://hooks.example/1",
    "password": PASSWORD,
    "current_password": PASSWORD,
    "new_password": "five small otters on a raft",
    "redirect_uris": "https://orchard.example/callback",
    "confirm": "acme-corner",
    "reason": "For the harvest.",
}


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """One request; ``name`` is its endpoint, with what distinguishes it after a space."""

    name: str
    method: str
    path: str
    cookies: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    form: Any = None
    json: Any = None
    body: bytes | None = None
    content_type: str | None = None
    file: tuple[str, str, bytes] | None = None

    def send(self, app: Flask) -> TestResponse:
        """Send it with its cookies and return the response."""
        headers = {"Accept": "*/*", "User-Agent": "tests"} | self.headers
        if self.cookies:
            headers["Cookie"] = self.cookies
        sent: dict[str, Any] = {"headers": headers, "method": self.method}
        if self.file is not None:
            sent["data"] = {**(self.form or {}), self.file[0]: (io.BytesIO(self.file[2]), self.file[1])}
            sent["content_type"] = "multipart/form-data"
        elif self.json is not None:
            sent["json"] = self.json
        elif self.body is not None:
            sent |= {"data": self.body, "content_type": self.content_type}
        elif self.form is not None:
            sent["data"] = {name: value() if callable(value) else value for name, value in self.form.items()}
        return app.test_client(use_cookies=False).open(self.path, **sent)


def cookies_of(http: FlaskClient) -> str:
    """Return the Cookie header that the browser sends."""
    return str(http.get("/healthz").request.headers.get("Cookie", ""))


def form_of(page: TestResponse, path: str, **typed: Any) -> dict[str, Any]:
    """Return the filled fields of the page's form that is sent to the path."""
    reader = Forms()
    reader.feed(page.text)
    forms = [
        each for each in reader.forms if each.method == "POST" and urlsplit(each.action).path in {"", path}
    ]
    values: dict[str, Any] = {}
    for name, value in forms[-1].values if forms else ():
        filled = value or TYPED.get(name.rpartition("-")[2], "")
        values[name] = [*values[name], filled] if name in values else [filled]
    return values | typed


class RequestWorld:
    """One organization that has everything, ``acme-corner``, in which requests are made."""

    def __init__(self, app: Flask, make: Factory, box: Mailbox, deliver: Callable[[], int]) -> None:
        self.app, self.make, self.box, self.deliver = app, make, box, deliver
        self.root = make.root()
        self.world = world_of(app, app.test_client(), make)
        self.corner = self.world.acme
        self.organization = self.corner.organization
        self.home = f"/organizations/{self.organization.slug}"
        self._change_settings()
        self.ids = dict(self.corner.ids)
        self._fill()

    def again(self, make: Factory, box: Mailbox, deliver: Callable[[], int]) -> Self:
        """Return the same in another test, which has put the rows of the organization back into the database."""
        other = copy.copy(self)
        other.make, other.box, other.deliver, other.ids = make, box, deliver, dict(self.ids)
        return other

    def _change_settings(self, changes: dict[str, Any] = SETTINGS) -> None:
        sent = {"json": changes, "headers": bearer_header(self.world.token)}
        answer = self.app.test_client().put(f"{self.home}/settings", **sent)
        assert answer.status_code == 200, answer.text

    def _fill(self) -> None:
        """Add what no other test's world has: a rotation, a checked import, an approved access, second factors."""
        corner, make = self.corner, self.make
        with self.app.app_context():
            actor = make.actor(self.organization)
            self.single = make.client(self.organization)
            self.rotating = make.client(self.organization)
            credentials.create_credential(actor, self.rotating.client_id)
            by = importing.admin(make, self.organization)
            checked = importing.begin(by, "email\nchecked@example.com\nnobody\n", dry=True)
            import_runner.run_import(by, checked.public_id)
            self.waiting_import = importing.begin(actor, "email\nwaits@example.com\n", dry=True).public_id
            api = resources.define_resource(
                actor,
                {"identifier": "https://given.example", "name": "Given", "scopes": [{"name": "given:read"}]},
            )
            self.free_resource = api.public_id
            self.approved = world_rows.access_requested(corner.client, api.public_id, status="granted")
            other = resources.define_resource(
                actor, {"identifier": "https://free.example", "name": "Free", "access_policy": "approval"}
            )
            self.requestable = other.public_id
        self.ids["importId"] = checked.public_id
        rotation = f"/clients/{self.rotating.client_id}/credentials/rotation"
        answer = self.app.test_client().post(rotation, json={}, headers=bearer_header(self.world.token))
        assert answer.status_code == 201, answer.text
        own = bearer_header(self.world.token)
        answer = self.app.test_client().put(
            f"{self.home}/logo", data=picture((0, 0, 200)), content_type="image/png", headers=own
        )
        assert answer.status_code == 200, answer.text
        self.secured = make.user(self.organization)
        self.phone = with_app(self.app, self.secured)
        self.ids["userId"] = self.secured.public_id
        with self.app.app_context():
            actor, slug = make.actor(self.organization), self.organization.slug
            add_member(actor, slug, self.ids["groupId"], {"user_id": self.secured.public_id})
            _, session = start_session(self.organization, self.secured.id)
            user = self.secured.public_id
            self.spare_provider, _ = world_rows.linked(actor, "spare", user)
            provider, self.ids["identityId"] = world_rows.linked(actor, "used", user)
            self.ids["providerId"] = provider
            self.ids["provisioningTokenId"] = world_rows.provisioning_token(actor, provider)
        self.ids["sessionId"] = public_id("ses", session)

    def signed_in(
        self, *, role: str | None = "admin", factors: bool = True
    ) -> tuple[MadeUser, FlaskClient, Any]:
        """Return a new user, a browser in which it is signed in, and the session's id."""
        user, http = self.make.user(self.organization, role=role), self.app.test_client()
        with self.app.app_context():
            if factors:
                with_app(self.app, user)
            token, session = start_session(
                self.organization, user.id, amr="pwd otp mfa", ip_address="127.0.0.1", user_agent="tests"
            )
        http.set_cookie(self.make.cookie_name(self.organization), token, domain="localhost")
        return user, http, session

    def _press(self, page: TestResponse, button: str) -> dict[str, Any]:
        """Return the fields that the button of the page sends."""
        form = Page("", page.status_code, page.text).form_with(button)
        values: dict[str, Any] = {}
        for name, value in (*form.values, form.buttons[button]):
            if name:
                values.setdefault(name, []).append(value)
        return values
