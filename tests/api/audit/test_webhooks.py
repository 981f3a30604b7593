"""Webhooks: representations, secrets that are shown once, versions, repeated requests."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from flask.testing import FlaskClient

from tests.factories import Factory, bearer_header

FIELDS = {"url": "https://hooks.example/in", "event_types": ["user.*"], "description": "CRM"}


@pytest.fixture
def token(make: Factory) -> dict[str, str]:
    return bearer_header(make.bearer(make.organization("acme")))


def made(http: FlaskClient, token: dict[str, str], **headers: str) -> Any:
    answer = http.post("/webhooks", json=FIELDS, headers=token | headers)
    assert answer.status_code == 201, answer.text
    return answer


def test_signing_secret_is_only_in_first_response(http: FlaskClient, token: dict[str, str]) -> None:
    answer = made(http, token)
    data = answer.get_json()["data"]
    secret = data.pop("signing_secret")
    assert secret.startswith("whsec_")
    assert answer.headers["Location"] == f"/webhooks/{data['id']}"
    assert data | {"created_at": 0, "updated_at": 0, "id": 0, "created_by": 0} == {
        **FIELDS,
        "id": 0,
        "status": "enabled",
        "disabled_reason": None,
        "failing_since": None,
        "previous_secret_expires_at": None,
        "created_at": 0,
        "created_by": 0,
        "updated_at": 0,
    }
    for path in ("/webhooks", f"/webhooks/{data['id']}", "/audit-events"):
        assert secret not in http.get(path, headers=token).text


def test_idempotency_key_creates_one_webhook_and_hides_secret(
    http: FlaskClient, token: dict[str, str]
) -> None:
    key = {"Idempotency-Key": "one"}
    first = made(http, token, **key).get_json()
    second = made(http, token, **key).get_json()
    assert second["meta"] == {"repeated": True} and "signing_secret" not in second["data"]
    assert first["data"]["id"] == second["data"]["id"]
    address = f"/webhooks/{first['data']['id']}/secret"
    rotated = http.post(address, json={}, headers=token | key)
    again = http.post(address, json={}, headers=token | key)
    assert "signing_secret" in rotated.get_json()["data"] and "signing_secret" not in again.get_json()["data"]


def test_update_requires_current_version(http: FlaskClient, token: dict[str, str]) -> None:
    answer = made(http, token)
    address, tag = answer.headers["Location"], answer.headers["ETag"]
    changed = http.put(address, json={"status": "disabled"}, headers=token | {"If-Match": tag})
    assert changed.get_json()["meta"] == {"changed": ["status"]}
    assert changed.get_json()["data"]["disabled_reason"] == "manual"
    stale = http.delete(address, headers=token | {"If-Match": tag})
    assert stale.status_code == 412
    assert http.delete(address, headers=token | {"If-Match": changed.headers["ETag"]}).status_code == 200
    assert http.get(address, headers=token).status_code == 404


def test_test_event_is_listed_as_delivery(http: FlaskClient, token: dict[str, str]) -> None:
    address = made(http, token).headers["Location"]
    sent = http.post(f"{address}/test", headers=token)
    assert sent.status_code == 202
    delivery = sent.get_json()["data"]
    assert (delivery["event_type"], delivery["status"], delivery["attempts"]) == (
        "webhook.test",
        "pending",
        0,
    )
    listed = http.get(f"{address}/deliveries", headers=token).get_json()
    assert listed["data"] == [delivery] and listed["meta"] == {"next_cursor": None}
    shown = http.get(f"{address}/deliveries/{delivery['id']}", headers=token).get_json()["data"]
    assert shown["body"]["type"] == "webhook.test"
    again = http.post(f"{address}/deliveries/{delivery['id']}/redeliver", headers=token)
    assert again.status_code == 202 and again.get_json()["data"]["id"] == delivery["id"]


def test_deliveries_are_paged_and_cursor_is_bound_to_list(http: FlaskClient, token: dict[str, str]) -> None:
    address, other = (made(http, token).headers["Location"] for _ in range(2))
    sent = [http.post(f"{address}/test", headers=token).get_json()["data"]["id"] for _ in range(3)]
    first = http.get(f"{address}/deliveries?limit=2", headers=token).get_json()
    cursor = first["meta"]["next_cursor"]
    second = http.get(f"{address}/deliveries?limit=2&cursor={cursor}", headers=token).get_json()
    assert [one["id"] for one in first["data"] + second["data"]] == sent[::-1]
    assert http.get(f"{other}/deliveries?cursor={cursor}", headers=token).status_code == 400


def test_sent_event_matches_the_document(http: FlaskClient, token: dict[str, str], make: Factory) -> None:
    """Compare the callbacks of the OpenAPI document with real requests."""
    document = http.get("/openapi.json").get_json()
    everything = http.post("/webhooks", json=FIELDS | {"event_types": ["*"]}, headers=token)
    address = everything.headers["Location"]
    http.post("/clients", json={"name": "New", "redirect_uris": ["https://new.example/cb"]}, headers=token)
    http.put("/settings", json={"branding": {"theme": "dark"}}, headers=token)
    http.post(f"{address}/test", headers=token)
    callbacks = document["paths"]["/webhooks"]["post"]["callbacks"]
    checked = set()
    for one in http.get(f"{address}/deliveries", headers=token).get_json()["data"]:
        body = http.get(f"{address}/deliveries/{one['id']}", headers=token).get_json()["data"]["body"]
        request = callbacks[one["event_type"]]["{$request.body#/url}"]["post"]["requestBody"]
        described = request["content"]["application/json"]
        schema = {**described["schema"], "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(body)
        checked.add(one["event_type"])
    assert {"client.registered", "webhook.test"} <= checked
