"""Clients whose client_id is the address of their metadata: DC-3 and DC-4."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select, update
from werkzeug.datastructures import MultiDict
from werkzeug.test import TestResponse

from app.extensions import db
from app.models.client import Client
from app.models.grant import Consent
from app.models.registration import ClientRegistration
from app.operations import clock
from app.operations.directory import OrganizationView
from app.operations.registration import resources
from app.operations.registration.clients import delete_client, update_client
from app.operations.self_registration import documents
from app.operations.transaction import transaction
from app.rules.errors import Conflict
from app.rules.identifiers import client_id_of
from app.rules.protocol.pkce import challenge_of
from tests.factories import Factory
from tests.oauth.conftest import VERIFIER, query_of
from tests.support.https_server import HttpsServer, Request, Response, https_server, reaching
from tests.support.person import Page

ON = {
    "oauth": {
        "dynamic_registration": {"client_id_metadata_documents": True},
        "signing": {"algorithm": "ES256"},
    }
}
LOOPBACK, WEB = "http://127.0.0.1:8765/callback", "https://tool.example/callback"


class Publisher:
    """The web server of somebody who makes a client; a test changes what stands at its one address."""

    def __init__(self) -> None:
        self.server: HttpsServer
        self.status, self.headers, self.raw = 200, {"Content-Type": "application/json"}, b""
        self.document: dict[str, Any] = {"client_name": "Field Notes", "redirect_uris": [WEB]}

    @property
    def client_id(self) -> str:
        """The address of the document."""
        return f"{self.server.base_url}/clients/notes.json"

    def answer(self, request: Request) -> Response:
        """What stands at every path."""
        whole = {"client_id": self.client_id} | self.document
        body = {name: value for name, value in whole.items() if value is not None}
        return Response(self.status, self.raw or json.dumps(body).encode(), self.headers)

    @property
    def times_read(self) -> int:
        """How often it was asked."""
        return len(self.server.requests)


@pytest.fixture
def publisher(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    made = Publisher()
    with https_server(made.answer) as server:
        made.server = server
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], server))
        yield made


@pytest.fixture
def organization(make: Factory) -> OrganizationView:
    return make.organization(settings=ON)


def authorize(
    http: FlaskClient, organization: OrganizationView, client_id: str, **changes: str
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
    """Whether the request went on to a page of the flow; else it ended on the error page, with no redirect."""
    assert answer.status_code in (303, 400), answer.text
    assert answer.status_code == 303 or "Location" not in answer.headers
    return answer.status_code == 303


def row(app: Flask) -> Client:
    with app.app_context():
        return db.session.scalars(select(Client).where(Client.source == "metadata_document")).one()


def let_time_pass(app: Flask, since: timedelta) -> None:
    """The document was read so long ago, and its time is over."""

    @transaction
    def act() -> None:
        then = clock.now() - since
        db.session.execute(update(ClientRegistration).values(fetched_at=then, fresh_until=then))

    with app.app_context():
        act()
    documents.forget_documents()


def allowed_code(
    http: FlaskClient, make: Factory, organization: OrganizationView, client_id: str, **changes: str
) -> str:
    user = make.user(organization)
    make.sign_in(user, http)
    page = http.get(authorize(http, organization, client_id, **changes).headers["Location"])
    form = Page("", page.status_code, page.text).form_with("consent-allow")
    sent = MultiDict([*form.values, form.buttons["consent-allow"]])
    return query_of(http.post(form.action, data=sent))["code"]


def test_addresses_are_no_client_ids_until_the_organization_says_so(
    http: FlaskClient, make: Factory, publisher: Publisher
) -> None:
    organization = make.organization()
    assert not is_known(authorize(http, organization, publisher.client_id))
    assert publisher.times_read == 0
    path = f"/organizations/{organization.slug}/.well-known/oauth-authorization-server"
    assert "client_id_metadata_document_supported" not in http.get(path).get_json()


def test_a_client_is_met_by_its_address(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher
) -> None:
    """DC-3: the document is read once, and what is kept is a client that nobody reviewed."""
    path = f"/organizations/{organization.slug}/.well-known/oauth-authorization-server"
    assert http.get(path).get_json()["client_id_metadata_document_supported"] is True
    assert is_known(authorize(http, organization, publisher.client_id))
    assert is_known(authorize(http, organization, publisher.client_id))
    assert publisher.times_read == 1
    kept = row(app)
    assert (kept.name, kept.trust, kept.metadata_document_uri) == (
        "Field Notes",
        "unverified",
        publisher.client_id,
    )
    assert kept.created_by == f"localhost:{publisher.server.port}"
    assert kept.document["token_endpoint_auth_method"] == "none"


def test_the_whole_flow_speaks_of_the_client_by_its_address(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher, make: Factory
) -> None:
    api = "https://notes.example/api"
    with app.app_context():
        fields = {"identifier": api, "name": "Notes", "scopes": [{"name": "notes:read"}]}
        resources.define_resource(make.actor(organization), fields)
    publisher.document["grant_types"] = ["authorization_code", "refresh_token"]
    scope = "openid offline_access notes:read"
    code = allowed_code(http, make, organization, publisher.client_id, scope=scope, resource=api)
    base = f"/organizations/{organization.slug}/oauth"
    answer = http.post(
        f"{base}/token",
        data={
            "grant_type": "authorization_code",
            "client_id": publisher.client_id,
            "code": code,
            "redirect_uri": WEB,
            "code_verifier": VERIFIER,
        },
    )
    assert answer.status_code == 200, answer.text
    tokens = answer.get_json()
    checker = make.client(organization, resources=[api])
    told = http.post(
        f"{base}/introspect", data={"token": tokens["access_token"]}, headers=checker.basic
    ).get_json()
    assert told["client_id"] == publisher.client_id and api in told["aud"]
    refreshed = http.post(
        f"{base}/token",
        data={
            "grant_type": "refresh_token",
            "client_id": publisher.client_id,
            "refresh_token": tokens["refresh_token"],
        },
    )
    assert refreshed.status_code == 200, refreshed.text
    claims = json.loads(_payload(tokens["id_token"]))
    assert claims["aud"] == publisher.client_id
    gone = http.post(
        f"{base}/revoke",
        data={"client_id": publisher.client_id, "token": refreshed.get_json()["access_token"]},
    )
    assert gone.status_code == 200, gone.text


def test_a_jwt_of_such_a_client_is_found_by_its_organization(
    http: FlaskClient, make: Factory, publisher: Publisher
) -> None:
    organization = make.organization(settings={"oauth": ON["oauth"] | {"access_token": {"format": "jwt"}}})
    code = allowed_code(http, make, organization, publisher.client_id)
    base = f"/organizations/{organization.slug}/oauth"
    token = http.post(
        f"{base}/token",
        data={
            "grant_type": "authorization_code",
            "client_id": publisher.client_id,
            "code": code,
            "redirect_uri": WEB,
            "code_verifier": VERIFIER,
        },
    ).get_json()["access_token"]
    assert json.loads(_payload(token))["client_id"] == publisher.client_id
    told = http.get(f"{base}/userinfo", headers={"Authorization": f"Bearer {token}"})
    assert told.status_code == 200, told.text


def _payload(jwt: str) -> bytes:
    from base64 import urlsafe_b64decode

    body = jwt.split(".")[1]
    return urlsafe_b64decode(body + "=" * (-len(body) % 4))


@pytest.mark.parametrize(
    "document",
    [
        {"client_id": "https://other.example/client.json"},
        {"client_id": None},
        {"client_secret": "s"},
        {"client_secret_expires_at": 0},
        {"token_endpoint_auth_method": "client_secret_basic"},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"redirect_uris": ["http://tool.example/callback"]},
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": None},
        {"client_name": "A\u202ecme"},
        {"grant_types": ["client_credentials"]},
        {"logo_uri": "http://10.0.0.1/"},
    ],
)
def test_a_document_that_describes_no_client_here_is_refused(
    app: Flask,
    http: FlaskClient,
    organization: OrganizationView,
    publisher: Publisher,
    document: dict[str, Any],
) -> None:
    """DC-3: its client_id is its address, it holds no secret, and RU-3 decides about its redirect URIs."""
    publisher.document |= document
    assert not is_known(authorize(http, organization, publisher.client_id))
    with app.app_context():
        assert db.session.scalars(select(Client).where(Client.source != "person")).all() == []


@pytest.mark.parametrize(
    ("status", "kind", "raw"),
    [
        (404, "application/json", b"{}"),
        (301, "application/json", b"{}"),
        (500, "application/json", b"{}"),
        (200, "text/html", b""),
        (200, "application/json", b"no json"),
        (200, "application/json", b"[]"),
        (200, "application/json", b" " * 6000),
    ],
)
def test_an_answer_that_is_no_document_is_refused(
    http: FlaskClient,
    organization: OrganizationView,
    publisher: Publisher,
    status: int,
    kind: str,
    raw: bytes,
) -> None:
    publisher.status, publisher.headers, publisher.raw = status, {"Content-Type": kind, "Location": "/x"}, raw
    assert not is_known(authorize(http, organization, publisher.client_id))


@pytest.mark.parametrize(
    "address",
    [
        "https://{host}",
        "https://{host}/",
        "http://{host}/c.json",
        "https://user@{host}/c.json",
        "https://{host}/a/../c.json",
        "https://{host}/%2e%2e/c.json",
        "https://{host}/c.json#x",
        "https://{host}/c json",
        "https://{host}/c\\json",
        "HTTPS://{host}/c.json",
        "https://127.0.0.1:1/c.json",
        "https://10.0.0.1/c.json",
        "https://[::1]/c.json",
        "https://metadata.google.internal/c.json",
        "https://{host}/" + "c" * 600,
    ],
)
def test_an_address_that_may_not_be_one_is_never_asked(
    http: FlaskClient, organization: OrganizationView, publisher: Publisher, address: str
) -> None:
    """DC-3: https with a path; SF-2 decides about the rest."""
    client_id = address.format(host=f"localhost:{publisher.server.port}")
    assert not is_known(authorize(http, organization, client_id))
    assert publisher.times_read == 0


@pytest.mark.parametrize(
    ("control", "seconds"),
    [(None, 3600), ("max-age=7200", 7200), ("max-age=5", 60), ("max-age=9999999", 86400), ("no-store", 60)],
)
def test_a_copy_lives_as_its_server_says_within_bounds(
    app: Flask,
    http: FlaskClient,
    organization: OrganizationView,
    publisher: Publisher,
    control: str | None,
    seconds: int,
) -> None:
    if control is not None:
        publisher.headers = publisher.headers | {"Cache-Control": control}
    authorize(http, organization, publisher.client_id)
    with app.app_context():
        kept = db.session.scalars(select(ClientRegistration)).one()
        assert kept.fresh_until is not None and kept.fetched_at is not None
        assert (kept.fresh_until - kept.fetched_at).total_seconds() == seconds


def test_a_changed_document_counts_once_its_time_is_over(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher
) -> None:
    authorize(http, organization, publisher.client_id)
    before = row(app)
    publisher.document |= {"redirect_uris": ["https://tool.example/new"], "client_name": "Field Notes 2"}
    assert is_known(authorize(http, organization, publisher.client_id))
    let_time_pass(app, timedelta(hours=2))
    assert not is_known(authorize(http, organization, publisher.client_id))
    assert is_known(
        authorize(http, organization, publisher.client_id, redirect_uri="https://tool.example/new")
    )
    after = row(app)
    assert after.id == before.id and after.version > before.version and after.name == "Field Notes 2"


def test_new_redirect_uris_drop_what_people_allowed_for_others(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher, make: Factory
) -> None:
    """DC-3."""

    def consents() -> int:
        with app.app_context():
            return len(db.session.scalars(select(Consent)).all())

    allowed_code(http, make, organization, publisher.client_id)
    publisher.document["client_name"] = "Renamed"
    let_time_pass(app, timedelta(hours=2))
    authorize(http, organization, publisher.client_id)
    assert consents() == 1
    publisher.document["redirect_uris"] = [WEB, "https://tool.example/new"]
    let_time_pass(app, timedelta(hours=2))
    authorize(http, organization, publisher.client_id)
    assert consents() == 0


def test_trust_ends_with_what_it_was_given_to(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher, make: Factory
) -> None:
    authorize(http, organization, publisher.client_id)
    client_id = client_id_of(organization.id, row(app).id)
    with app.app_context():
        update_client(make.actor(organization), client_id, {"trust": "verified"})
    let_time_pass(app, timedelta(hours=2))
    authorize(http, organization, publisher.client_id)
    assert row(app).trust == "verified"
    publisher.document["client_name"] = "Acme Payroll"
    let_time_pass(app, timedelta(hours=2))
    authorize(http, organization, publisher.client_id)
    assert (row(app).name, row(app).trust) == ("Acme Payroll", "unverified")


@pytest.mark.parametrize(("age", "counts"), [(timedelta(hours=23), True), (timedelta(hours=25), False)])
def test_a_copy_outlives_its_server_for_a_day(
    app: Flask,
    http: FlaskClient,
    organization: OrganizationView,
    publisher: Publisher,
    age: timedelta,
    counts: bool,
) -> None:
    """DC-3: cached at most a day."""
    authorize(http, organization, publisher.client_id)
    publisher.status = 503
    let_time_pass(app, age)
    assert is_known(authorize(http, organization, publisher.client_id)) is counts


def test_a_document_that_was_taken_away_ends_the_client_at_once(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher
) -> None:
    """The server that answers for the address says that there is no such client."""
    authorize(http, organization, publisher.client_id)
    publisher.status = 404
    let_time_pass(app, timedelta(hours=2))
    assert not is_known(authorize(http, organization, publisher.client_id))


def test_a_disabled_client_stays_out_and_a_deleted_one_is_met_anew(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher, make: Factory
) -> None:
    authorize(http, organization, publisher.client_id)
    first = client_id_of(organization.id, row(app).id)
    with app.app_context():
        update_client(make.actor(organization), first, {"status": "disabled"})
    let_time_pass(app, timedelta(hours=2))
    assert not is_known(authorize(http, organization, publisher.client_id))
    with app.app_context():
        delete_client(make.actor(organization), first)
    assert is_known(authorize(http, organization, publisher.client_id))


def test_people_cannot_change_what_the_document_says(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher, make: Factory
) -> None:
    authorize(http, organization, publisher.client_id)
    client_id = client_id_of(organization.id, row(app).id)
    with app.app_context():
        actor = make.actor(organization)
        with pytest.raises(Conflict) as refused:
            update_client(actor, client_id, {"redirect_uris": ["https://other.example/cb"]})
        assert refused.value.code == "in_metadata_document"
        assert update_client(actor, client_id, {"description": "Looked at"}).changed == ["description"]


def test_the_id_that_the_portal_shows_is_none_on_the_wire(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher
) -> None:
    """A client has one name there: its row's id would be a way past its document."""
    authorize(http, organization, publisher.client_id)
    assert not is_known(authorize(http, organization, client_id_of(organization.id, row(app).id)))


