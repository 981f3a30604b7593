"""The client credentials grant, and how it behaves when a worker's cache is out of date."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask

from app.operations.clients.clients import delete_client, update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credentials import create_credential
from app.operations.organizations.organizations import delete_organization, update_organization
from app.operations.organizations.settings import update_settings
from app.rules.actor import Actor
from tests.factories import Factory, MadeClient, bearer_header
from tests.oauth.conftest import REDIRECT_URI, on_another_worker
from tests.oauth.test_jwt_access_tokens import parts
from tests.support.databases import Database

GRANT = {"grant_type": "client_credentials"}


def issue(http, client: MadeClient, path: str = "/oauth/token", **more: str):
    return http.post(path, data=GRANT | more, headers=client.basic)


@pytest.fixture
def machine(make: Factory) -> MadeClient:
    """A client with two scopes of its own."""
    return make.machine(make.organization(), "reports:read", "reports:write")


def test_response_contains_only_a_bearer_token(http, machine: MadeClient, database: Database) -> None:
    """CC-1: no refresh token, no ID token; ``expires_in`` a number."""
    answer = issue(http, machine).get_json()
    assert set(answer) == {"access_token", "token_type", "expires_in", "scope"}
    assert (answer["token_type"], answer["expires_in"]) == ("Bearer", 3600)
    assert answer["scope"] == "reports:read reports:write"
    assert answer["access_token"].startswith(f"gth_at_{machine.organization.id}")
    assert database.count("grants") == 0


def test_token_is_not_stored_in_clear_text(http, machine: MadeClient, database: Database) -> None:
    """TK-2."""
    token = issue(http, machine).get_json()["access_token"]
    dump = database.dump()
    assert token.encode() not in dump and token[16:59].encode() not in dump


def test_public_client_is_rejected(http, make: Factory) -> None:
    """CC-1."""
    client = make.client(make.organization(), type="spa")
    answer = http.post("/oauth/token", data=GRANT | {"client_id": client.client_id})
    assert (answer.status_code, answer.get_json()["error"]) == (400, "unauthorized_client")


def test_client_without_the_grant_type_is_rejected(http, make: Factory) -> None:
    client = make.client(make.organization())
    answer = issue(http, client)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "unauthorized_client")


def test_organization_can_forbid_the_grant_type(http, make: Factory, app: Flask) -> None:
    organization = make.organization()
    machine = make.machine(organization, "reports:read")
    with app.app_context():
        changes = {"oauth": {"grant_types": ["authorization_code", "refresh_token"]}}
        update_settings(make.system(organization), organization.slug, changes)
    assert issue(http, machine).get_json()["error"] == "unauthorized_client"


@pytest.mark.parametrize(
    ("asked", "given"),
    [("reports:read", "reports:read"), ("reports:write reports:read", "reports:write reports:read")],
)
def test_client_may_request_fewer_scopes(http, machine: MadeClient, asked: str, given: str) -> None:
    assert issue(http, machine, scope=asked).get_json()["scope"] == given


@pytest.mark.parametrize(
    "asked", ["reports:delete", "reports:read openid", "openid", "clients:read", "offline_access"]
)
def test_client_may_not_request_more_scopes(
    http, machine: MadeClient, database: Database, asked: str
) -> None:
    """CC-1."""
    answer = issue(http, machine, scope=asked)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_scope")
    assert database.count("access_tokens") == 0


def test_client_credentials_do_not_include_identity_scopes(http, make: Factory) -> None:
    """CC-1: a client that may use both."""
    client = make.client(
        make.organization(),
        scopes=["openid", "email", "offline_access", "reports:read"],
        grant_types=["authorization_code", "refresh_token", "client_credentials"],
    )
    assert issue(http, client).get_json()["scope"] == "reports:read"
    assert issue(http, client, scope="openid").get_json()["error"] == "invalid_scope"


@pytest.mark.parametrize(
    ("fields", "scopes", "audience"),
    [
        ({}, ("reports:read",), ["{issuer}"]),
        ({"resources": ["https://api.example"]}, ("reports:read",), ["https://api.example"]),
        ({}, ("clients:read",), ["{base}/management"]),
        ({"resources": ["https://api.example"]}, ("clients:read",), ["{base}/management"]),
        (
            {"resources": ["https://api.example"]},
            ("clients:read", "reports:read"),
            ["{base}/management", "https://api.example"],
        ),
    ],
    ids=str,
)
def test_token_has_an_audience(http, make: Factory, fields, scopes, audience) -> None:
    """TK-6."""
    client = make.machine(make.organization(), *scopes, **fields)
    token = issue(http, client).get_json()["access_token"]
    told = http.post("/oauth/introspect", data={"token": token}, headers=client.basic).get_json()["aud"]
    places = {"issuer": client.organization.issuer, "base": client.organization.base_url}
    assert ([told] if isinstance(told, str) else told) == [text.format(**places) for text in audience]


def test_longest_audience_and_most_scopes_can_be_stored(http, make: Factory) -> None:
    """A row must hold whatever a client may be registered with."""
    scopes = [f"clients:read{'' if not number else ':' + 'x' * 25 + str(number)}" for number in range(90)]
    resources = [f"https://api{number}.example/".ljust(255, "x") for number in range(10)]
    client = make.machine(make.organization(), *scopes, resources=resources)
    answer = issue(http, client)
    assert answer.status_code == 200, answer.text
    told = http.post(
        "/oauth/introspect", data={"token": answer.get_json()["access_token"]}, headers=client.basic
    )
    assert set(resources) <= set(told.get_json()["aud"]) and len(told.get_json()["scope"].split()) == 90


def test_client_token_is_rejected_at_userinfo(http, machine: MadeClient) -> None:
    """TK-6: it has no user."""
    token = issue(http, machine).get_json()["access_token"]
    assert http.get("/oauth/userinfo", headers=bearer_header(token)).status_code == 401


def test_token_endpoint_under_the_issuer_works(http, machine: MadeClient) -> None:
    assert issue(http, machine, f"/organizations/{machine.organization.slug}/oauth/token").status_code == 200


@pytest.mark.parametrize(
    "sent", [{}, {"grant_type": "password"}, {"grant_type": "implicit"}, {"grant_type": ""}]
)
def test_unknown_grant_types_are_unsupported(http, machine: MadeClient, sent: dict[str, str]) -> None:
    """OI-3."""
    answer = http.post("/oauth/token", data=sent | {"username": "a", "password": "b"}, headers=machine.basic)
    assert answer.status_code == 400
    assert answer.get_json()["error"] == (
        "unsupported_grant_type" if sent.get("grant_type") else "invalid_request"
    )


Change = Callable[[Actor, MadeClient], object]
ENDING: dict[str, Change] = {
    "its secret is revoked": lambda actor, client: revoke_credentials(actor, client.client_id),
    "its secret is rotated away": lambda actor, client: create_credential(
        actor, client.client_id, {"retire_others_in_seconds": 0}
    ),
    "it is disabled": lambda actor, client: update_client(actor, client.client_id, {"status": "disabled"}),
    "it is deleted": lambda actor, client: delete_client(actor, client.client_id),
    "its method is changed": lambda actor, client: update_client(
        actor, client.client_id, {"token_endpoint_auth_method": "client_secret_post"}
    ),
    "its organization is suspended": lambda actor, client: update_organization(
        actor, client.organization.slug, {"status": "suspended"}
    ),
    "its organization is deleted": lambda actor, client: delete_organization(actor, client.organization.slug),
}


@pytest.mark.parametrize("change", ENDING.values(), ids=ENDING.keys())
def test_revocation_on_another_worker_applies_immediately(
    http, app: Flask, make: Factory, machine: MadeClient, database: Database, change: Change
) -> None:
    """F24, TN-13: this worker's cache is fresh but wrong. No token is issued and the old one is invalid."""
    make.root()
    assert issue(http, machine).status_code == 200
    issued = database.count("access_tokens")
    with app.app_context(), on_another_worker():
        change(make.system(machine.organization), machine)
    answer = issue(http, machine)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    assert database.count("access_tokens") == issued


