"""Clients managing their own registration: RFC 7592."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients import sector_documents
from app.operations.clients.clients import update_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.organizations.organizations import update_organization
from tests.factories import Factory, bearer_header
from tests.support.registering import GOOD, own, register


def test_client_can_read_update_and_delete_itself(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    """RFC 7592: an update replaces everything, and missing fields get their defaults."""
    told = register(http, open_to_all, contacts=["dev@weather.example"]).get_json()
    read = own(http, told, "GET")
    assert read.status_code == 200
    assert {**read.get_json(), "client_secret": told["client_secret"]} == told
    read_only = ("registration_", "client_id_", "client_secret_")
    same = {name: value for name, value in read.get_json().items() if not name.startswith(read_only)}
    assert own(http, told, "PUT", **same).get_json() == read.get_json()
    # It may still send its secret in the body, because it has not chosen a method.
    form = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": told["client_id"]}
    sent = http.post("/oauth/token", data=form | {"client_secret": told["client_secret"]})
    assert sent.get_json()["error"] == "invalid_grant"
    changed = own(
        http, told, "PUT", client_id=told["client_id"], redirect_uris=["https://weather.example/new"]
    )
    assert changed.status_code == 200, changed.text
    now = changed.get_json()
    assert now["redirect_uris"] == ["https://weather.example/new"]
    assert "contacts" not in now and now["grant_types"] == ["authorization_code"]
    assert now["client_name"] == "weather.example"
    assert now["registration_access_token"] == told["registration_access_token"]
    gone = own(http, told, "DELETE")
    assert gone.status_code == 204 and gone.data == b""
    assert own(http, told, "GET").status_code == 401


@pytest.mark.parametrize(("sent", "registered"), [({}, "minimal"), ({"id_token_claims": "full"}, "full")])
def test_id_token_claims_are_minimal_unless_chosen_and_kept_by_updates(
    http: FlaskClient, open_to_all: OrganizationSnapshot, sent: dict[str, str], registered: str
) -> None:
    """OpenID Connect Core section 5.4: what scopes release is at userinfo."""
    told = register(http, open_to_all, **sent).get_json()
    assert told["id_token_claims"] == registered
    changed = own(http, told, "PUT", **GOOD, client_id=told["client_id"])
    assert (changed.status_code, changed.get_json()["id_token_claims"]) == (200, registered), changed.text


def test_update_without_a_method_does_not_make_a_client_public(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    """Earlier, native apps that chose no method got a secret."""
    told = register(http, open_to_all, token_endpoint_auth_method="client_secret_post").get_json()
    changed = own(
        http, told, "PUT", **GOOD, client_id=told["client_id"], application_type="native"
    ).get_json()
    assert changed["token_endpoint_auth_method"] == "client_secret_basic"


def test_client_that_now_needs_a_secret_receives_one(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    told = register(http, open_to_all, token_endpoint_auth_method="none").get_json()
    assert "client_secret" not in told
    body = GOOD | {"client_id": told["client_id"], "token_endpoint_auth_method": "client_secret_post"}
    changed = own(http, told, "PUT", **body).get_json()
    assert changed["client_secret"].startswith("gth_cs_") and changed["client_secret_expires_at"] == 0
    again = own(http, told, "PUT", **body).get_json()
    assert "client_secret" not in again and again["client_secret_expires_at"] == 0


@pytest.mark.parametrize(
    "extra",
    [
        {"client_id": "cli_other"},
        {"client_id": None},
        {"registration_access_token": "x"},
        {"registration_client_uri": "x"},
        {"client_secret_expires_at": 0},
        {"client_id_issued_at": 1},
    ],
)
def test_registration_change_with_foreign_or_read_only_fields_is_rejected(
    http: FlaskClient, open_to_all: OrganizationSnapshot, extra: dict[str, Any]
) -> None:
    told = register(http, open_to_all).get_json()
    body = GOOD | {"client_id": told["client_id"]} | extra
    answer = own(http, told, "PUT", **body)
    assert answer.status_code == 400 and answer.get_json()["error"] == "invalid_client_metadata"


def test_registration_access_token_is_valid_for_its_own_client_only(
    http: FlaskClient, open_to_all: OrganizationSnapshot
) -> None:
    first, second = (register(http, open_to_all).get_json() for _ in range(2))
    mixed = second | {"registration_access_token": first["registration_access_token"]}
    for method in ("GET", "PUT", "DELETE"):
        assert own(http, mixed, method, **(GOOD if method == "PUT" else {})).status_code == 401
    assert own(http, second | {"registration_access_token": "nonsense"}, "GET").status_code == 401
    assert own(http, second, "GET").status_code == 200


def test_trusted_client_cannot_change_its_registration(
    app: Flask, http: FlaskClient, open_to_all: OrganizationSnapshot, make: Factory
) -> None:
    """Trust was given to this name and these URLs."""
    told = register(http, open_to_all).get_json()
    with app.app_context():
        update_client(make.actor(open_to_all), told["client_id"], {"trust": "verified"})
    answer = own(http, told, "PUT", **(GOOD | {"client_id": told["client_id"], "client_name": "Acme"}))
    assert answer.status_code == 403 and answer.get_json()["error"] == "access_denied"


def test_client_is_unknown_at_another_organization(
    http: FlaskClient, open_to_all: OrganizationSnapshot, make: Factory
) -> None:
    """MX-3."""
    other = make.organization(settings={"oauth": {"dynamic_registration": {"mode": "open"}}})
    told = register(http, open_to_all).get_json()
    path = f"/organizations/{other.slug}/oauth/register/{told['client_id']}"
    headers = bearer_header(told["registration_access_token"])
    assert http.get(path, headers=headers).status_code == 401


def test_pairwise_client_is_verified_by_its_sector_document(
    http: FlaskClient, open_to_all: OrganizationSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenID Connect Core 8.1: at registration and at every change."""
    other = "https://weather.example/new"
    monkeypatch.setattr(sector_documents, "fetch_sector_document", lambda _, address: GOOD["redirect_uris"])
    pairwise = {"subject_type": "pairwise", "sector_identifier_uri": "https://sector.example/r.json"}
    told = register(http, open_to_all, **pairwise)
    assert told.status_code == 201, told.text
    assert register(http, open_to_all, **pairwise, redirect_uris=[other]).status_code == 400
    body = GOOD | pairwise | {"client_id": told.get_json()["client_id"]}
    monkeypatch.setattr(
        sector_documents, "fetch_sector_document", lambda _, address: [*GOOD["redirect_uris"], other]
    )
    changed = own(http, told.get_json(), "PUT", **(body | {"redirect_uris": [other]}))
    assert changed.status_code == 200, changed.text


@pytest.mark.parametrize("whose", ["client", "organization"])
def test_disabled_client_cannot_manage_its_registration(
    app: Flask, http: FlaskClient, make: Factory, open_to_all: OrganizationSnapshot, whose: str
) -> None:
    """TN-13, RFC 7592 section 2: it can neither clear its traces nor prepare for being enabled again."""
    told = register(http, open_to_all).get_json()
    with app.app_context():
        if whose == "client":
            update_client(make.actor(open_to_all), told["client_id"], {"status": "disabled"})
        else:
            update_organization(make.actor(make.root()), open_to_all.slug, {"status": "suspended"})
    moved = GOOD | {"client_id": told["client_id"], "redirect_uris": ["https://elsewhere.example/"]}
    for method, body in (("GET", {}), ("PUT", moved), ("DELETE", {})):
        answer = own(http, told, method, **body)
        assert (answer.status_code, answer.get_json()["error"]) == (403, "access_denied")
    stranger = own(http, told | {"registration_access_token": "x"}, "GET")
    assert stranger.status_code == 401
