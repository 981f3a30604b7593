"""Credentials of clients."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.factories import Factory, MadeClient, bearer_header

FIELDS = {
    *("id", "client_id", "name", "hint", "status", "created_at", "created_by", "expires_at", "revoked_at"),
    *("last_used_at", "last_used_ip_address", "ip_addresses", "active_tokens", "verdict", "revealable"),
    *("first_used_at", "revokes_tokens_on_expiry"),
}


@pytest.fixture
def client(make: Factory) -> MadeClient:
    return make.client(make.organization())


@pytest.fixture
def token(make: Factory, client: MadeClient) -> dict[str, str]:
    return bearer_header(make.bearer(client.organization))


@pytest.fixture
def path(client: MadeClient) -> str:
    return f"/clients/{client.client_id}/credentials"


def data(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.get_json()["data"]


def test_list_contains_no_secrets(
    http: FlaskClient, token: dict[str, str], path: str, client: MadeClient
) -> None:
    [entry] = data(http.get(path, headers=token))
    assert set(entry) == FIELDS
    assert entry["hint"] == client.secret[-12:-8]
    assert client.secret not in http.get(path, headers=token).text


@pytest.mark.parametrize("reveal", ["list", "one"])
def test_secrets_are_included_when_requested(
    http: FlaskClient, token: dict[str, str], path: str, client: MadeClient, reveal: str
) -> None:
    [entry] = data(http.get(path, headers=token))
    where = path if reveal == "list" else f"{path}/{entry['id']}"
    shown = http.get(f"{where}?reveal=true", headers=token)
    found = data(shown)
    assert (found[0] if reveal == "list" else found)["client_secret"] == client.secret
    assert shown.headers["Cache-Control"] == "no-store"


def test_head_shows_and_counts_no_secret(http: FlaskClient, token: dict[str, str], path: str) -> None:
    [entry] = data(http.get(path, headers=token))
    for where in (path, f"{path}/{entry['id']}"):
        for _ in range(11):
            assert http.head(f"{where}?reveal=true", headers=token).status_code == 200
    assert "client_secret" in data(http.get(f"{path}/{entry['id']}?reveal=true", headers=token))


def test_every_invalid_field_of_a_new_secret_is_named(
    http: FlaskClient, token: dict[str, str], path: str
) -> None:
    sent = {"name": 5, "zz": 1, "retire_others_in_seconds": "soon"}
    answer = http.post(path, json=sent, headers=token)
    assert {error["field"] for error in answer.get_json()["errors"]} == sent.keys()


def test_viewing_secrets_is_rate_limited(http: FlaskClient, token: dict[str, str], path: str) -> None:
    answers = [http.get(f"{path}?reveal=true", headers=token) for _ in range(11)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [429]
    assert int(answers[-1].headers["Retry-After"]) > 0


def test_secrets_are_not_available_if_shown_once(http: FlaskClient, make: Factory) -> None:
    organization = make.organization(settings={"oauth": {"clients": {"secret_display": "once"}}})
    token = bearer_header(make.bearer(organization))
    path = f"/clients/{make.client(organization).client_id}/credentials"
    [entry] = data(http.get(f"{path}?reveal=true", headers=token))
    assert "client_secret" not in entry
    refused = http.get(f"{path}/{entry['id']}?reveal=true", headers=token)
    assert (refused.status_code, refused.get_json()["error"]) == (409, "not_revealable")


@pytest.mark.parametrize("body", [None, {}, {"name": "deploy", "retire_others_in_seconds": 60}])
def test_new_secret_is_only_in_first_response(
    http: FlaskClient, token: dict[str, str], path: str, client: MadeClient, body: dict[str, Any] | None
) -> None:
    answer = http.post(path, headers=token, **({} if body is None else {"json": body}))
    made = data(answer, 201)
    assert set(made) == FIELDS | {"client_secret", "retired"}
    assert answer.headers["Location"] == f"{path}/{made['id']}"
    assert data(http.get(answer.headers["Location"], headers=token))["name"] == made["name"]
    assert len(made["retired"]) == (1 if body and "retire_others_in_seconds" in body else 0)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"nmae": "x"}, {"nmae"}),
        ({"name": 3, "expires_at": 3}, {"name", "expires_at"}),
        ({"retire_others_in_seconds": True}, {"retire_others_in_seconds"}),
        ({"expires_at": "2001-01-01T00:00:00Z"}, {"expires_at"}),
        ({"client_secret": "mine"}, {"client_secret"}),
    ],
)
def test_invalid_terms_are_named(
    http: FlaskClient, token: dict[str, str], path: str, body: dict[str, Any], fields: set[str]
) -> None:
    answer = http.post(path, json=body, headers=token)
    assert answer.status_code == 400
    assert {error["field"] for error in answer.get_json()["errors"]} == fields


def test_rotation_can_be_started_and_cancelled(http: FlaskClient, token: dict[str, str], path: str) -> None:
    answer = http.post(f"{path}/rotation", headers=token)
    made = data(answer, 201)
    assert answer.headers["Location"] == f"{path}/{made['id']}"
    assert [entry["status"] for entry in made["retired"]] == ["expiring"]
    kept = data(http.delete(f"{path}/rotation", headers=token))
    assert [entry["status"] for entry in kept] == ["active", "active"]
    assert http.delete(f"{path}/rotation", headers=token).status_code == 409


def test_one_or_all_credentials_can_be_revoked(http: FlaskClient, token: dict[str, str], path: str) -> None:
    ids = [data(http.post(path, headers=token), 201)["id"] for _ in range(3)]
    by_path = data(http.delete(f"{path}/{ids[0]}", headers=token))
    assert by_path["revoked"] == {"credentials": 1, "tokens": 0}
    by_query = data(http.delete(f"{path}?credential_id={ids[1]}&revoke_tokens=true", headers=token))
    assert (by_query["credential_id"], by_query["revoked"]["credentials"]) == (ids[1], 1)
    assert data(http.delete(path, headers=token))["revoked"]["credentials"] == 2
    assert {entry["status"] for entry in data(http.get(path, headers=token))} == {"revoked"}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("revoke_tokens=yes", 400),
        ("revoke_token=true", 400),
        ("credential_id=", 400),
        ("credential_id=sec_x", 404),
    ],
)
def test_invalid_revocation_revokes_nothing(
    http: FlaskClient, token: dict[str, str], path: str, query: str, status: int
) -> None:
    assert http.delete(f"{path}?{query}", headers=token).status_code == status
    assert [entry["status"] for entry in data(http.get(path, headers=token))] == ["active"]


def test_repeated_post_creates_one_secret(http: FlaskClient, token: dict[str, str], path: str) -> None:
    keyed = {**token, "Idempotency-Key": "k"}
    first, second = (data(http.post(path, json={}, headers=keyed), 201) for _ in range(2))
    assert first["id"] == second["id"]
    assert "client_secret" not in second
    assert len(data(http.get(path, headers=token))) == 2
