"""A publisher of a client ID metadata document, and an organization that accepts such ids."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select, update
from werkzeug.datastructures import MultiDict
from werkzeug.test import TestResponse

from app.extensions import db
from app.models.client import Client, ClientRegistration
from app.operations.clients import metadata_documents
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.authorization.authorization_request import challenge_of
from tests.factories import Factory
from tests.support.form_browser import Page
from tests.support.https_server import HttpsServer, Request, Response

VERIFIER = "v" * 43
ON = {
    "oauth": {
        "dynamic_registration": {"client_id_metadata_documents": True},
        "signing": {"algorithm": "ES256"},
    }
}
LOOPBACK, WEB = "http://127.0.0.1:8765/callback", "https://tool.example/callback"


class Publisher:
    """A client's web server. Tests change what it returns."""

    def __init__(self) -> None:
        self.server: HttpsServer
        self.status, self.headers, self.raw = 200, {"Content-Type": "application/json"}, b""
        self.document: dict[str, Any] = {"client_name": "Field Notes", "redirect_uris": [WEB]}

    @property
    def client_id(self) -> str:
        """Return the URL of the document."""
        return f"{self.server.base_url}/clients/notes.json"

    def answer(self, request: Request) -> Response:
        """The response for every path."""
        whole = {"client_id": self.client_id} | self.document
        body = {name: value for name, value in whole.items() if value is not None}
        return Response(self.status, self.raw or json.dumps(body).encode(), self.headers)

    @property
    def times_read(self) -> int:
        """Return the number of requests received."""
        return len(self.server.requests)


def authorize(
    http: FlaskClient, organization: OrganizationSnapshot, client_id: str, **changes: str
) -> TestResponse:
    good = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": WEB,
        "scope": "openid",
        "state": "s",
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
    }
    return http.get(f"/organizations/{organization.slug}/oauth/authorize", query_string=good | changes)


def is_known(answer: TestResponse) -> bool:
    """Return whether the request reached a page of the flow instead of the error page."""
    assert answer.status_code in (303, 400), answer.text
    assert answer.status_code == 303 or "Location" not in answer.headers
    return answer.status_code == 303


def row(app: Flask) -> Client:
    with app.app_context():
        return db.session.scalars(select(Client).where(Client.source == "metadata_document")).one()


def let_time_pass(app: Flask, since: timedelta) -> None:
    """Expire the cached document."""

    @transaction
    def act() -> None:
        then = clock.now() - since
        db.session.execute(update(ClientRegistration).values(fetched_at=then, fresh_until=then))

    with app.app_context():
        act()
    metadata_documents.clear_document_cache()


def allowed_code(
    http: FlaskClient, make: Factory, organization: OrganizationSnapshot, client_id: str, **changes: str
) -> str:
    user = make.user(organization)
    make.sign_in(user, http)
    page = http.get(authorize(http, organization, client_id, **changes).headers["Location"])
    form = Page("", page.status_code, page.text).form_with("consent-allow")
    sent = MultiDict([*form.values, form.buttons["consent-allow"]])
    left = http.post(form.action, data=sent).headers["Location"]
    return parse_qs(urlsplit(left).query)["code"][0]
