"""Bad input for every field of every endpoint: 400 in the envelope, naming the field (JS-3, JS-4, TN-12)."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.rules.fields import MAX_UNKNOWN
from tests.factories import Factory, bearer_header
from tests.support.cases import each
from tests.support.openapi import Operation, operations, places, refused_values, with_value
from tests.support.world_rows import ISSUER, access_requested, linked, wanted

pytestmark = pytest.mark.either

SLUG = "acme-bad"
# Minimal valid bodies. Each test makes one part invalid.
GOOD: dict[str, dict[str, Any]] = {
    "registerClient": {"name": "New", "redirect_uris": ["https://new.example/cb"]},
    "updateClient": {},
    "changeClientOwner": {"email": "somebody@example.com"},
    "createCredential": {},
    "rotateCredential": {},
    "updateRotation": {},
    "revokeTokens": {"all": True, "dry_run": True},
    "createUser": {"email": "newcomer@example.com"},
    "updateUser": {},
    "transferOwnership": {"email": "somebody@example.com"},
    "createGroup": {"name": "Pickers"},
    "updateGroup": {},
    "addGroupMember": {"email": "somebody@example.com"},
    "assignRole": {"role": "editor", "email": "somebody@example.com"},
    "createRegistrationToken": {"name": "For the laboratory"},
    "createWebhook": {"url": "https://hooks.example/in", "event_types": ["*"]},
    "updateWebhook": {},
    "rotateWebhookSecret": {},
    "createIdentityProvider": {
        "slug": "new",
        "name": "New",
        "issuer": ISSUER,
        "client_id": "x",
        "client_secret": "x",
    },
    "updateIdentityProvider": {},
    "rotateSigningKey": {},
    "createOrganization": {"name": "Newly founded"},
    "updateOrganization": {},
    "updateSettings": {},
    "createResource": {"identifier": "https://new.example/api", "name": "New"},
    "updateResource": {},
    "changeResourceOwner": {"email": "somebody@example.com"},
    "updateScope": {},
    "createRole": {"id": "helper", "permissions": ["clients:read"]},
    "updateRole": {},
    "approveClientRequest": {},
    "declineClientRequest": {},
    "giveClientAccess": {"scopes": []},
    "requestClientAccess": {"scopes": [], "reason": "For the harvest."},
    "approveClientAccess": {},
    "declineClientAccess": {},
    "withdrawClientAccess": {},
    "updateInstanceLimits": {},
    "addAdministrator": {"email": "somebody@example.com"},
    "revokeToken": {"organization_id": SLUG, "token_type": "access_token", "token": "unknown"},
}
# Mutually exclusive fields: the error may name the other one.
_ALSO_NAMED = {"user_id": {"email", "name"}, "email": {"user_id"}}


@pytest.fixture
def api(http: FlaskClient, make: Factory) -> Api:
    root = make.root()
    acme = make.organization(SLUG)
    client = make.client(acme, app_roles=[{"key": "editor"}])
    document = http.get("/openapi.json").get_json()
    token = make.bearer(acme)
    fields = {"identifier": "urn:api", "name": "API"}
    resource = http.post("/resources", json=fields, headers=bearer_header(token)).get_json()["data"]["id"]
    hook = {"url": "https://hooks.example/in", "event_types": ["*"]}
    webhook = http.post("/webhooks", json=hook, headers=bearer_header(token)).get_json()["data"]["id"]
    ids = {"clientId": client.client_id, "resourceId": resource, "userId": make.user(acme).public_id}
    role = {"id": "keeper", "permissions": ["clients:read"]}
    assert http.post("/roles", json=role, headers=bearer_header(token)).status_code == 201
    path = f"/organizations/{SLUG}/groups"
    group = http.post(path, json={"name": "Keepers"}, headers=bearer_header(token)).get_json()["data"]["id"]
    ids["groupId"] = group
    with http.application.app_context():
        ids["clientAccessId"] = access_requested(client, resource)
        ids["providerId"], ids["identityId"] = linked(make.actor(acme), "example", ids["userId"])
        ids |= {"webhookId": webhook, "roleId": "keeper", "clientRequestId": wanted(client, make.user(acme))}
    return Api(http, document, make.bearer(root), token, ids)


class Api:
    """Call operations with a body or query that is invalid in one place."""

    def __init__(
        self, http: FlaskClient, document: dict[str, Any], root: str, acme: str, ids: dict[str, str]
    ) -> None:
        self.http, self.document = http, document
        self.ids = ids | {"id": SLUG, "scopeName": "openid"}
        of_root = (
            "createOrganization",
            "updateOrganization",
            "getInstanceLimits",
            "updateInstanceLimits",
        )
        self.tokens = dict.fromkeys(of_root, root)
        self.default = acme

    def operations(self) -> list[Operation]:
        return [operation for operation in operations(self.document) if operation.is_management]

    def send(self, operation: Operation, **request: Any) -> TestResponse:
        path = operation.path
        for name, value in self.ids.items():
            path = path.replace(f"{{{name}}}", value)
        token = self.tokens.get(operation.id, self.default)
        headers = {**bearer_header(token), **request.pop("headers", {})}
        return self.http.open(path, method=operation.method.upper(), headers=headers, **request)


def _is_refusal_of(answer: TestResponse, field: str) -> bool:
    if answer.status_code != 400:
        return False
    body = answer.get_json()
    named = {error["field"] for error in body["errors"]}
    also = _ALSO_NAMED.get(field, set())
    return body["success"] is False and any(
        name == field or name.startswith((f"{field}[", f"{field}.")) or name in also for name in named
    )


def test_every_operation_with_a_body_is_covered(api: Api) -> None:
    assert {operation.id for operation in api.operations() if operation.body is not None} == set(GOOD)


# The fields of instance limits are paths of settings, in which dots do not mean nesting. Separate tests cover them.
@pytest.mark.parametrize("name", sorted(GOOD.keys() - {"updateInstanceLimits"}))
def test_js4_every_field_rejects_other_types_and_values_out_of_bounds(api: Api, name: str) -> None:
    operation = next(operation for operation in api.operations() if operation.id == name)
    assert operation.body is not None
    tried = 0
    for path, schema in places(api.document, operation.body):
        for value in refused_values(api.document, schema):
            body = with_value(GOOD[name], path, value)
            answer = api.send(operation, json=body)
            assert _is_refusal_of(answer, path), (path, value, answer.status_code, answer.text)
            tried += 1
    assert tried >= 3 or not list(places(api.document, operation.body))


@each("name", GOOD)
def test_tn12_unknown_and_privileged_fields_are_rejected(api: Api, name: str) -> None:
    operation = next(operation for operation in api.operations() if operation.id == name)
    for field in ("zz", "org_id", "is_root", "created_at", "__proto__", "version", "email_verified"):
        answer = api.send(operation, json={**GOOD[name], field: "x"})
        assert _is_refusal_of(answer, field), (field, answer.text)


def test_field_of_a_body_that_is_not_read_is_rejected(api: Api) -> None:
    tried = set()
    for operation in api.operations():
        if operation.method.upper() == "GET" or "requestBody" in operation.document:
            continue
        tried.add(operation.id)
        for field in ("zz", *(parameter["name"] for parameter in operation.parameters)):
            answer = api.send(operation, json={field: "x"})
            assert _is_refusal_of(answer, field), (operation.id, answer.text)
        answer = api.send(operation, data=b"{bad", content_type="application/json")
        assert answer.status_code == 400, (operation.id, answer.text)
    assert {"revokeCredential", "revokeCredentials", "deleteClient", "redeliverWebhook"} <= tried


def test_errors_of_a_body_that_is_not_read_are_bounded(api: Api) -> None:
    path, sent = f"/clients/{api.ids['clientId']}", {f"zz{number}": 1 for number in range(2000)}
    answer = api.http.delete(path, headers=bearer_header(api.default), json=sent)
    assert answer.status_code == 400 and len(answer.get_json()["errors"]) <= MAX_UNKNOWN


def test_empty_body_of_a_delete_is_accepted(api: Api) -> None:
    path = f"/clients/{api.ids['clientId']}/credentials"
    for request in ({"json": {}}, {"data": b"", "content_type": "text/plain"}):
        answer = api.http.delete(path, headers=bearer_header(api.default), **request)
        assert answer.status_code == 200, answer.text


NO_OBJECTS: tuple[tuple[bytes, int], ...] = (
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b"null", 400),
    (b'"x"', 400),
    (b"5", 400),
    (b'{"name": NaN}', 400),
    (b'{"a": 1, "a": 2}', 400),
    (b'{"a": "\\u0000"}', 400),
    (b'{"a": "\\ud800"}', 400),
    (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", 400),
    (b'{"a": 9007199254740993}', 400),
    (b'\xef\xbb\xbf{"a": 1}', 400),
    ('{"a": "ü"}'.encode("latin-1"), 400),
    ('{"a": 1}'.encode("utf-16"), 400),
    (b'{"a": "' + b"x" * 70_000 + b'"}', 413),
)
NO_JSON = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/merge-patch+json",
    "",
    "application/json; charset=utf-16",
)


@pytest.mark.slow
def test_js1_js2_js3_body_must_be_a_strict_json_object(api: Api) -> None:
    for operation in api.operations():
        if operation.body is None:
            continue
        for body, status in NO_OBJECTS:
            if not body and not operation.document["requestBody"]["required"]:
                continue  # No body at all is an empty one where every field may be left out.
            answer = api.send(operation, data=body, content_type="application/json")
            envelope = answer.get_json()
            assert (answer.status_code, envelope["error_code"], envelope["success"]) == (
                status,
                status,
                False,
            ), (
                operation.id,
                body[:40],
                answer.text,
            )
        for kind in NO_JSON:
            answer = api.send(operation, data=b'{"name": "x"}', content_type=kind)
            assert answer.status_code == answer.get_json()["error_code"] == 415, (
                operation.id,
                kind,
                answer.text,
            )


@pytest.mark.slow
def test_every_query_parameter_rejects_values_outside_its_schema(api: Api) -> None:
    for operation in api.operations():
        for parameter in operation.parameters:
            if parameter["in"] != "query" or parameter["name"] == "organization_id":
                continue
            for value in refused_values(api.document, parameter["schema"]):
                if isinstance(value, (dict, list, bool)) or value is None:
                    continue
                if parameter["schema"].get("type") == "string" and not isinstance(value, str):
                    continue
                answer = api.send(
                    operation, query_string={parameter["name"]: value}, json=GOOD.get(operation.id)
                )
                assert _is_refusal_of(answer, parameter["name"]), (
                    operation.id,
                    parameter["name"],
                    value,
                    answer.text,
                )


def test_unknown_or_repeated_query_parameter_is_rejected(api: Api) -> None:
    for operation in api.operations():
        body = GOOD.get(operation.id)
        answer = api.send(operation, query_string={"limti": "5"}, json=body)
        assert _is_refusal_of(answer, "limti"), (operation.id, answer.text)
    listing = next(operation for operation in api.operations() if operation.id == "listClients")
    assert _is_refusal_of(api.send(listing, query_string="limit=5&limit=6"), "limit")


def test_forged_cursor_is_rejected(api: Api) -> None:
    for operation in api.operations():
        if any(parameter["name"] == "cursor" for parameter in operation.parameters):
            for cursor in ("x", "AAAA", "é", "eyJhIjoxfQ"):
                assert _is_refusal_of(api.send(operation, query_string={"cursor": cursor}), "cursor"), (
                    operation.id
                )


def test_malformed_if_match_is_rejected(api: Api) -> None:
    for operation in api.operations():
        if any(parameter["name"] == "If-Match" for parameter in operation.parameters):
            answer = api.send(operation, headers={"If-Match": "latest"}, json=GOOD.get(operation.id))
            assert answer.status_code == 400, (operation.id, answer.text)


def test_malformed_idempotency_key_is_rejected(api: Api) -> None:
    for operation in api.operations():
        if any(parameter["name"] == "Idempotency-Key" for parameter in operation.parameters):
            for key in ("", "x" * 300, "a b"):
                answer = api.send(operation, headers={"Idempotency-Key": key}, json=GOOD.get(operation.id))
                assert answer.status_code == 400, (operation.id, key, answer.text)