def test_scopes_removed_on_another_worker_are_not_granted(
    http, app: Flask, make: Factory, machine: MadeClient
) -> None:
    assert issue(http, machine).status_code == 200
    with app.app_context(), on_another_worker():
        update_client(make.system(machine.organization), machine.client_id, {"scopes": ["reports:read"]})
    assert issue(http, machine).get_json()["scope"] == "reports:read"
    assert issue(http, machine, scope="reports:write").get_json()["error"] == "invalid_scope"


def test_scopes_added_on_another_worker_are_granted(
    http, app: Flask, make: Factory, machine: MadeClient
) -> None:
    """F24: a request is never rejected because of a stale cache."""
    assert issue(http, machine, scope="reports:delete").status_code == 400
    with app.app_context(), on_another_worker():
        scopes = ["reports:read", "reports:delete"]
        update_client(make.system(machine.organization), machine.client_id, {"scopes": scopes})
    assert issue(http, machine, scope="reports:delete").get_json()["scope"] == "reports:delete"


def test_settings_changed_on_another_worker_apply(
    http, app: Flask, make: Factory, machine: MadeClient
) -> None:
    assert issue(http, machine).get_json()["expires_in"] == 3600
    with app.app_context(), on_another_worker():
        changes = {"oauth": {"access_token": {"ttl_seconds": 120}}}
        update_settings(make.system(machine.organization), machine.organization.slug, changes)
    assert issue(http, machine).get_json()["expires_in"] == 120


def test_grant_type_allowed_on_another_worker_works(http, app: Flask, make: Factory) -> None:
    client = make.client(make.organization(), scopes=["openid", "reports:read"], redirect_uris=[REDIRECT_URI])
    assert issue(http, client).get_json()["error"] == "unauthorized_client"
    with app.app_context(), on_another_worker():
        grants = ["authorization_code", "client_credentials"]
        update_client(make.system(client.organization), client.client_id, {"grant_types": grants})
    assert issue(http, client).status_code == 200


@pytest.mark.parametrize("form", ["opaque", "jwt"])
def test_token_without_scopes_omits_the_scope_field(http, make: Factory, form: str) -> None:
    """RFC 6749 section 3.3: a scope has at least one name, so an empty one is omitted everywhere."""
    organization = make.organization(settings={"oauth": {"signing": {"algorithm": "ES256"}}})
    client = make.client(
        organization,
        type="machine",
        redirect_uris=[],
        scopes=[],
        grant_types=["client_credentials"],
        resources=["https://reports.example"],
        access_token_format=form,
    )
    answer = issue(http, client).get_json()
    told = http.post("/oauth/introspect", data={"token": answer["access_token"]}, headers=client.basic)
    assert told.get_json()["active"] is True
    documents = [answer, told.get_json()]
    if form == "jwt":
        documents.append(parts(answer["access_token"])[1])
    assert [document for document in documents if "scope" in document] == []
