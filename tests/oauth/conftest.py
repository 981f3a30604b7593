"""In-process OAuth fixtures: an organization, a web client and a user with a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import update
from werkzeug.test import TestResponse

from app.extensions import db
from app.operations.directory import lookups
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.authorization.authorization_request import challenge_of
from tests.factories import Factory, MadeClient, MadeUser
from tests.support.databases import Database
from tests.support.form_browser import Page
from tests.support.https_server import https_server, reaching
from tests.support.publisher import Publisher

REDIRECT_URI = "https://orchard.example/callback"
VERIFIER = "v" * 43
SCOPES = ["openid", "profile", "email", "offline_access"]
# RSA keys are slow to generate. Tests of an algorithm choose it themselves.
FAST_KEYS = {"oauth": {"signing": {"algorithm": "ES256"}}}


@contextmanager
def on_another_worker() -> Iterator[None]:
    """Run the body as if in another worker process: local caches are kept, shared stamps change."""
    caches: tuple[dict[Any, Any], ...] = (
        lookups._clients._entries._values,
        lookups._organizations._entries._values,
    )
    kept = [dict(cache) for cache in caches]
    yield
    for cache, views in zip(caches, kept, strict=True):
        cache.clear()
        cache.update(views)


def audited(database: Database, action: str) -> int:
    """Return the number of audit events with the action."""
    [(times,)] = database.query(f"SELECT COUNT(*) FROM audit_events WHERE CAST(action AS CHAR) = '{action}'")
    return int(times)


def query_of(response: TestResponse) -> dict[str, str]:
    """Return the query parameters of a redirect and check that none is repeated."""
    assert response.status_code == 303, (response.status_code, response.text[:1500])
    query = parse_qs(urlsplit(response.headers["Location"]).query, keep_blank_values=True)
    assert all(len(values) == 1 for values in query.values()), query
    return {name: values[0] for name, values in query.items()}


class Flow:
    """One client and one user. ``parameters`` build a valid request that a test then changes."""

    def __init__(
        self, app: Flask, http: FlaskClient, make: Factory, client: MadeClient, user: MadeUser
    ) -> None:
        self.app, self.http, self.make, self.client, self.user = app, http, make, client, user
        self.organization = client.organization

    @property
    def issuer(self) -> str:
        """Return the organization's issuer."""
        return self.organization.issuer

    def other_client(self, **fields: Any) -> Flow:
        """Return a flow with the same user and browser and another client of the organization."""
        client = self.make.client(self.organization, **({"scopes": SCOPES} | fields))
        return Flow(self.app, self.http, self.make, client, self.user)

    def sign_in(self) -> None:
        """Give the browser a signed-in session of the user."""
        self.make.sign_in(self.user, self.http)

    def parameters(self, **changes: str | None) -> dict[str, str]:
        """Return valid authorization request parameters with the changes applied; None removes one."""
        good: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.client.registered.client.redirect_uris[0],
            "scope": "openid profile",
            "state": "s",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
        }
        return {name: value for name, value in (good | changes).items() if value is not None}

    def authorize(self, **changes: str | None) -> TestResponse:
        """Send an authorization request and return the response."""
        return self.http.get("/oauth/authorize", query_string=self.parameters(**changes))

    def consent(self, **changes: str | None) -> TestResponse:
        """Open the consent page as a signed-in user."""
        page = self.http.get(self.authorize(**changes).headers["Location"])
        assert page.status_code == 200, page.text[:1500]
        return page

    def decide(self, page: TestResponse, button: str = "consent-allow", **changes: Any) -> TestResponse:
        """Submit the consent form; ``changes`` replace form fields, None removes one."""
        form = Page("", page.status_code, page.text).form_with(button)
        values = [(name, value) for name, value in form.values if name not in changes]
        values += [(name, value) for name, value in changes.items() if isinstance(value, str)]
        for name, listed in changes.items():
            values += [(name, value) for value in listed] if isinstance(listed, (list, tuple)) else []
        if form.buttons[button][0] and form.buttons[button][0] not in changes:
            values.append(form.buttons[button])
        body: dict[str, list[str]] = {}
        for name, value in values:
            body.setdefault(name, []).append(value)
        return self.http.post(form.action, data=body)

    def code(self, **changes: str | None) -> str:
        """Return a new authorization code, giving consent if it is required."""
        answer = self.authorize(**changes)
        if not answer.headers["Location"].startswith(self.parameters()["redirect_uri"]):
            answer = self.decide(self.http.get(answer.headers["Location"]))
        return query_of(answer)["code"]

    def token(
        self, headers: dict[str, str] | None = None, path: str = "/oauth/token", **form: str | None
    ) -> TestResponse:
        """Call the token endpoint as the client; None removes a parameter."""
        sent = {name: value for name, value in form.items() if value is not None}
        return self.http.post(path, data=sent, headers=self.client.basic if headers is None else headers)

    def redeem(self, code: str, headers: dict[str, str] | None = None, **changes: str | None) -> TestResponse:
        """Redeem the code with the changes applied and return the response."""
        good: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.parameters()["redirect_uri"],
            "code_verifier": VERIFIER,
        }
        return self.token(headers, **(good | changes))

    def tokens(self, **changes: str | None) -> dict[str, Any]:
        """Run the whole flow and return the tokens."""
        answer = self.redeem(self.code(**({"scope": " ".join(SCOPES)} | changes)))
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json())

    def refresh(
        self, token: str, headers: dict[str, str] | None = None, **changes: str | None
    ) -> TestResponse:
        """Refresh and return the response."""
        return self.token(headers, **({"grant_type": "refresh_token", "refresh_token": token} | changes))

    def introspect(self, token: str) -> dict[str, Any]:
        """Return the introspection response that the client receives."""
        answer = self.http.post("/oauth/introspect", data={"token": token}, headers=self.client.basic)
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json())

    def is_alive(self, token: str) -> bool:
        """Return whether the token is active."""
        return bool(self.introspect(token)["active"])


