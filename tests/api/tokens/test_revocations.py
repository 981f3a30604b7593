"""POST /api/v1/revoke, as in the specification (RV-1 to RV-8)."""

from __future__ import annotations

from base64 import b64encode

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients.client_authentication import MAX_FAILURES
from app.operations.clients.credential_revocation import revoke_credentials
from tests.factories import Factory, MadeClient, basic_header, bearer_header
from tests.oauth.conftest import on_another_worker
from tests.support.databases import Database

REVOKE = "/api/v1/revoke"


def _token(http: FlaskClient, client: MadeClient) -> str:
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=client.basic)
    return str(answer.get_json()["access_token"])


def _is_alive(http: FlaskClient, client: MadeClient, token: str) -> bool:
    answer = http.post("/oauth/introspect", data={"token": token}, headers=client.basic)
    return bool(answer.get_json()["active"])


def _body(slug: str, token: str, kind: str = "access_token") -> dict[str, str]:
    return {"organization_id": slug, "token_type": kind, "token": token}


def _events(database: Database) -> int:
    rows = database.query("SELECT action FROM audit_events")
    return sum(bytes(row[0]) == b"token.revoked" for row in rows)


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
def test_rv3_rv5_token_is_revoked_whatever_type_was_sent(http: FlaskClient, make: Factory, kind: str) -> None:
    acme = make.organization()
    client = make.machine(acme, "clients:read")
    token = _token(http, client)
    assert _is_alive(http, client, token)
    headers = bearer_header(make.bearer(acme, "tokens:revoke"))
    answer = http.post(REVOKE, json=_body(acme.slug, token, kind), headers=headers)
    assert answer.status_code == 200
    assert answer.get_json() == {"success": True, "data": "Token revoked"}
    assert answer.mimetype == "application/json"
    assert not _is_alive(http, client, token)
    assert http.get("/clients", headers=bearer_header(token)).status_code == 401


def test_rv2_rv8_unknown_revoked_and_foreign_tokens_get_same_response(
    http: FlaskClient, make: Factory, database: Database
) -> None:
    acme, globex = make.organization(), make.organization()
    client, other = make.machine(acme), make.machine(globex)
    revoked, foreign = _token(http, client), _token(http, other)
    headers = bearer_header(make.bearer(acme))
    http.post(REVOKE, json=_body(acme.slug, revoked), headers=headers)
    for token in ("unknown", "x" * 5000, "gth_at_", "ü", revoked, foreign):
        answer = http.post(REVOKE, json=_body(acme.slug, token), headers=headers)
        assert (answer.status_code, answer.data) == (200, b'{"data": "Token revoked", "success": true}'), (
            token
        )
    assert _is_alive(http, other, foreign)
    assert _events(database) == 1


