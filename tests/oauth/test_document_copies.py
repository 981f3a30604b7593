"""What is kept of a metadata document: how long, what a changed one does, and whose client it is (DC-3, DC-4)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.extensions import db
from app.models.client import Client, ClientRegistration
from app.models.grant import Consent
from app.operations.clients import metadata_documents
from app.operations.clients.clients import delete_client, update_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.organizations.organizations import update_organization
from app.rules.errors import Conflict
from app.rules.identifiers import format_client_id
from tests.factories import Factory
from tests.oauth.conftest import query_of
from tests.support.publisher import (
    LOOPBACK,
    ON,
    WEB,
    Publisher,
    allowed_code,
    authorize,
    is_known,
    let_time_pass,
    row,
)


@pytest.fixture
def organization(make: Factory) -> OrganizationSnapshot:
    """One that takes addresses as client ids."""
    return make.organization(settings=ON)


@pytest.mark.parametrize(
    ("control", "seconds"),
    [(None, 3600), ("max-age=7200", 7200), ("max-age=5", 60), ("max-age=9999999", 86400), ("no-store", 60)],
)
def test_a_copy_lives_as_its_server_says_within_bounds(
    app: Flask,
    http: FlaskClient,
    organization: OrganizationSnapshot,
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
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher
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
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
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
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    authorize(http, organization, publisher.client_id)
    client_id = format_client_id(organization.id, row(app).id)
    with app.app_context():
        update_client(make.actor(organization), client_id, {"trust": "verified"})
    let_time_pass(app, timedelta(hours=2))
    authorize(http, organization, publisher.client_id)
    assert row(app).trust == "verified"
    publisher.document["client_name"] = "Acme Payroll"
    let_time_pass(app, timedelta(hours=2))
    authorize(http, organization, publisher.client_id)
    assert (row(app).name, row(app).trust) == ("Acme Payroll", "unverified")


@pytest.mark.parametrize(
    ("fields", "afterwards"),
    [
        ({"approval": "allowed"}, None),
        ({"trust": "verified", "approval": "allowed"}, None),
        ({"approval": "review"}, "review"),
        ({"approval": "blocked"}, "blocked"),
        ({"trust": "verified", "approval": "blocked"}, "blocked"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else str(value),
)
def test_leave_ends_with_what_it_was_given_to_and_a_bar_stays(
    app: Flask,
    http: FlaskClient,
    organization: OrganizationSnapshot,
    publisher: Publisher,
    make: Factory,
    fields: dict[str, str],
    afterwards: str | None,
) -> None:
    authorize(http, organization, publisher.client_id)
    with app.app_context():
        update_client(make.actor(organization), format_client_id(organization.id, row(app).id), fields)
    publisher.document["client_name"] = "Acme Payroll"
    let_time_pass(app, timedelta(hours=2))
    authorize(http, organization, publisher.client_id)
    assert (row(app).name, row(app).document["approval"]) == ("Acme Payroll", afterwards)


@pytest.mark.parametrize(("age", "counts"), [(timedelta(hours=23), True), (timedelta(hours=25), False)])
def test_a_copy_outlives_its_server_for_a_day(
    app: Flask,
    http: FlaskClient,
    organization: OrganizationSnapshot,
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
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher
) -> None:
    """The server that answers for the address says that there is no such client."""
    authorize(http, organization, publisher.client_id)
    publisher.status = 404
    let_time_pass(app, timedelta(hours=2))
    assert not is_known(authorize(http, organization, publisher.client_id))


def test_a_disabled_client_stays_out_and_a_deleted_one_is_met_anew(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    authorize(http, organization, publisher.client_id)
    first = format_client_id(organization.id, row(app).id)
    with app.app_context():
        update_client(make.actor(organization), first, {"status": "disabled"})
    let_time_pass(app, timedelta(hours=2))
    assert not is_known(authorize(http, organization, publisher.client_id))
    with app.app_context():
        delete_client(make.actor(organization), first)
    assert is_known(authorize(http, organization, publisher.client_id))


def test_people_cannot_change_what_the_document_says(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    authorize(http, organization, publisher.client_id)
    client_id = format_client_id(organization.id, row(app).id)
    with app.app_context():
        actor = make.actor(organization)
        with pytest.raises(Conflict) as refused:
            update_client(actor, client_id, {"redirect_uris": ["https://other.example/cb"]})
        assert refused.value.code == "in_metadata_document"
        assert update_client(actor, client_id, {"description": "Looked at"}).changed == ["description"]


def test_the_id_that_the_portal_shows_is_none_on_the_wire(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher
) -> None:
    """A client has one name there: its row's id would be a way past its document."""
    authorize(http, organization, publisher.client_id)
    assert not is_known(authorize(http, organization, format_client_id(organization.id, row(app).id)))


def test_another_organization_meets_the_client_for_itself(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    """MX-3."""
    other = make.organization(settings=ON)
    assert is_known(authorize(http, organization, publisher.client_id))
    assert is_known(authorize(http, other, publisher.client_id))
    with app.app_context():
        kept = db.session.scalars(select(Client).where(Client.source == "metadata_document")).all()
    assert {client.organization_id for client in kept} == {organization.id, other.id}


def test_one_network_looks_up_so_many(
    http: FlaskClient,
    organization: OrganizationSnapshot,
    publisher: Publisher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This service helps nobody to knock on many doors."""
    monkeypatch.setattr(
        metadata_documents, "NETWORK_LIMIT", metadata_documents.NETWORK_LIMIT.with_max_failures(2)
    )
    asked = [authorize(http, organization, f"{publisher.server.base_url}/{number}") for number in range(3)]
    assert [answer.status_code for answer in asked] == [400, 400, 429]
    assert publisher.times_read == 2


def test_a_wrong_address_fails_as_any_unknown_client_where_clients_authenticate(
    http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher
) -> None:
    """CA-3."""
    publisher.status = 404
    answer = http.post(
        f"/organizations/{organization.slug}/oauth/token",
        data={"grant_type": "authorization_code", "client_id": publisher.client_id, "code": "x"},
    )
    assert answer.status_code == 401 and answer.get_json()["error"] == "invalid_client"


def test_a_loopback_client_is_always_asked_about_by_its_host(
    http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
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


def test_a_suspended_organization_looks_up_nobody(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    """TN-13, SF-4: it is no help any more to whoever wants to knock on doors."""
    with app.app_context():
        update_organization(make.actor(make.root()), organization.slug, {"status": "suspended"})
    assert not is_known(authorize(http, organization, publisher.client_id))
    assert publisher.times_read == 0