def location(answer) -> str:
    """Return the redirect target of the response."""
    return str(answer.headers.get("Location", ""))


def is_sign_in(answer, flow: Flow) -> bool:
    """Return whether the response redirects to the sign-in page."""
    return answer.status_code == 303 and location(answer).startswith(
        f"/organizations/{flow.organization.slug}/login?"
    )


def is_consent(answer, flow: Flow) -> bool:
    """Return whether the response redirects to the consent page."""
    path = f"/organizations/{flow.organization.slug}/oauth/authorize/resume?"
    return answer.status_code == 303 and location(answer).startswith(path)


def sign_in_on_page(flow: Flow, answer, http: FlaskClient | None = None):
    """Submit the sign-in form of the page and return the response."""
    http = http or flow.http
    page = http.get(location(answer))
    form = Page("", page.status_code, page.text).form_with("login-submit")
    values = dict(form.values) | {
        form.ids["username"]: flow.user.email,
        form.ids["password"]: flow.user.password,
    }
    return http.post(form.action or location(answer), data=values)


def change_rows(flow: Flow, model, **values) -> None:
    """Set the values on every row of the model."""

    @transaction
    def act() -> None:
        db.session.execute(update(model).values(values))

    with flow.app.app_context():
        act()


def clock_ago(flow: Flow, seconds: int):
    """Return the database time minus the given number of seconds."""
    with flow.app.app_context():
        return clock.now() - timedelta(seconds=seconds)


@pytest.fixture
def organization(make: Factory) -> lookups.OrganizationSnapshot:
    """Create an organization whose signing keys are fast to generate."""
    return make.organization(settings=FAST_KEYS)


@pytest.fixture
def flow(app: Flask, http: FlaskClient, make: Factory, organization: lookups.OrganizationSnapshot) -> Flow:
    """A first-party web client with a signed-in user. It needs no consent."""
    client = make.client(organization, scopes=SCOPES, trust="first_party", redirect_uris=[REDIRECT_URI])
    flow = Flow(app, http, make, client, make.user(organization))
    flow.sign_in()
    return flow


@pytest.fixture
def asking(app: Flask, http: FlaskClient, make: Factory, organization: lookups.OrganizationSnapshot) -> Flow:
    """A third-party web client with a signed-in user. It needs consent."""
    client = make.client(organization, scopes=SCOPES, redirect_uris=[REDIRECT_URI])
    flow = Flow(app, http, make, client, make.user(organization))
    flow.sign_in()
    return flow


@pytest.fixture
def open_to_all(make: Factory) -> OrganizationSnapshot:
    return make.organization(settings={"oauth": {"dynamic_registration": {"mode": "open"}}})


@pytest.fixture
def by_token(make: Factory) -> OrganizationSnapshot:
    return make.organization(settings={"oauth": {"dynamic_registration": {"mode": "initial_access_token"}}})


@pytest.fixture
def publisher(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    made = Publisher()
    with https_server(made.answer) as server:
        made.server = server
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], server))
        yield made