def test_client_can_revoke_only_its_own_tokens(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    client, other = make.machine(acme, "clients:read"), make.machine(acme, "clients:read")
    own, others = _token(http, client), _token(http, other)
    answer = http.post(REVOKE, json=_body(acme.slug, own), headers=client.basic)
    assert answer.status_code == 200 and not _is_alive(http, client, own)
    refused = http.post(REVOKE, json=_body(acme.slug, others), headers=client.basic)
    assert (refused.status_code, refused.get_json()["error_code"], refused.get_json()["success"]) == (
        400,
        400,
        False,
    )
    assert _is_alive(http, other, others)


def test_failures_from_one_network_do_not_lock_out_others(http: FlaskClient, make: Factory) -> None:
    """CA-5: the correct secret is accepted, also from a network without failures."""
    acme = make.organization()
    client = make.machine(acme, "clients:read")
    wrong = basic_header(client.client_id, make.machine(acme).secret)

    def attempt(headers: dict[str, str], address: str) -> int:
        answer = http.post(
            REVOKE,
            json=_body(acme.slug, "unknown"),
            headers=headers,
            environ_overrides={"REMOTE_ADDR": address},
        )
        return answer.status_code

    assert {attempt(wrong, "192.0.2.1") for _ in range(MAX_FAILURES)} == {401}
    assert attempt(wrong, "192.0.2.1") == 429
    assert attempt(wrong, "198.51.100.1") == 401
    assert attempt(client.basic, "192.0.2.1") == 200


def test_client_with_revoked_secret_is_unauthorized(http: FlaskClient, make: Factory) -> None:
    """F24: this worker still has the client with the old secret in its cache."""
    acme = make.organization()
    client = make.machine(acme, "clients:read")
    token = _token(http, client)
    with http.application.app_context(), on_another_worker():
        revoke_credentials(make.system(acme), client.client_id)
    answer = http.post(REVOKE, json=_body(acme.slug, token), headers=client.basic)
    assert answer.status_code == 401
    assert answer.get_json()["success"] is False


def test_client_secret_post_client_authenticates_with_basic(http: FlaskClient, make: Factory) -> None:
    """The body has exactly three fields."""
    acme = make.organization()
    client = make.machine(acme, "clients:read", token_endpoint_auth_method="client_secret_post")
    form = {"client_id": client.client_id, "client_secret": client.secret}
    issued = http.post("/oauth/token", data={"grant_type": "client_credentials", **form})
    token = issued.get_json()["access_token"]
    assert http.post(REVOKE, json=_body(acme.slug, token), headers=client.basic).status_code == 200
    assert not http.post("/oauth/introspect", data={"token": token, **form}).get_json()["active"]


def test_rv7_public_client_can_revoke_without_secret(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    public = make.client(acme, type="spa")
    named = {"Authorization": "Basic " + b64encode(f"{public.client_id}:".encode()).decode()}
    assert http.post(REVOKE, json=_body(acme.slug, "unknown"), headers=named).status_code == 200
    confidential = make.client(acme)
    named = {"Authorization": "Basic " + b64encode(f"{confidential.client_id}:".encode()).decode()}
    assert http.post(REVOKE, json=_body(acme.slug, "unknown"), headers=named).status_code == 401


def test_rv1_other_organization_is_rejected_except_for_root(http: FlaskClient, make: Factory) -> None:
    acme, globex, root = make.organization(), make.organization(), make.root()
    token = _token(http, make.machine(acme))
    for headers in (bearer_header(make.bearer(globex)), make.machine(globex).basic):
        answers = [
            http.post(REVOKE, json=_body(slug, token), headers=headers).get_json()
            for slug in (acme.slug, "never-was", "root")
        ]
        for answer in answers:
            assert answer.pop("request_id") and answer["error_code"] == 400
            assert answer["errors"][0]["field"] == "organization_id"
        assert answers[0] == answers[1] == answers[2]
    assert (
        http.post(REVOKE, json=_body(acme.slug, token), headers=bearer_header(make.bearer(root))).status_code
        == 200
    )
    assert http.get("/me", headers=bearer_header(token)).status_code == 401


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"token": None}, "token"),
        ({"token": ""}, "token"),
        ({"token": 0}, "token"),
        ({"token_type": "id_token"}, "token_type"),
        ({"organization_id": 5}, "organization_id"),
        ({"token_type_hint": "access_token"}, "token_type_hint"),
    ],
)
def test_invalid_body_is_400_in_envelope(
    http: FlaskClient, make: Factory, change: dict[str, object], field: str
) -> None:
    acme = make.organization()
    body = _body(acme.slug, "unknown") | change
    answer = http.post(REVOKE, json=body, headers=bearer_header(make.bearer(acme)))
    envelope = answer.get_json()
    assert (answer.status_code, envelope["success"], envelope["error_code"]) == (400, False, 400)
    assert field in {error["field"] for error in envelope["errors"]} and envelope["error_msg"]


def test_401_and_403_are_only_for_authentication(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    wrong = {"Authorization": "Basic " + b64encode(b"cli_x:secret").decode()}
    for headers in (
        {},
        bearer_header("unknown"),
        wrong,
        {"Authorization": "Basic !"},
        {"Authorization": "Digest x"},
    ):
        answer = http.post(REVOKE, json={}, headers=headers)
        assert answer.status_code == answer.get_json()["error_code"] == 401, headers
        assert answer.headers["WWW-Authenticate"]
    less = http.post(REVOKE, json={}, headers=bearer_header(make.bearer(acme, "clients:read")))
    assert (less.status_code, less.get_json()["required_scope"]) == (403, "tokens:revoke")


def test_revoke_is_only_available_under_prefix(http: FlaskClient, make: Factory) -> None:
    headers = bearer_header(make.bearer(make.organization()))
    assert http.post("/revoke", json={}, headers=headers).status_code == 404
    answer = http.get(REVOKE, headers=headers)
    assert (answer.status_code, answer.get_json()["error_code"]) == (405, 405)


def test_rv4_internal_error_is_an_envelope_and_never_200(
    app: Flask, http: FlaskClient, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.operations.tokens import revocation

    def fails(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    acme = make.organization()
    headers = bearer_header(make.bearer(acme))
    monkeypatch.setattr(revocation, "revoke_token", fails)
    monkeypatch.setitem(app.config, "PROPAGATE_EXCEPTIONS", False)
    answer = http.post(REVOKE, json=_body(acme.slug, "unknown"), headers=headers)
    envelope = answer.get_json()
    assert (answer.status_code, envelope["error_code"], envelope["success"]) == (500, 500, False)
    assert "a fault of ours" not in answer.text


def test_unknown_organization_error_differs_for_root(http: FlaskClient, make: Factory) -> None:
    body = {"organization_id": "never-was", "token_type": "access_token", "token": "unknown"}
    for organization, words in (
        (make.root(), "There is no such organization."),
        (make.organization(), "This is not your organization."),
    ):
        answer = http.post("/api/v1/revoke", json=body, headers=bearer_header(make.bearer(organization)))
        assert answer.status_code == 400
        assert answer.get_json()["errors"] == [
            {"field": "organization_id", "code": "unknown_organization", "message": words}
        ]
