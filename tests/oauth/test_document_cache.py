"""The cache of client metadata documents: lifetime, changes and trust (DC-3, DC-4)."""

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
    """An organization that accepts URLs as client ids."""
    return make.organization(settings=ON)


@pytest.mark.parametrize(
    ("control", "seconds"),
    [(None, 3600), ("max-age=7200", 7200), ("max-age=5", 60), ("max-age=9999999", 86400), ("no-store", 60)],
)
def test_cache_lifetime_follows_the_server_within_limits(
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


def test_changed_document_applies_after_the_cache_expires(
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


def test_changed_redirect_uris_withdraw_consents(
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


@pytest.mark.parametrize("redirect_uris", [5, {"uri": WEB}, [{"uri": WEB}], [[WEB]], [5], None])
def test_malformed_redirect_uris_are_an_error_page(
    http: FlaskClient,
    organization: OrganizationSnapshot,
    publisher: Publisher,
    app: Flask,
    redirect_uris: object,
) -> None:
    """P5: also in a document that was valid before."""
    authorize(http, organization, publisher.client_id)
    publisher.document["redirect_uris"] = redirect_uris
    let_time_pass(app, timedelta(hours=2))
    assert not is_known(authorize(http, organization, publisher.client_id))
    assert row(app).document["redirect_uris"] == [WEB]


def test_changed_document_loses_the_reviewed_mark(
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
def test_changed_document_loses_its_approval_but_stays_blocked(
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
def test_document_is_used_for_a_day_during_an_outage(
    app: Flask,
    http: FlaskClient,
    organization: OrganizationSnapshot,
    publisher: Publisher,
    age: timedelta,
    counts: bool,
) -> None:
    """DC-3: cached for a day at most."""
    authorize(http, organization, publisher.client_id)
    publisher.status = 503
    let_time_pass(app, age)
    assert is_known(authorize(http, organization, publisher.client_id)) is counts


def test_removed_document_disables_the_client_immediately(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher
) -> None:
    """The server for the URL says that there is no such client."""
    authorize(http, organization, publisher.client_id)
    publisher.status = 404
    let_time_pass(app, timedelta(hours=2))
    assert not is_known(authorize(http, organization, publisher.client_id))


def test_disabled_client_stays_disabled_and_deleted_client_is_created_again(
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


def test_document_fields_cannot_be_edited(
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


def test_internal_client_id_is_not_accepted_at_the_oauth_endpoints(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher
) -> None:
    """The row's id would bypass the document."""
    authorize(http, organization, publisher.client_id)
    assert not is_known(authorize(http, organization, format_client_id(organization.id, row(app).id)))


def test_each_organization_stores_its_own_copy(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    """MX-3."""
    other = make.organization(settings=ON)
    assert is_known(authorize(http, organization, publisher.client_id))
    assert is_known(authorize(http, other, publisher.client_id))
    with app.app_context():
        kept = db.session.scalars(select(Client).where(Client.source == "metadata_document")).all()
    assert {client.organization_id for client in kept} == {organization.id, other.id}


def test_lookups_are_limited_per_network(
    http: FlaskClient,
    organization: OrganizationSnapshot,
    publisher: Publisher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service must not help to scan other hosts."""
    monkeypatch.setattr(
        metadata_documents, "NETWORK_LIMIT", metadata_documents.NETWORK_LIMIT.with_max_failures(2)
    )
    asked = [authorize(http, organization, f"{publisher.server.base_url}/{number}") for number in range(3)]
    assert [answer.status_code for answer in asked] == [400, 400, 429]
    assert publisher.times_read == 2


def test_unknown_client_url_fails_like_any_unknown_client(
    http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher
) -> None:
    """CA-3."""
    publisher.status = 404
    answer = http.post(
        f"/organizations/{organization.slug}/oauth/token",
        data={"grant_type": "authorization_code", "client_id": publisher.client_id, "code": "x"},
    )
    assert answer.status_code == 401 and answer.get_json()["error"] == "invalid_client"


def test_loopback_client_always_needs_consent(
    http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    """DC-4: the page names the redirect host; an earlier consent does not apply."""
    publisher.document["redirect_uris"] = [LOOPBACK]
    changes = {"redirect_uri": "http://127.0.0.1:4321/callback"}
    allowed_code(http, make, organization, publisher.client_id, **changes)
    again = authorize(http, organization, publisher.client_id, **changes)
    page = http.get(again.headers["Location"])
    assert page.status_code == 200
    assert "127.0.0.1:4321" in page.text and f"localhost:{publisher.server.port}" in page.text
    assert "Not reviewed" in page.text and 'id="client-origin"' in page.text
    silent = authorize(http, organization, publisher.client_id, prompt="none", **changes)
    assert silent.status_code == 400 and "consent_required" in silent.text


def test_suspended_organization_fetches_no_documents(
    app: Flask, http: FlaskClient, organization: OrganizationSnapshot, publisher: Publisher, make: Factory
) -> None:
    """TN-13, SF-4: it must not help to scan other hosts either."""
    with app.app_context():
        update_organization(make.actor(make.root()), organization.slug, {"status": "suspended"})
    assert not is_known(authorize(http, organization, publisher.client_id))
    assert publisher.times_read == 0