def test_another_organization_meets_the_client_for_itself(
    app: Flask, http: FlaskClient, organization: OrganizationView, publisher: Publisher, make: Factory
) -> None:
    """MX-3."""
    other = make.organization(settings=ON)
    assert is_known(authorize(http, organization, publisher.client_id))
    assert is_known(authorize(http, other, publisher.client_id))
    with app.app_context():
        kept = db.session.scalars(select(Client).where(Client.source == "metadata_document")).all()
    assert {client.organization_id for client in kept} == {organization.id, other.id}


def test_one_network_looks_up_so_many(
    http: FlaskClient, organization: OrganizationView, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This service helps nobody to knock on many doors."""
    monkeypatch.setattr(documents, "MOST_PER_NETWORK", documents.MOST_PER_NETWORK.from_failure(2))
    asked = [authorize(http, organization, f"{publisher.server.base_url}/{number}") for number in range(3)]
    assert [answer.status_code for answer in asked] == [400, 400, 429]
    assert publisher.times_read == 2


def test_a_wrong_address_fails_as_any_unknown_client_where_clients_authenticate(
    http: FlaskClient, organization: OrganizationView, publisher: Publisher
) -> None:
    """CA-3."""
    publisher.status = 404
    answer = http.post(
        f"/organizations/{organization.slug}/oauth/token",
        data={"grant_type": "authorization_code", "client_id": publisher.client_id, "code": "x"},
    )
    assert answer.status_code == 401 and answer.get_json()["error"] == "invalid_client"


def test_a_loopback_client_is_always_asked_about_by_its_host(
    http: FlaskClient, organization: OrganizationView, publisher: Publisher, make: Factory
) -> None:
    """DC-4: the page names where the answer goes and whose word the name is; a consent before changes nothing."""
    publisher.document["redirect_uris"] = [LOOPBACK]
    changes = {"redirect_uri": "http://127.0.0.1:4321/callback"}
    allowed_code(http, make, organization, publisher.client_id, **changes)
    again = authorize(http, organization, publisher.client_id, **changes)
    page = http.get(again.headers["Location"])
    assert page.status_code == 200
    assert "127.0.0.1:4321" in page.text and f"localhost:{publisher.server.port}" in page.text
    assert "Not reviewed" in page.text and 'id="client-origin"' in page.text
    silent = authorize(http, organization, publisher.client_id, prompt="none", **changes)
    assert query_of(silent)["error"] == "consent_required"
