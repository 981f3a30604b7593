"""The protocol in one process: an organization, a web client, a user at a browser, and what they send each other."""

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
from tests.support.https_server import https_server, reaching
from tests.support.person import Page
from tests.support.publisher import Publisher

REDIRECT_URI = "https://orchard.example/callback"
VERIFIER = "v" * 43
SCOPES = ["openid", "profile", "email", "offline_access"]
# Making an RSA key takes longer than most of these tests; what is special to an algorithm says so.
FAST_KEYS = {"oauth": {"signing": {"algorithm": "ES256"}}}


@contextmanager
def on_another_worker() -> Iterator[None]:
    """What is done inside happens in another process: this one has its views as before, and the shared stamps."""
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
    """How many audit events of the action there are."""
    [(times,)] = database.query(f"SELECT COUNT(*) FROM audit_events WHERE CAST(action AS CHAR) = '{action}'")
    return int(times)


def query_of(response: TestResponse) -> dict[str, str]:
    """The parameters of a redirect, each of which came once."""
    assert response.status_code == 303, (response.status_code, response.text[:1500])
    query = parse_qs(urlsplit(response.headers["Location"]).query, keep_blank_values=True)
    assert all(len(values) == 1 for values in query.values()), query
    return {name: values[0] for name, values in query.items()}


class Flow:
    """One client and one user. ``parameters`` make one good request; a test changes one of them."""

    def __init__(
        self, app: Flask, http: FlaskClient, make: Factory, client: MadeClient, user: MadeUser
    ) -> None:
        self.app, self.http, self.make, self.client, self.user = app, http, make, client, user
        self.organization = client.organization

    @property
    def issuer(self) -> str:
        """The organization's issuer."""
        return self.organization.issuer

    def other_client(self, **fields: Any) -> Flow:
        """The same user and browser with another client of the organization."""
        client = self.make.client(self.organization, **({"scopes": SCOPES} | fields))
        return Flow(self.app, self.http, self.make, client, self.user)

    def sign_in(self) -> None:
        """The browser holds a sign-in of the user."""
        self.make.sign_in(self.user, self.http)

    def parameters(self, **changes: str | None) -> dict[str, str]:
        """A good authorization request with the changes; None leaves one out."""
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
        """The answer to an authorization request."""
        return self.http.get("/oauth/authorize", query_string=self.parameters(**changes))

    def consent(self, **changes: str | None) -> TestResponse:
        """The consent page of a signed-in user."""
        page = self.http.get(self.authorize(**changes).headers["Location"])
        assert page.status_code == 200, page.text[:1500]
        return page

    def decide(self, page: TestResponse, button: str = "consent-allow", **changes: Any) -> TestResponse:
        """The answer after pressing the button; ``changes`` replace fields of the form, None leaves one out."""
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
        """A fresh code of the signed-in user, consent given if it is asked for."""
        answer = self.authorize(**changes)
        if not answer.headers["Location"].startswith(self.parameters()["redirect_uri"]):
            answer = self.decide(self.http.get(answer.headers["Location"]))
        return query_of(answer)["code"]

    def token(
        self, headers: dict[str, str] | None = None, path: str = "/oauth/token", **form: str | None
    ) -> TestResponse:
        """The token endpoint's answer to the client; None leaves a parameter out."""
        sent = {name: value for name, value in form.items() if value is not None}
        return self.http.post(path, data=sent, headers=self.client.basic if headers is None else headers)

    def redeem(self, code: str, headers: dict[str, str] | None = None, **changes: str | None) -> TestResponse:
        """The answer to a redemption of the code with the changes."""
        good: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.parameters()["redirect_uri"],
            "code_verifier": VERIFIER,
        }
        return self.token(headers, **(good | changes))

    def tokens(self, **changes: str | None) -> dict[str, Any]:
        """The tokens of a whole flow."""
        answer = self.redeem(self.code(**({"scope": " ".join(SCOPES)} | changes)))
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json())

    def refresh(
        self, token: str, headers: dict[str, str] | None = None, **changes: str | None
    ) -> TestResponse:
        """The answer to a refresh."""
        return self.token(headers, **({"grant_type": "refresh_token", "refresh_token": token} | changes))

    def introspect(self, token: str) -> dict[str, Any]:
        """What the client is told of the token."""
        answer = self.http.post("/oauth/introspect", data={"token": token}, headers=self.client.basic)
        assert answer.status_code == 200, answer.text
        return dict(answer.get_json())

    def is_alive(self, token: str) -> bool:
        """Whether the token is active."""
        return bool(self.introspect(token)["active"])


def location(answer) -> str:
    """Where the answer leads."""
    return str(answer.headers.get("Location", ""))


def is_sign_in(answer, flow: Flow) -> bool:
    """Whether the browser is sent to the sign-in page."""
    return answer.status_code == 303 and location(answer).startswith(
        f"/organizations/{flow.organization.slug}/login?"
    )


def is_consent(answer, flow: Flow) -> bool:
    """Whether the browser is sent to the consent page."""
    path = f"/organizations/{flow.organization.slug}/oauth/authorize/resume?"
    return answer.status_code == 303 and location(answer).startswith(path)


def sign_in_on_page(flow: Flow, answer, http: FlaskClient | None = None):
    """The answer after the sign-in form of the page was filled in."""
    http = http or flow.http
    page = http.get(location(answer))
    form = Page("", page.status_code, page.text).form_with("login-submit")
    values = dict(form.values) | {
        form.ids["username"]: flow.user.email,
        form.ids["password"]: flow.user.password,
    }
    return http.post(form.action or location(answer), data=values)


def change_rows(flow: Flow, model, **values) -> None:
    """Every row of the model has the values."""

    @transaction
    def act() -> None:
        db.session.execute(update(model).values(values))

    with flow.app.app_context():
        act()


def clock_ago(flow: Flow, seconds: int):
    """So many seconds ago, by the database."""
    with flow.app.app_context():
        return clock.now() - timedelta(seconds=seconds)


@pytest.fixture
def organization(make: Factory) -> lookups.OrganizationSnapshot:
    """An organization whose keys are made quickly."""
    return make.organization(settings=FAST_KEYS)


@pytest.fixture
def flow(app: Flask, http: FlaskClient, make: Factory, organization: lookups.OrganizationSnapshot) -> Flow:
    """A first-party web client, whose user is signed in and not asked for consent."""
    client = make.client(organization, scopes=SCOPES, trust="first_party", redirect_uris=[REDIRECT_URI])
    flow = Flow(app, http, make, client, make.user(organization))
    flow.sign_in()
    return flow


@pytest.fixture
def asking(app: Flask, http: FlaskClient, make: Factory, organization: lookups.OrganizationSnapshot) -> Flow:
    """A third party's web client, whose signed-in user is asked for consent."""
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
