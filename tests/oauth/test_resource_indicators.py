"""Resource indicators (RFC 8707): authorization, code, refresh, client credentials (TK-5, TK-6, DC-5)."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients import resources
from tests.factories import Factory, MadeClient, bearer_header
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, Flow, query_of

pytestmark = pytest.mark.either

ORDERS, STOCK = "https://orders.example", "https://stock.example/v1"
API_SCOPES = ["orders:read", "orders:write", "stock:read", "plain"]


def define(app: Flask, make: Factory, organization: Any, identifier: str, *scopes: str, **fields: Any) -> str:
    with app.app_context():
        return resources.define_resource(
            make.actor(organization),
            {"identifier": identifier, "name": identifier, "scopes": [{"name": name} for name in scopes]}
            | fields,
        ).public_id


@pytest.fixture
def apis(app: Flask, http: FlaskClient, make: Factory) -> Flow:
    """A first-party web client of an organization with two APIs and a signed-in user."""
    organization = make.organization(settings=FAST_KEYS)
    define(app, make, organization, ORDERS, "orders:read", "orders:write")
    define(app, make, organization, STOCK, "stock:read")
    client = make.client(
        organization, scopes=[*SCOPES, *API_SCOPES], trust="first_party", redirect_uris=[REDIRECT_URI]
    )
    flow = Flow(app, http, make, client, make.user(organization))
    flow.sign_in()
    return flow


def aud(flow: Flow, token: str) -> list[str]:
    found = flow.introspect(token)["aud"]
    return [found] if isinstance(found, str) else found


@pytest.mark.parametrize(
    ("asked", "scope", "kept", "audience"),
    [
        ([], "openid orders:read", "openid orders:read", [ORDERS, "ISSUER"]),
        ([], "orders:read stock:read", "orders:read stock:read", [ORDERS, STOCK]),
        ([ORDERS], "openid orders:read stock:read", "openid orders:read", [ORDERS, "ISSUER"]),
        ([ORDERS], "orders:read plain", "orders:read plain", [ORDERS]),
        ([ORDERS, STOCK], "orders:read stock:read", "orders:read stock:read", [ORDERS, STOCK]),
    ],
)
def test_token_is_issued_for_the_authorized_resources(
    apis: Flow, asked: list[str], scope: str, kept: str, audience: list[str]
) -> None:
    """TK-6: the audience is always set and contains the resources whose scopes the token has."""
    parameters: dict[str, Any] = {**apis.parameters(scope=scope), "resource": asked}
    answer = query_of(apis.http.get("/oauth/authorize", query_string=parameters))
    document = apis.redeem(answer["code"]).get_json()
    assert document["scope"] == kept
    assert aud(apis, document["access_token"]) == [
        apis.issuer if one == "ISSUER" else one for one in audience
    ]


@pytest.mark.parametrize(
    "resource",
    [
        "https://unknown.example",
        f"{ORDERS}/",
        "orders",
        f"{ORDERS}#x",
        "http://localhost/management",
        "urn:globex",
    ],
)
def test_unknown_resource_is_an_invalid_target(apis: Flow, app: Flask, make: Factory, resource: str) -> None:
    """DC-5: at authorization by redirect, with state and issuer; at the token endpoint in the body."""
    define(app, make, make.organization(), "urn:globex")
    answer = query_of(apis.authorize(scope="plain", resource=resource))
    assert (answer["error"], answer["state"], answer["iss"]) == ("invalid_target", "s", apis.issuer)
    refused = apis.redeem(apis.code(scope="plain"), resource=resource)
    assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_target")
    refresh = apis.tokens(scope="plain offline_access")["refresh_token"]
    refused = apis.refresh(refresh, resource=resource)
    assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_target")


def test_code_and_refresh_token_can_be_narrowed_to_one_resource(apis: Flow) -> None:
    """RFC 8707 section 2.2, RF-6: each token is for one of the authorized resources and no other."""
    parameters: dict[str, Any] = {
        **apis.parameters(scope="orders:read stock:read offline_access"),
        "resource": [ORDERS, STOCK],
    }
    code = query_of(apis.http.get("/oauth/authorize", query_string=parameters))["code"]
    first = apis.redeem(code, resource=ORDERS).get_json()
    assert (aud(apis, first["access_token"]), first["scope"]) == ([ORDERS], "orders:read offline_access")
    second = apis.refresh(first["refresh_token"], resource=STOCK).get_json()
    assert (aud(apis, second["access_token"]), second["scope"]) == ([STOCK], "stock:read offline_access")
    third = apis.refresh(second["refresh_token"]).get_json()
    assert aud(apis, third["access_token"]) == [ORDERS, STOCK]
    assert apis.refresh(third["refresh_token"], resource="https://third.example").status_code == 400


def test_unauthorized_resource_is_rejected_and_the_code_stays_valid(apis: Flow) -> None:
    code = apis.code(scope="orders:read", resource=ORDERS)
    refused = apis.redeem(code, resource=STOCK)
    assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_target")
    assert apis.redeem(code, resource=ORDERS).status_code == 200
    implied = apis.code(scope="orders:read")
    assert apis.redeem(implied, resource=STOCK).get_json()["error"] == "invalid_target"
    assert aud(apis, apis.redeem(implied, resource=ORDERS).get_json()["access_token"]) == [ORDERS]


def test_scopes_of_other_resources_only_are_an_invalid_scope(apis: Flow, machine: MadeClient) -> None:
    """RFC 6749 section 5.1: a response without scope would mean that all requested scopes were granted."""
    answer = query_of(apis.authorize(scope="stock:read", resource=ORDERS))
    assert answer["error"] == "invalid_scope"
    parameters: dict[str, Any] = {
        **apis.parameters(scope="orders:read stock:read offline_access"),
        "resource": [ORDERS, STOCK],
    }
    code = query_of(apis.http.get("/oauth/authorize", query_string=parameters))["code"]
    refresh = apis.redeem(code).get_json()["refresh_token"]
    for refused in (
        own_token(apis, machine, scope="stock:read", resource=ORDERS),
        apis.refresh(refresh, scope="stock:read", resource=ORDERS),
    ):
        assert (refused.status_code, refused.get_json()) == (
            400,
            {
                "error": "invalid_scope",
                "error_description": "None of the scopes belongs to an available resource.",
            },
        )
    renewed = apis.refresh(refresh, scope="stock:read", resource=STOCK)
    assert renewed.get_json()["scope"] == "stock:read"


def test_request_without_scope_gets_a_token_for_a_resource_without_its_scopes(
    apis: Flow, app: Flask, make: Factory
) -> None:
    define(app, make, apis.organization, "https://mcp.example")
    client = make.machine(apis.organization, "orders:read", resources=["https://mcp.example"])
    token = own_token(apis, client, resource="https://mcp.example")
    assert token.status_code == 200 and "scope" not in token.get_json()
    refused = own_token(apis, client, resource="https://mcp.example", scope="orders:read")
    assert refused.get_json()["error"] == "invalid_scope"


def test_other_parameters_must_not_be_repeated(apis: Flow) -> None:
    parameters: dict[str, Any] = {**apis.parameters(), "nonce": ["a", "b"], "resource": [ORDERS, ORDERS]}
    answer = query_of(apis.http.get("/oauth/authorize", query_string=parameters))
    assert answer["error"] == "invalid_request"


@pytest.fixture
def machine(apis: Flow) -> MadeClient:
    return apis.make.machine(apis.organization, "orders:read", "stock:read", "clients:read")


def own_token(apis: Flow, client: MadeClient, **form: Any) -> Any:
    return apis.http.post(
        "/oauth/token", data={"grant_type": "client_credentials"} | form, headers=client.basic
    )


def test_client_credentials_support_resources(apis: Flow, machine: MadeClient) -> None:
    def told(token: str) -> dict[str, Any]:
        answer = apis.http.post("/oauth/introspect", data={"token": token}, headers=machine.basic)
        return dict(answer.get_json())

    everything = told(own_token(apis, machine).get_json()["access_token"])
    assert everything["aud"] == ["http://localhost/management", ORDERS, STOCK]
    one = own_token(apis, machine, resource=STOCK).get_json()
    assert (told(one["access_token"])["aud"], one["scope"]) == (STOCK, "stock:read")
    managed = own_token(apis, machine, resource="http://localhost/management").get_json()
    assert (told(managed["access_token"])["aud"], managed["scope"]) == (
        "http://localhost/management",
        "clients:read",
    )
    refused = own_token(apis, machine, resource="https://unknown.example")
    assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_target")


def test_token_for_a_resource_is_rejected_at_the_management_api_and_userinfo(
    apis: Flow, machine: MadeClient
) -> None:
    """TK-6."""
    token = own_token(apis, machine, resource=STOCK).get_json()["access_token"]
    assert apis.http.get("/clients", headers=bearer_header(token)).status_code == 401
    users = apis.tokens(scope="orders:read", resource=ORDERS)["access_token"]
    assert apis.http.get("/oauth/userinfo", headers=bearer_header(users)).status_code in {401, 403}
    for_management = own_token(apis, machine, resource="http://localhost/management").get_json()
    assert apis.http.get("/clients", headers=bearer_header(for_management["access_token"])).status_code == 200


def test_resource_decides_token_format_and_lifetime(apis: Flow, app: Flask, make: Factory) -> None:
    """TK-5."""
    jwt_api = define(
        app,
        make,
        apis.organization,
        "urn:jwt",
        "jwt:read",
        access_token_format="jwt",
        access_token_ttl_seconds=120,
    )
    client = apis.make.machine(apis.organization, "jwt:read", "stock:read")
    given = own_token(apis, client, resource="urn:jwt").get_json()
    assert given["access_token"].count(".") == 2
    assert given["expires_in"] == 120
    opaque = own_token(apis, client, resource=STOCK).get_json()
    assert opaque["access_token"].startswith("gth_at_")
    assert opaque["expires_in"] == 3600
    with app.app_context():
        resources.update_resource(make.actor(apis.organization), jwt_api, {"access_token_format": "opaque"})
    assert own_token(apis, client, resource="urn:jwt").get_json()["access_token"].startswith("gth_at_")


def test_disabled_resource_gets_no_tokens_from_the_next_request(
    apis: Flow, app: Flask, make: Factory, machine: MadeClient
) -> None:
    assert own_token(apis, machine, resource=STOCK).status_code == 200
    with app.app_context():
        actor = make.actor(apis.organization)
        stock = next(item for item in resources.list_resources(actor).items if item.identifier == STOCK)
        resources.update_resource(actor, stock.public_id, {"status": "disabled"})
    assert own_token(apis, machine, resource=STOCK).get_json()["error"] == "invalid_target"
    assert own_token(apis, machine).get_json()["scope"] == "clients:read orders:read"


def test_request_without_a_resource_runs_no_resource_queries(
    apis: Flow, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_token(apis, machine, resource=STOCK)
    monkeypatch.setattr(resources, "_RESOURCES", None)
    monkeypatch.setattr(resources, "_SCOPES", None)
    assert own_token(apis, machine, resource=STOCK).status_code == 200
    assert own_token(apis, machine, resource=ORDERS).get_json()["scope"] == "orders:read"


def test_resource_without_scopes_needs_consent_every_time(apis: Flow, app: Flask, make: Factory) -> None:
    """CO-2: consent covers scopes and must not silently allow another resource."""
    define(app, make, apis.organization, "https://mcp.example")
    asking = apis.other_client(scopes=["openid", "orders:read"], redirect_uris=[REDIRECT_URI])
    page = asking.consent(scope="openid orders:read", resource=ORDERS)
    assert page.text.index("https://orders.example") < page.text.index("orders:read")
    assert "bare-resources" not in page.text
    query_of(asking.decide(page))
    query_of(asking.authorize(scope="openid orders:read", resource=ORDERS))
    for _ in range(2):
        page = asking.consent(scope="openid", resource="https://mcp.example")
        assert "<code>https://mcp.example</code>" in page.text
        code = query_of(asking.decide(page))["code"]
        token = asking.redeem(code).get_json()["access_token"]
        assert aud(asking, token) == ["https://mcp.example", asking.issuer]
    silent = query_of(asking.authorize(scope="openid", resource="https://mcp.example", prompt="none"))
    assert silent["error"] == "consent_required"
