"""Clients: requests, responses, versions, repeated requests."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.factories import Factory, bearer_header
from tests.support.answers import version_of
from tests.support.databases import Database

GOOD: dict[str, Any] = {
    "name": "Orchard",
    "redirect_uris": ["https://orchard.example/callback"],
    "scopes": ["openid", "email"],
}
FIELDS = {
    *("client_id", "organization_id", "name", "type", "redirect_uris", "post_logout_redirect_uris", "scopes"),
    *("optional_scopes", "grant_types", "response_types", "token_endpoint_auth_method", "jwks", "jwks_uri"),
    "any_secret_method",
    *("client_uri", "logo_uri", "policy_uri", "tos_uri", "contacts", "backchannel_logout_uri"),
    *("backchannel_logout_session_required", "initiate_login_uri", "subject_type", "sector_identifier_uri"),
    *("default_max_age", "require_auth_time", "default_acr_values"),
    *(
        "id_token_signed_response_alg",
        "id_token_claims",
        "userinfo_signed_response_alg",
        "introspection_signed_response_alg",
    ),
    *("request_object_signing_alg", "require_signed_request_object", "token_endpoint_auth_signing_alg"),
    *(
        "access_token_format",
        "dpop_bound_access_tokens",
        "security_profile",
        "software_id",
        "software_version",
    ),
    *("require_pushed_authorization_requests", "require_pkce", "resources", "token_exchange"),
    *("trust", "approval", "approved_scopes", "status", "description", "metadata"),
    *(
        "source",
        "metadata_document_uri",
        "created_at",
        "created_by",
        "owner_id",
        "updated_at",
        "last_used_at",
    ),
    *("pkce_used_at", "pkce_omitted_at", "app_roles", "claim_mappings"),
}


@pytest.fixture
def token(make: Factory) -> dict[str, str]:
    return bearer_header(make.bearer(make.organization("acme")))


def register(http: FlaskClient, token: dict[str, str], **changes: Any) -> Any:
    answer = http.post("/clients", json={**GOOD, **changes}, headers=token)
    assert answer.status_code == 201, answer.text
    return answer


def test_registration_returns_client_and_secret(http: FlaskClient, token: dict[str, str]) -> None:
    answer = register(http, token)
    data = answer.get_json()["data"]
    assert set(data) == FIELDS | {"client_secret", "credential_id", "client_secret_expires_at"}
    assert (data["organization_id"], data["type"], data["trust"]) == ("acme", "web", "unverified")
    assert data["client_secret"].startswith("gth_cs_")
    assert data["created_at"].endswith("Z")
    assert answer.headers["Location"] == f"/clients/{data['client_id']}"
    assert answer.headers["ETag"] == '"v1"'
    shown = http.get(answer.headers["Location"], headers=token)
    assert set(shown.get_json()["data"]) == FIELDS
    assert version_of(shown) == "v1"
    listed = http.get("/clients?q=orchard", headers=token).get_json()["data"]
    assert listed == [shown.get_json()["data"]]


def test_public_client_has_no_secret(http: FlaskClient, token: dict[str, str]) -> None:
    assert "client_secret" not in register(http, token, type="spa").get_json()["data"]


def test_new_scope_causes_warning(http: FlaskClient, token: dict[str, str]) -> None:
    body = register(http, token, scopes=["openid", "orders:read"]).get_json()
    assert len(body["meta"]["warnings"]) == 1


def test_all_invalid_fields_are_reported_at_once(
    http: FlaskClient, token: dict[str, str], database: Database
) -> None:
    before = database.count("clients")
    sent = {
        "nmae": "x",
        "redirect_uris": ["http://a.example/", 3],
        "scopes": "openid",
        "trust": None,
        "id": "x",
    }
    answer = http.post("/clients", json=sent, headers=token)
    assert answer.status_code == 400
    found = {error["field"]: error["code"] for error in answer.get_json()["errors"]}
    assert found == {
        "name": "required",
        "nmae": "unknown_field",
        "id": "unknown_field",
        "redirect_uris[0]": "not_https",
        "redirect_uris[1]": "wrong_type",
        "scopes": "wrong_type",
    }
    assert database.count("clients") == before


@pytest.mark.parametrize("name", ["client_id", "created_at", "client_secret", "status"])
def test_read_only_field_is_rejected(http: FlaskClient, token: dict[str, str], name: str) -> None:
    """TN-12."""
    answer = http.post("/clients", json={**GOOD, name: "active"}, headers=token)
    assert answer.get_json()["errors"][0]["code"] == "read_only"


def test_body_may_repeat_organization_but_not_name_another(http: FlaskClient, token: dict[str, str]) -> None:
    assert register(http, token, organization_id="acme").get_json()["data"]["organization_id"] == "acme"
    answer = http.post("/clients", json={**GOOD, "organization_id": "globex"}, headers=token)
    assert answer.status_code == 400
    assert answer.get_json()["errors"][0]["field"] == "organization_id"


def test_update_keeps_omitted_fields(http: FlaskClient, token: dict[str, str]) -> None:
    path = register(http, token, description="Old").headers["Location"]
    answer = http.put(path, json={"name": "Quince", "description": None}, headers=token)
    body = answer.get_json()
    assert answer.status_code == 200
    assert body["meta"]["changed"] == ["name", "description"]
    assert (body["data"]["name"], body["data"]["description"]) == ("Quince", "")
    assert body["data"]["redirect_uris"] == GOOD["redirect_uris"]
    assert answer.headers["ETag"] == '"v2"'
    assert http.put(path, json={}, headers=token).get_json()["meta"]["changed"] == []


@pytest.mark.parametrize(
    ("tag", "status"),
    [('"v2"', 200), ("*", 200), ('"v1", "v2"', 200), ('"v1"', 412), ('"v3"', 412), ('W/"v2"', 412), ('"x"', 412),
     ("v2", 400), ("2", 400), ('"v2', 400), ("", 400)],
)  # fmt: skip
def test_stale_if_match_is_rejected(http: FlaskClient, token: dict[str, str], tag: str, status: int) -> None:
    path = register(http, token).headers["Location"]
    http.put(path, json={"name": "Quince"}, headers=token)
    answer = http.put(path, json={"name": "Pear"}, headers={**token, "If-Match": tag})
    assert answer.status_code == status
    assert http.get(path, headers=token).get_json()["data"]["name"] == ("Pear" if status == 200 else "Quince")
    if status == 412:
        assert http.delete(path, headers={**token, "If-Match": tag}).status_code == 412


def test_deletion_returns_counts_of_what_was_revoked(http: FlaskClient, make: Factory) -> None:
    organization = make.organization()
    token = bearer_header(make.bearer(organization))
    machine = make.machine(organization, "clients:read")
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    theirs = bearer_header(answer.get_json()["access_token"])
    deleted = http.delete(f"/clients/{machine.client_id}", headers=token)
    assert deleted.get_json()["data"]["revoked"] == {
        "access_tokens": 1,
        "grants": 0,
        "consents": 0,
        "credentials": 1,
    }
    assert http.get("/clients", headers=theirs).status_code == 401
    again = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    assert again.status_code == 401
    assert http.delete(f"/clients/{machine.client_id}", headers=token).status_code == 404


def test_repeated_post_runs_once(http: FlaskClient, token: dict[str, str], database: Database) -> None:
    """JS-9: the repeated response is the first one without the secret, which is not stored."""
    keyed = {**token, "Idempotency-Key": "order-17"}
    first = http.post("/clients", json=GOOD, headers=keyed)
    count = database.count("clients")
    second = http.post("/api/v1/clients", json=dict(reversed(GOOD.items())), headers=keyed)
    assert (first.status_code, second.status_code) == (201, 201)
    assert database.count("clients") == count
    made, repeated = first.get_json(), second.get_json()
    secret = made["data"].pop("client_secret")
    assert repeated["data"] == made["data"]
    assert repeated["meta"]["repeated"] is True
    assert second.headers["Location"] == first.headers["Location"]
    assert secret.encode() not in database.dump()


def test_idempotency_key_is_bound_to_body_caller_and_path(
    http: FlaskClient, token: dict[str, str], make: Factory
) -> None:
    keyed = {**token, "Idempotency-Key": "k"}
    path = http.post("/clients", json=GOOD, headers=keyed).headers["Location"]
    other_body = http.post("/clients", json={**GOOD, "name": "Quince"}, headers=keyed)
    assert other_body.status_code == 409
    assert other_body.get_json()["error"] == "idempotency_key_reused"
    assert http.post(f"{path}/credentials", json={}, headers=keyed).status_code == 201
    other = {**bearer_header(make.bearer(make.organization())), "Idempotency-Key": "k"}
    assert "client_secret" in http.post("/clients", json=GOOD, headers=other).get_json()["data"]


def test_key_repeats_nothing_for_a_token_with_fewer_permissions(http: FlaskClient, make: Factory) -> None:
    machine = make.machine(make.organization(), "clients:write", "audit:read")
    for scope, status in (("clients:write", 201), ("audit:read", 403), ("clients:write audit:read", 201)):
        sent = {"grant_type": "client_credentials", "scope": scope}
        issued = http.post("/oauth/token", data=sent, headers=machine.basic).get_json()["access_token"]
        keyed = {**bearer_header(issued), "Idempotency-Key": "k"}
        assert http.post("/clients", json=GOOD, headers=keyed).status_code == status, scope


def test_rejected_post_does_not_use_its_idempotency_key(http: FlaskClient, token: dict[str, str]) -> None:
    keyed = {**token, "Idempotency-Key": "k"}
    assert http.post("/clients", json={"name": 3}, headers=keyed).status_code == 400
    assert http.post("/clients", json=GOOD, headers=keyed).status_code == 201


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "é", "a\tb"])
def test_malformed_idempotency_key_is_rejected(http: FlaskClient, token: dict[str, str], key: str) -> None:
    answer = http.post("/clients", json=GOOD, headers={**token, "Idempotency-Key": key})
    assert answer.status_code == 400
    assert answer.get_json()["errors"][0]["field"] == "Idempotency-Key"
