"""Identity providers by API: representations, errors at their fields, a hidden secret, links of users."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.models.identity_provider import IdentityProvider
from app.operations.sign_in import identity_providers
from tests.factories import Factory, bearer_header
from tests.support.caches import clear_cached_providers
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.https_server import Response, reaching
from tests.support.identity_provider import CLIENT_SECRET, FakeProvider, identity_provider
from tests.support.signer import new_key
from tests.support.user_tokens import user_token
from tests.support.world_rows import linked

URL = "/identity-providers"


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization("acme")


@pytest.fixture
def token(make: Factory, acme: Any) -> dict[str, str]:
    return bearer_header(make.bearer(acme))


@pytest.fixture
def fake(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """A provider that the service may reach."""
    clear_cached_providers()
    with identity_provider() as running:
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], running.server))
        yield running


def made(http: FlaskClient, token: dict[str, str], fake: FakeProvider, **fields: Any) -> Any:
    answer = http.post(URL, json=fake.fields | fields, headers=token)
    assert answer.status_code == 201, answer.text
    return answer


def test_provider_is_created_read_updated_and_deleted(
    http: FlaskClient, token: dict[str, str], fake: FakeProvider, acme: Any
) -> None:
    created = made(http, token, fake)
    data = created.get_json()["data"]
    address = f"{URL}/{data['id']}"
    assert created.headers["Location"] == address
    assert data | {"id": 0, "created_at": 0, "created_by": 0, "updated_at": 0} == {
        **{name: value for name, value in fake.fields.items() if name != "client_secret"},
        "id": 0,
        "scopes": ["openid", "email", "profile"],
        **dict.fromkeys(("create_users", "link_users", "trust_emails"), False),
        "groups_claim": "groups",
        "status": "enabled",
        "redirect_uri": f"{acme.base_url}/organizations/acme/login/with/example/callback",
        "backchannel_logout_uri": f"{acme.base_url}/organizations/acme/oauth/backchannel-logout/example",
        "scim_url": f"{acme.base_url}/organizations/acme/scim/v2",
        **dict.fromkeys(("created_at", "created_by", "updated_at"), 0),
    }
    assert http.get(URL, headers=token).get_json()["data"] == [data]
    assert http.get(address, headers=token).get_json()["data"] == data
    change = {"name": "Renamed", "client_secret": "another", "scopes": ["email"], "create_users": True}
    changed = http.put(address, json=change, headers=token | {"If-Match": created.headers["ETag"]})
    assert changed.get_json()["meta"] == {"changed": ["create_users", "name", "scopes", "client_secret"]}
    assert changed.get_json()["data"]["scopes"] == ["openid", "email"]
    stale = http.delete(address, headers=token | {"If-Match": created.headers["ETag"]})
    assert stale.status_code == 412
    assert http.delete(address, headers=token | {"If-Match": changed.headers["ETag"]}).status_code == 200
    assert http.get(address, headers=token).status_code == 404


def test_client_secret_is_in_no_response_event_or_log(
    app: Flask,
    http: FlaskClient,
    token: dict[str, str],
    fake: FakeProvider,
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """IP-9: the database has it sealed."""
    secret, another = CLIENT_SECRET, "s3cret: the next"
    with caplog.at_level(logging.DEBUG):
        headers = token | {"Idempotency-Key": "one"}
        answers = [made(http, headers, fake), made(http, headers, fake)]
        assert answers[1].get_json()["meta"] == {"repeated": True}
        address = answers[0].headers["Location"]
        answers.append(http.put(address, json={"client_secret": another}, headers=token))
        answers.append(http.put(address, json={"client_secret": another, "slug": "x"}, headers=token))
        answers += [http.get(path, headers=token) for path in (URL, address, "/audit-events")]
        answers.append(http.delete(address, headers=token))
    assert {event["action"] for event in answers[-2].get_json()["data"]} >= {
        "identity_provider.created",
        "identity_provider.updated",
    }
    shown = [answer.text for answer in answers] + [caplog.text]
    stored = [
        repr(database.query(f"SELECT * FROM {name}")) for name in ("audit_events", "identity_providers")
    ]
    assert not [text for text in shown + stored for one in (secret, another) if one in text]
    assert database.count(IdentityProvider.__tablename__) == 0


def test_provisioning_token_is_shown_once_and_deleted(
    app: Flask, http: FlaskClient, token: dict[str, str], make: Factory, acme: Any, database: Database
) -> None:
    with app.app_context():
        actor = make.actor(acme)
        providers = [linked(actor, slug, make.user(acme).public_id)[0] for slug in ("one", "two")]
    address, other = (f"{URL}/{provider}/provisioning-tokens" for provider in providers)
    assert http.get(address, headers=token).get_json()["data"] == []
    created = http.post(address, headers=token | {"Idempotency-Key": "one"})
    assert created.status_code == 201, created.text
    data = created.get_json()["data"]
    value = data.pop("provisioning_token")
    assert data | {"id": 0, "created_at": 0, "created_by": 0} == {
        **dict.fromkeys(("id", "created_at", "created_by"), 0),
        "hint": value[-12:-8],
        "last_used_at": None,
    }
    repeated = http.post(address, headers=token | {"Idempotency-Key": "one"}).get_json()
    assert (repeated["data"], repeated["meta"]) == (data, {"repeated": True})
    stored = [repr(database.query(f"SELECT * FROM {name}")) for name in ("audit_events", "idempotency_keys")]
    assert not [text for text in stored if value in text]
    scim = http.get(f"/organizations/{acme.slug}/scim/v2/Users", headers=bearer_header(value))
    assert scim.status_code == 200
    [shown] = http.get(address, headers=token).get_json()["data"]
    assert shown | {"last_used_at": None} == data and shown["last_used_at"]
    assert http.post(address, headers=token).status_code == 201
    refused = http.post(address, headers=token)
    assert (refused.status_code, refused.get_json()["error"]) == (409, "too_many_tokens")
    assert http.delete(f"{other}/{data['id']}", headers=token).status_code == 404
    assert http.delete(f"{address}/{data['id']}", headers=token).get_json()["data"] == shown
    assert http.delete(f"{address}/{data['id']}", headers=token).status_code == 404
    rejected = http.get(f"/organizations/{acme.slug}/scim/v2/Users", headers=bearer_header(value))
    assert rejected.status_code == 401


@each(
    ("changes", "field", "code"),
    [
        ({"slug": "Not valid"}, "slug", "invalid_slug"),
        ({"slug": ""}, "slug", "invalid_slug"),
        ({"name": ""}, "name", "too_short"),
        ({"issuer": "http://idp.example"}, "issuer", "invalid_issuer"),
        ({"issuer": "https://idp.example/?tenant=1"}, "issuer", "invalid_issuer"),
        ({"issuer": "https://10.0.0.1"}, "issuer", "invalid_metadata"),
        ({"client_id": "with space"}, "client_id", "invalid_client_id"),
        ({"client_secret": None}, "client_secret", "required"),
        ({"scopes": ["openid", "two words"]}, "scopes[1]", "invalid_scope"),
        ({"status": "off"}, "status", "not_allowed"),
        ({"redirect_uri": "https://elsewhere.example"}, "redirect_uri", "read_only"),
    ],
)
def test_invalid_field_is_named(
    http: FlaskClient,
    token: dict[str, str],
    fake: FakeProvider,
    changes: dict[str, Any],
    field: str,
    code: str,
) -> None:
    answer = http.post(URL, json=fake.fields | changes, headers=token)
    assert answer.status_code == 400, answer.text
    assert [(error["field"], error["code"]) for error in answer.get_json()["errors"]] == [(field, code)]


@each(
    ("metadata", "answers", "reason"),
    [
        ({"issuer": "https://other.example"}, {}, "names another issuer: https://other.example"),
        ({"token_endpoint": None}, {}, "has no token_endpoint"),
        ({"jwks_uri": "http://idp.example/keys"}, {}, "unusable jwks_uri"),
        ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, {}, "accepts no client secret"),
        ({}, {"/keys": Response(200, b'{"keys": []}')}, "has no key for signatures"),
        (
            {},
            {"/keys": Response(200, json.dumps({"keys": [new_key().as_dict(private=True)]}).encode())},
            "no key",
        ),
        ({}, {"/tenant/.well-known/openid-configuration": Response(404)}, "answered with status 404"),
        ({}, {"/tenant/.well-known/openid-configuration": Response(200, b"<html>")}, "is not a JSON object"),
    ],
)
def test_unusable_metadata_is_an_error_of_the_issuer(
    http: FlaskClient,
    token: dict[str, str],
    fake: FakeProvider,
    metadata: dict[str, Any],
    answers: dict[str, Response],
    reason: str,
) -> None:
    fake.metadata, fake.answers = metadata, answers
    answer = http.post(URL, json=fake.fields, headers=token)
    [error] = answer.get_json()["errors"]
    assert (answer.status_code, error["field"], error["code"]) == (400, "issuer", "invalid_metadata")
    assert reason in error["message"]


def test_slug_is_unique_and_permanent_and_issuer_too_while_accounts_are_linked(
    app: Flask, http: FlaskClient, token: dict[str, str], fake: FakeProvider, make: Factory, acme: Any
) -> None:
    made(http, token, fake)
    taken = http.post(URL, json=fake.fields, headers=token)
    assert (taken.status_code, taken.get_json()["error"]) == (409, "slug_taken")
    user = make.user(acme).public_id
    with app.app_context():
        provider, _ = linked(make.actor(acme), "linked", user)
    for field, value, code in (("slug", "new", "read_only"), ("issuer", fake.issuer, "in_use")):
        answer = http.put(f"{URL}/{provider}", json={field: value}, headers=token)
        [error] = answer.get_json()["errors"]
        assert (answer.status_code, error["field"], error["code"]) == (400, field, code)


@pytest.mark.parametrize(("batch", "actions"), [(2, ["deleted"]), (1, ["updated", "deleted"])])
def test_provider_with_many_links_is_disabled_before_they_are_deleted(
    app: Flask,
    http: FlaskClient,
    token: dict[str, str],
    make: Factory,
    acme: Any,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
    actions: list[str],
) -> None:
    monkeypatch.setattr(identity_providers, "_BATCH", batch)
    with app.app_context():
        providers = [linked(make.actor(acme), slug, make.user(acme).public_id)[0] for slug in ("one", "two")]
    database.query("UPDATE linked_identities SET provider_id = (SELECT MAX(id) FROM identity_providers)")
    assert http.delete(f"{URL}/{providers[1]}", headers=token).get_json()["data"]["slug"] == "two"
    assert (database.count("linked_identities"), database.count("identity_providers")) == (0, 1)
    events = http.get(f"/audit-events?target={providers[1]}", headers=token).get_json()["data"]
    assert [event["action"].partition(".")[2] for event in events[::-1][1:]] == actions
    assert events[-2]["before"]["status"] == "enabled"


def test_administrator_needs_a_recent_sign_in(
    app: Flask, http: FlaskClient, fake: FakeProvider, make: Factory, acme: Any, database: Database
) -> None:
    """IP-9. The provider is not asked before."""
    own = bearer_header(user_token(app, make, make.user(acme, role="admin")))
    address = made(http, own, fake).headers["Location"]
    asked = len(fake.server.requests)
    tokens = f"{address}/provisioning-tokens"
    made_token = http.post(tokens, headers=own).get_json()["data"]["id"]
    database.query("UPDATE grants SET auth_time = '2026-01-01 00:00:00'")
    calls = (
        *(("POST", URL), ("PUT", address), ("POST", tokens)),
        *(("DELETE", f"{tokens}/{made_token}"), ("DELETE", address)),
    )
    for method, path in calls:
        body = None if method == "DELETE" or path == tokens else fake.fields
        answer = http.open(path, method=method, json=body, headers=own)
        assert answer.status_code == 401, (method, answer.text)
        assert "insufficient_user_authentication" in answer.headers["WWW-Authenticate"]
    assert len(fake.server.requests) == asked


def test_linked_account_is_listed_and_unlinked(
    app: Flask, http: FlaskClient, token: dict[str, str], make: Factory, acme: Any
) -> None:
    user = make.user(acme)
    with app.app_context():
        provider, identity = linked(make.actor(acme), "example", user.public_id)
    address = f"/users/{user.public_id}/linked-identities"
    [shown] = http.get(address, headers=token).get_json()["data"]
    assert shown | {"created_at": 0} == {
        "id": identity,
        "provider_id": provider,
        "provider_slug": "example",
        "provider_name": "Example",
        "subject": "example",
        "email": "example@idp.example",
        "created_at": 0,
        "last_used_at": None,
    }
    another = f"/users/{make.user(acme).public_id}/linked-identities"
    assert http.get(another, headers=token).get_json()["data"] == []
    assert http.delete(f"{another}/{identity}", headers=token).status_code == 404
    make.sign_in(user)
    sessions = f"/users/{user.public_id}/sessions"
    assert len(http.get(sessions, headers=token).get_json()["data"]) == 1
    removed = http.delete(f"{address}/{identity}", headers=token)
    assert (removed.status_code, removed.get_json()["data"]) == (200, shown)
    assert http.get(sessions, headers=token).get_json()["data"] == []
    assert http.get(address, headers=token).get_json()["data"] == []


def test_changes_need_the_permission_to_change_users_too(
    http: FlaskClient, token: dict[str, str], fake: FakeProvider, make: Factory, acme: Any
) -> None:
    address = made(http, token, fake).headers["Location"]
    weak = bearer_header(make.bearer(acme, "settings:read", "settings:write"))
    assert http.get(address, headers=weak).status_code == 200
    tokens = f"{address}/provisioning-tokens"
    made_token = http.post(tokens, headers=token).get_json()["data"]["id"]
    assert http.get(tokens, headers=weak).status_code == 200
    answers = [
        http.post(tokens, headers=weak),
        http.delete(f"{tokens}/{made_token}", headers=weak),
        http.post(URL, json=fake.fields, headers=weak),
        http.put(address, json={"link_users": True}, headers=weak),
        http.delete(address, headers=weak),
    ]
    for answer in answers:
        assert (answer.status_code, "users:write" in answer.text) == (403, True), answer.text
