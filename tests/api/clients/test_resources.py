"""Resources and scopes, and the metadata of the management API (RFC 9728)."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from app.rules.directory.permissions import PERMISSIONS
from tests.factories import Factory, bearer_header

GOOD: dict[str, Any] = {
    "identifier": "https://mcp.example/v1/server",
    "name": "Orders",
    "scopes": [{"name": "orders:read", "title": "See your orders", "description": None}],
}


@pytest.fixture
def token(make: Factory) -> dict[str, str]:
    return bearer_header(make.bearer(make.organization("acme")))


def define(http: FlaskClient, token: dict[str, str], **changes: Any) -> Any:
    answer = http.post("/resources", json={**GOOD, **changes}, headers=token)
    assert answer.status_code == 201, answer.text
    return answer


def test_resource_is_created_read_updated_and_deleted(http: FlaskClient, token: dict[str, str]) -> None:
    made = define(http, token)
    data = made.get_json()["data"]
    there = made.headers["Location"]
    assert there == f"/resources/{data['id']}"
    assert {name: data[name] for name in GOOD} == GOOD
    assert (data["organization_id"], data["status"], made.headers["ETag"]) == ("acme", "active", '"v1"')
    assert http.get(there, headers=token).get_json()["data"] == data
    changed = http.put(there, json={"name": "Order book"}, headers={**token, "If-Match": '"v1"'})
    assert changed.get_json()["meta"] == {"changed": ["name"]}
    assert changed.headers["ETag"] == '"v2"'
    stale = http.put(there, json={"name": "X"}, headers={**token, "If-Match": '"v1"'})
    assert stale.status_code == 412
    assert http.get("/api/v1/resources", headers=token).get_json()["data"][0]["name"] == "Order book"
    gone = http.delete(there, headers=token).get_json()["data"]
    assert gone == {"id": data["id"], "deleted": True, "removed": {"scopes": 1, "clients": 0}}
    assert http.get(there, headers=token).status_code == 404


def test_scopes_in_use_are_removed_only_if_confirmed(http: FlaskClient, token: dict[str, str]) -> None:
    there = define(http, token).headers["Location"]
    client = {"name": "X", "redirect_uris": ["https://x.example/cb"], "scopes": ["openid", "orders:read"]}
    client_id = http.post("/clients", json=client, headers=token).get_json()["data"]["client_id"]
    refused = http.delete(there, headers=token)
    assert (refused.status_code, refused.get_json()["error"]) == (409, "in_use")
    assert refused.get_json()["details"] == {"clients": 1}
    assert http.put(there, json={"scopes": []}, headers=token).status_code == 409
    gone = http.delete(there, query_string={"confirm": "true"}, headers=token)
    assert gone.get_json()["data"]["removed"] == {"scopes": 1, "clients": 1}
    shown = http.get(f"/clients/{client_id}", headers=token).get_json()["data"]
    assert shown["scopes"] == ["openid"]


def test_idempotency_key_creates_one_resource(http: FlaskClient, token: dict[str, str]) -> None:
    headers = {**token, "Idempotency-Key": "one"}
    first = http.post("/resources", json=GOOD, headers=headers).get_json()
    again = http.post("/resources", json=GOOD, headers=headers).get_json()
    assert again["data"] == first["data"]
    assert again["meta"] == {"repeated": True}
    assert http.post("/resources", json=GOOD, headers=token).status_code == 409


def test_misspelled_field_gets_suggestion(http: FlaskClient, token: dict[str, str]) -> None:
    answer = http.post("/resources", json={**GOOD, "identifer": "x"}, headers=token)
    assert answer.status_code == 400
    assert 'Did you mean "identifier"?' in answer.get_json()["errors"][0]["message"]


def test_scopes_are_listed_and_updated(http: FlaskClient, token: dict[str, str]) -> None:
    resource = define(http, token).get_json()["data"]["id"]
    listed = http.get("/scopes", query_string={"q": "orders"}, headers=token).get_json()["data"]
    expected = {
        "name": "orders:read",
        "title": "See your orders",
        "description": None,
        "is_identity": False,
        "resource_id": resource,
    }
    assert listed == [expected]
    refused = http.put("/scopes/orders:read", json={"title": "X"}, headers=token)
    assert (refused.status_code, refused.get_json()["error"]) == (409, "belongs_to_resource")
    first = http.get("/scopes/email", headers=token)
    words = {"title": "See where to write to you"}
    changed = http.put("/scopes/email", json=words, headers={**token, "If-Match": first.headers["ETag"]})
    assert changed.get_json()["meta"] == {"changed": ["title"]}
    assert changed.get_json()["data"]["title"] == words["title"]


def test_resource_metadata_contains_document_and_challenge(http: FlaskClient, token: dict[str, str]) -> None:
    """RFC 9728 sections 2, 3.1 and 5.1: the well-known path is between host and path."""
    there = define(http, token).headers["Location"]
    found = http.get(f"{there}/metadata", headers=token).get_json()["data"]
    address = "https://mcp.example/.well-known/oauth-protected-resource/v1/server"
    assert found == {
        "document": {
            "resource": GOOD["identifier"],
            "authorization_servers": ["http://localhost/organizations/acme"],
            "scopes_supported": ["orders:read"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Orders",
        },
        "url": address,
        "www_authenticate": f'Bearer resource_metadata="{address}"',
    }
    urn = define(http, token, identifier="urn:x", scopes=[]).headers["Location"]
    found = http.get(f"{urn}/metadata", headers=token).get_json()["data"]
    assert (found["url"], found["www_authenticate"]) == (None, None)
    assert "scopes_supported" not in found["document"]


def test_management_api_publishes_its_metadata(http: FlaskClient, make: Factory) -> None:
    """RFC 9728: from the 401 to the document, and from there to the issuer's metadata."""
    make.root()
    challenge = http.get("/clients").headers["WWW-Authenticate"]
    address = "http://localhost/.well-known/oauth-protected-resource/management"
    assert f'resource_metadata="{address}"' in challenge
    answer = http.get(address.removeprefix("http://localhost"))
    document = answer.get_json()
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert document["resource"] == "http://localhost/management"
    assert set(PERMISSIONS) <= set(document["scopes_supported"])
    assert document["bearer_methods_supported"] == ["header"]
    [server] = document["authorization_servers"]
    metadata = http.get(f"{server}/.well-known/oauth-authorization-server".removeprefix("http://localhost"))
    assert metadata.get_json()["issuer"] == server
