"""Conventions of the whole JSON API: authentication, request bodies, parameters, envelopes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.factories import Factory, bearer_header
from tests.support.cases import each

pytestmark = pytest.mark.either

GOOD = {"name": "Orchard", "redirect_uris": ["https://orchard.example/callback"], "scopes": ["openid"]}


@pytest.fixture
def token(make: Factory) -> dict[str, str]:
    return bearer_header(make.bearer(make.organization()))


def refusal(answer: Any, status: int) -> dict[str, Any]:
    """Return the envelope of an error after checking its form."""
    assert answer.status_code == status, answer.text
    body = answer.get_json()
    assert body["success"] is False
    assert body["error_code"] == status
    assert isinstance(body["error_msg"], str)
    assert re.fullmatch(r"[a-z_]+", body["error"])
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.mimetype == "application/json"
    return body


def test_location_is_found_by_root_that_acts_in_an_organization(http: FlaskClient, make: Factory) -> None:
    headers = bearer_header(make.bearer(make.root()))
    slug = make.organization("acme-visited").slug
    made = http.post("/clients", query_string={"organization_id": slug}, json=GOOD, headers=headers)
    assert http.get(made.headers["Location"], headers=headers).get_json()["data"]["name"] == "Orchard"


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
def test_api_is_available_under_both_prefixes(http: FlaskClient, token: dict[str, str], prefix: str) -> None:
    made = http.post(f"{prefix}/clients", json=GOOD, headers=token)
    assert made.status_code == 201
    assert made.headers["Location"].startswith(f"{prefix}/clients/cli_")
    assert http.get(made.headers["Location"], headers=token).get_json()["data"]["name"] == "Orchard"
    listed = http.get(f"{prefix}/clients", headers=token)
    assert listed.get_json()["meta"] == {"next_cursor": None}
    assert listed.headers["Cache-Control"] == "no-store"


@each(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Token x",
        "Bearer x",
        "Bearer x y",
        "Bearer gth_at_000000000000000000000000000000000000000000000000000000000000",
        "Bearer " + "x" * 5000,
        "Bearer \xff",
        "bearer é",
    ],
)
def test_request_without_valid_token_is_unauthorized(http: FlaskClient, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = http.get("/clients", headers=headers)
    refusal(answer, 401)
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith('Bearer realm="http://localhost/management"')
    assert ('error="invalid_token"' in challenge) == (authorization is not None)


def test_session_cookie_is_not_accepted(http: FlaskClient, make: Factory) -> None:
    """CF-3."""
    user = make.user(make.organization(), role="admin")
    make.sign_in(user, http)
    refusal(http.get("/clients"), 401)
    refusal(http.post("/clients", json=GOOD), 401)


def test_token_in_url_is_rejected_as_unknown_parameter(http: FlaskClient, token: dict[str, str]) -> None:
    value = token["Authorization"].split()[1]
    refusal(http.get(f"/clients?access_token={value}"), 401)
    assert (
        refusal(http.get(f"/clients?access_token={value}", headers=token), 400)["errors"][0]["field"]
        == "access_token"
    )


def test_token_for_another_audience_is_rejected(http: FlaskClient, make: Factory) -> None:
    """TK-6."""
    machine = make.machine(make.organization(), "orders:read")
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    refusal(http.get("/clients", headers=bearer_header(answer.get_json()["access_token"])), 401)


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/clients", "clients:read"),
        ("POST", "/clients", "clients:write"),
        ("GET", "/clients/{id}", "clients:read"),
        ("PUT", "/clients/{id}", "clients:write"),
        ("DELETE", "/clients/{id}", "clients:write"),
        ("GET", "/clients/{id}/credentials", "credentials:read"),
        ("POST", "/clients/{id}/credentials", "credentials:write"),
        ("DELETE", "/clients/{id}/credentials", "credentials:write"),
    ],
)
def test_missing_scope_is_named(http: FlaskClient, make: Factory, method: str, path: str, scope: str) -> None:
    organization = make.organization()
    client_id = make.client(organization).client_id
    weak = bearer_header(make.bearer(organization, "audit:read"))
    body = {"json": GOOD} if method in {"POST", "PUT"} and "credentials" not in path else {}
    answer = http.open(path.format(id=client_id), method=method, headers=weak, **body)
    assert refusal(answer, 403)["required_scope"] == scope
    assert f'error="insufficient_scope", scope="{scope}"' in answer.headers["WWW-Authenticate"]


def test_scope_removed_from_client_is_lost_immediately(http: FlaskClient, make: Factory) -> None:
    organization = make.organization()
    admin = bearer_header(make.bearer(organization))
    machine = make.machine(organization, "clients:read", "audit:read")
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=machine.basic)
    mine = bearer_header(answer.get_json()["access_token"])
    assert http.get("/clients", headers=mine).status_code == 200
    http.put(f"/clients/{machine.client_id}", json={"scopes": ["audit:read"]}, headers=admin)
    refusal(http.get("/clients", headers=mine), 403)


def test_only_root_can_name_another_organization(http: FlaskClient, make: Factory) -> None:
    acme, globex = make.organization("acme"), make.organization("globex")
    client = make.client(acme)
    root, theirs = bearer_header(make.bearer(make.root())), bearer_header(make.bearer(globex))
    path = f"/clients/{client.client_id}"
    refusal(http.get(path, headers=root), 404)
    named = http.get(f"{path}?organization_id=acme", headers=root)
    assert named.get_json()["data"]["organization_id"] == "acme"
    there, nowhere = (
        http.get(f"/clients?organization_id={slug}", headers=theirs) for slug in ("acme", "nowhere")
    )
    assert {**refusal(there, 404), "request_id": ""} == {**refusal(nowhere, 404), "request_id": ""}
    assert http.get("/clients?organization_id=globex", headers=theirs).status_code == 200
    made = http.post("/clients?organization_id=acme", json=GOOD, headers=root).get_json()["data"]
    assert made["client_id"].startswith(f"cli_{acme.id}_")


@each(
    ("body", "kind", "status", "code"),
    [
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{}", "application/vnd.api+json", 415, "unsupported_media_type"),
        (b"{}", "application/json; charset=utf-16", 415, "unsupported_media_type"),
        (b"{}", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        (b"{}", None, 415, "unsupported_media_type"),
        (b"", "application/json", 400, "invalid_json"),
        (b"[]", "application/json", 400, "invalid_json"),
        (b"null", "application/json", 400, "invalid_json"),
        (b'{"name": NaN}', "application/json", 400, "invalid_json"),
        (b'{"name": "a", "name": "b"}', "application/json; charset=UTF-8", 400, "invalid_json"),
        (rb'{"name": "\ud800"}', "application/json", 400, "invalid_json"),
        (rb'{"name": "\u0000"}', "application/json", 400, "invalid_json"),
        (b"\xff", "application/json", 400, "invalid_json"),
        (b"[" * 60_000, "application/json", 400, "invalid_json"),
        (b'{"name": "' + b"x" * 65_536 + b'"}', "application/json", 413, "too_large"),
    ],
)
def test_body_must_be_strict_json(
    http: FlaskClient, token: dict[str, str], body: bytes, kind: str | None, status: int, code: str
) -> None:
    """JS-1 to JS-3."""
    answer = http.post("/clients", data=body, content_type=kind, headers=token)
    assert refusal(answer, status)["error"] == code


def test_unsupported_method_lists_allowed_methods(http: FlaskClient, token: dict[str, str]) -> None:
    """JS-7."""
    for path in ("/clients", "/api/v1/clients"):
        answer = http.patch(path, headers=token)
        refusal(answer, 405)
        assert {"GET", "POST"} <= set(answer.headers["Allow"].split(", "))


@pytest.mark.parametrize(
    "path", ["/clients/", "/clients/x/y", "/api/v1/nothing", "/api/v2/clients", "/organizations/x/y/z"]
)
def test_unknown_path_returns_envelope(http: FlaskClient, path: str) -> None:
    refusal(http.get(path), 404)


@each(
    ("query", "field", "code"),
    [
        ("limti=5", "limti", "unknown_parameter"),
        ("limit=0", "limit", "out_of_range"),
        ("limit=101", "limit", "out_of_range"),
        ("limit=-1", "limit", "out_of_range"),
        ("limit=1e1", "limit", "out_of_range"),
        ("limit=٣", "limit", "out_of_range"),
        ("limit=5&limit=6", "limit", "repeated"),
        ("limit=", "limit", "empty"),
        ("cursor=x", "cursor", "invalid_cursor"),
        ("cursor=!", "cursor", "invalid_cursor"),
        ("cursor=" + "A" * 64, "cursor", "invalid_cursor"),
        ("cursor=é", "cursor", "invalid_cursor"),
        ("sort=colour", "sort", "not_allowed"),
        ("type=server", "type", "not_allowed"),
        ("q=%00", "q", "malformed"),
        ("q=" + "x" * 1001, "q", "malformed"),
        ("reveal=true", "reveal", "unknown_parameter"),
    ],
)
def test_invalid_parameter_is_named(
    http: FlaskClient, token: dict[str, str], query: str, field: str, code: str
) -> None:
    error = refusal(http.get(f"/clients?{query}", headers=token), 400)["errors"][0]
    assert (error["field"], error["code"]) == (field, code)


def test_searches_ignore_spaces_around_the_text(http: FlaskClient, make: Factory) -> None:
    root = make.root()
    user, headers = make.user(root, email="grace@orchard.example"), bearer_header(make.bearer(root))
    client, other = make.client(root), make.organization("orchard", name="Orchard Group")
    identifier = "https://orchard.example/api"
    body = {"name": "Orchard", "identifier": identifier, "scopes": [{"name": "orchard:read"}]}
    assert http.post("/resources", json=body, headers=headers).status_code == 201
    for path, query in (
        ("/organizations", other.slug),
        ("/organizations", "Orchard G"),
        ("/resources", identifier),
        ("/scopes", "orchard:"),
        ("/clients", client.client_id),
        ("/users", user.public_id),
        ("/users", "Grace@ORCHARD"),
    ):
        found = http.get(path, query_string={"q": f" {query} "}, headers=headers).get_json()
        assert len(found["data"]) == 1, (path, query)


def test_cursor_is_bound_to_its_list(http: FlaskClient, make: Factory) -> None:
    """JS-8."""
    acme, globex = make.organization(), make.organization()
    for organization in (acme, globex):
        make.client(organization, name="Pear")
    mine, theirs = bearer_header(make.bearer(acme)), bearer_header(make.bearer(globex))
    cursor = http.get("/clients?limit=1", headers=mine).get_json()["meta"]["next_cursor"]
    page = http.get(f"/clients?limit=1&cursor={cursor}", headers=mine)
    assert len(page.get_json()["data"]) == 1
    assert http.get(f"/api/v1/clients?cursor={cursor}", headers=mine).status_code == 200
    for other in (f"/clients?cursor={cursor}&sort=-name", f"/clients?cursor={cursor}&q=a"):
        refusal(http.get(other, headers=mine), 400)
    refusal(http.get(f"/clients?cursor={cursor}", headers=theirs), 400)
    for position in range(0, len(cursor), 7):
        changed = "A" if cursor[position] != "A" else "B"
        forged = f"{cursor[:position]}{changed}{cursor[position + 1 :]}"
        refusal(http.get(f"/clients?cursor={forged}", headers=mine), 400)


def test_short_lists_come_in_pages_too(http: FlaskClient, make: Factory) -> None:
    """Three lists of a few dozen entries: pages of one hold the same, and an entry that is gone ends them."""
    client = make.client(make.organization())
    headers = bearer_header(make.bearer(client.organization))
    secrets = f"/clients/{client.client_id}/credentials"
    assert http.post(secrets, json={}, headers=headers).status_code == 201
    for role in ("clerk", "driver"):
        body = {"id": role, "permissions": ["users:read"]}
        assert http.post("/roles", json=body, headers=headers).status_code == 201
    keys = f"/organizations/{client.organization.slug}/signing-keys"
    for algorithm in ("EdDSA", "ES256"):
        rotated = http.post(f"{keys}/rotations", json={"algorithm": algorithm}, headers=headers)
        assert rotated.status_code == 201
    for path in (secrets, "/roles", keys):
        whole = http.get(f"{path}?limit=100", headers=headers)
        found, cursor = [], ""
        while cursor is not None:
            page = http.get(f"{path}?limit=1{cursor}", headers=headers).get_json()
            found += page["data"]
            following = page["meta"]["next_cursor"]
            cursor = following and f"&cursor={following}"
        assert found == whole.get_json()["data"]
        assert len(found) > 1
    first = http.get("/roles?limit=100", headers=headers).get_json()["data"]
    limit = [role["id"] for role in first].index("clerk") + 1
    cursor = http.get(f"/roles?limit={limit}", headers=headers).get_json()["meta"]["next_cursor"]
    assert http.delete("/roles/clerk", headers=headers).status_code == 200
    answer = http.get(f"/roles?limit={limit}&cursor={cursor}", headers=headers)
    assert refusal(answer, 400)["errors"][0]["code"] == "invalid_cursor"


def test_internal_error_reveals_no_details(
    http: FlaskClient, token: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.operations.clients import client_records

    def fail(*_arguments: Any, **_named: Any) -> None:
        raise RuntimeError("SELECT secret FROM somewhere")

    monkeypatch.setattr(client_records, "list_clients", fail)
    monkeypatch.setattr(http.application, "testing", False)
    answer = http.get("/clients", headers=token)
    assert refusal(answer, 500)["error"] == "internal_error"
    assert "SELECT" not in json.dumps(answer.get_json())
