"""Token exchange: subject, audience, scopes, lifetime and revocation (RFC 8693)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients import clients, credential_revocation, resources
from app.rules.clients.client_types import TOKEN_EXCHANGE
from app.rules.errors import DomainError
from app.rules.organizations.settings_table import GRANT_TYPES
from app.rules.tokens.token_exchange import ACCESS_TOKEN_TYPE, JWT_TYPE
from tests.factories import Factory, MadeClient, bearer_header
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, Flow, audited
from tests.oauth.failure_log import kept
from tests.oauth.test_jwt_access_tokens import parts
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.dpop import Prover

ORDERS, STOCK = "https://orders.example", "https://stock.example"
ALLOWED = {"oauth": {**FAST_KEYS["oauth"], "grant_types": [*GRANT_TYPES, TOKEN_EXCHANGE]}}


@pytest.fixture
def web(app: Flask, http: FlaskClient, make: Factory) -> Flow:
    """A web client whose signed-in user has tokens for the orders API."""
    organization = make.organization(settings=ALLOWED)
    with app.app_context():
        actor = make.actor(organization)
        for identifier, *names in ((ORDERS, "orders:read"), (STOCK, "stock:read", "stock:write")):
            scopes = [{"name": name} for name in names]
            resources.define_resource(actor, {"identifier": identifier, "name": identifier, "scopes": scopes})
    client = make.client(
        organization,
        scopes=[*SCOPES, "orders:read", "stock:read", "stock:write"],
        trust="first_party",
        redirect_uris=[REDIRECT_URI],
    )
    flow = Flow(app, http, make, client, make.user(organization))
    flow.sign_in()
    return flow


def service(web: Flow, policy: str | None = "delegation", **fields: Any) -> MadeClient:
    """The orders API as a client, which may exchange tokens meant for it."""
    good: dict[str, Any] = {
        "name": "Orders API",
        "type": "machine",
        "redirect_uris": [],
        "scopes": ["orders:read", "stock:read"],
        "resources": [ORDERS],
        "grant_types": ["client_credentials", TOKEN_EXCHANGE],
        "token_exchange": policy,
    }
    return web.make.client(web.organization, **(good | fields))


@pytest.fixture
def orders(web: Flow) -> MadeClient:
    return service(web)


def subject(web: Flow, **changes: str) -> dict[str, Any]:
    return web.tokens(**({"scope": "orders:read stock:read offline_access"} | changes))


def exchange(
    web: Flow, client: MadeClient, token: str, headers: dict[str, str] | None = None, **form: Any
) -> Any:
    good = {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": token,
        "subject_token_type": ACCESS_TOKEN_TYPE,
        "resource": STOCK,
    }
    sent = {name: value for name, value in (good | form).items() if value is not None}
    return web.http.post("/oauth/token", data=sent, headers={**client.basic, **(headers or {})})


def change_stock(web: Flow, **fields: Any) -> None:
    with web.app.app_context():
        actor = web.make.actor(web.organization)
        stock = next(item for item in resources.list_resources(actor).items if item.identifier == STOCK)
        resources.update_resource(actor, stock.public_id, fields)


def told(web: Flow, client: MadeClient, token: str) -> dict[str, Any]:
    return dict(web.http.post("/oauth/introspect", data={"token": token}, headers=client.basic).get_json())


def refusal(answer: Any) -> str:
    assert answer.status_code == 400, answer.text
    return str(answer.get_json()["error"])


def test_delegation_returns_a_narrower_token_with_an_actor(
    web: Flow, orders: MadeClient, database: Database
) -> None:
    given = exchange(web, orders, subject(web)["access_token"]).get_json()
    assert given["issued_token_type"] == ACCESS_TOKEN_TYPE
    assert (given["token_type"], given["scope"]) == ("Bearer", "stock:read")
    assert not {"refresh_token", "id_token"} & set(given)
    seen = told(web, orders, given["access_token"])
    assert (seen["sub"], seen["aud"], seen["client_id"]) == (web.user.public_id, STOCK, orders.client_id)
    assert seen["act"] == {"sub": orders.client_id}
    assert audited(database, "token.exchanged") == 1
    assert given["access_token"].encode() not in database.dump()


def test_impersonation_token_has_no_act_claim(web: Flow) -> None:
    given = exchange(web, service(web, "impersonation"), subject(web)["access_token"]).get_json()
    seen = told(web, service(web, resources=[STOCK]), given["access_token"])
    assert seen["sub"] == web.user.public_id
    assert "act" not in seen


def test_nested_exchange_extends_the_actor_chain(web: Flow, orders: MadeClient) -> None:
    """RFC 8693 section 4.1: the outermost actor is current; impersonation hides no earlier one."""
    stock = service(web, name="Stock API", resources=[STOCK])
    first = exchange(web, orders, subject(web)["access_token"]).get_json()["access_token"]
    second = exchange(web, stock, first).get_json()["access_token"]
    chain = {"sub": stock.client_id, "act": {"sub": orders.client_id}}
    assert told(web, stock, second)["act"] == chain
    silent = service(web, "impersonation", name="Silent", resources=[STOCK])
    assert told(web, stock, exchange(web, silent, second).get_json()["access_token"])["act"] == chain
    token = second
    for _ in range(3):
        token = exchange(web, stock, token).get_json()["access_token"]
    assert refusal(exchange(web, stock, token)) == "invalid_request"
    for _ in range(5):
        answer = exchange(web, silent, token)
        token = answer.get_json().get("access_token", "")
    assert refusal(answer) == "invalid_request"


def test_actor_token_names_the_actor(web: Flow, orders: MadeClient) -> None:
    own = web.http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=orders.basic)
    worker = web.make.client(
        web.organization, name="Worker", type="machine", redirect_uris=[], scopes=["orders:read"]
    )
    theirs = web.http.post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=worker.basic
    ).get_json()["access_token"]
    token = subject(web)["access_token"]
    for actor_token, actor in ((own.get_json()["access_token"], orders), (theirs, worker)):
        form = {"actor_token": actor_token, "actor_token_type": ACCESS_TOKEN_TYPE}
        given = exchange(web, orders, token, **form).get_json()
        assert told(web, orders, given["access_token"])["act"] == {"sub": actor.client_id}
    assert refusal(exchange(web, orders, token, actor_token=theirs)) == "invalid_request"
    assert refusal(exchange(web, orders, token, actor_token_type=ACCESS_TOKEN_TYPE)) == "invalid_request"
    form = {"actor_token": "gth_at_unknown", "actor_token_type": ACCESS_TOKEN_TYPE}
    assert refusal(exchange(web, orders, token, **form)) == "invalid_request"
    form = {"actor_token": theirs, "actor_token_type": ACCESS_TOKEN_TYPE}
    assert refusal(exchange(web, service(web, "impersonation"), token, **form)) == "invalid_request"


@each(
    ("changes", "error"),
    [
        ({"subject_token": None}, "invalid_request"),
        ({"subject_token_type": None}, "invalid_request"),
        ({"subject_token_type": "urn:ietf:params:oauth:token-type:id_token"}, "invalid_request"),
        ({"requested_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}, "invalid_request"),
        ({"requested_token_type": JWT_TYPE}, "invalid_request"),
        ({"subject_token": "unknown"}, "invalid_request"),
        ({"resource": "https://unknown.example"}, "invalid_target"),
        ({"audience": "https://unknown.example"}, "invalid_target"),
        ({"resource": "stock"}, "invalid_target"),
        ({"scope": "stock:write"}, "invalid_scope"),
        ({"scope": "stock:read profile"}, "invalid_scope"),
        ({"scope": 'a"b'}, "invalid_scope"),
    ],
)
def test_invalid_requests_return_the_registered_error_code(
    web: Flow, orders: MadeClient, database: Database, changes: dict[str, Any], error: str
) -> None:
    """RFC 8693 section 2.2.2; scopes can only narrow, to those of the subject token and the client."""
    token = subject(web, scope="orders:read stock:read stock:write")["access_token"]
    assert refusal(exchange(web, orders, token, **changes)) == error
    assert audited(database, "token.exchanged") == 0


@each(
    ("requested", "cause", "received"),
    [
        ("stock:read profile", "scope_beyond_token", "profile"),
        ("stock:read stock:write", "scope_not_allowed", "stock:write"),
    ],
)
def test_log_tells_scopes_of_the_token_from_those_of_the_client(
    web: Flow, orders: MadeClient, requested: str, cause: str, received: str
) -> None:
    token = subject(web, scope="orders:read stock:read stock:write")["access_token"]
    exchange(web, orders, token, scope=requested)
    newest = kept(web)[0]
    assert (newest.cause, newest.received) == (cause, received)


def test_scope_that_another_api_defines_since_is_not_exchanged(web: Flow) -> None:
    """CO-2: the user allowed what the scope was when the subject token was issued."""
    orders = service(web, scopes=["orders:read"])
    token = subject(web, scope="orders:read")["access_token"]
    with web.app.app_context():
        actor = web.make.actor(web.organization)
        known = {each.identifier: each.public_id for each in resources.list_resources(actor).items}
        resources.update_resource(actor, known[ORDERS], {"scopes": []}, confirmed=True)
        resources.update_resource(actor, known[STOCK], {"scopes": [{"name": "orders:read"}]}, confirmed=True)
        clients.update_client(actor, orders.client_id, {"scopes": ["orders:read"]})
    assert refusal(exchange(web, orders, token)) == "invalid_target"
    assert refusal(exchange(web, orders, token, scope="orders:read")) == "invalid_scope"


def test_token_not_meant_for_the_client_cannot_be_exchanged(web: Flow, make: Factory) -> None:
    """IT-1: neither issued to the client nor meant for one of its resources, nor another organization's."""
    token = subject(web)["access_token"]
    stranger = service(web, resources=[])
    assert refusal(exchange(web, stranger, token)) == "invalid_request"
    assert refusal(exchange(web, service(web), subject(web)["refresh_token"])) == "invalid_request"
    elsewhere = make.organization(settings=ALLOWED)
    foreign = Flow(web.app, web.http, make, make.client(elsewhere), make.user(elsewhere))
    assert refusal(exchange(web, service(foreign, scopes=[]), token, resource=ORDERS)) == "invalid_request"


def test_client_without_exchange_policy_gets_unauthorized_client(web: Flow, make: Factory) -> None:
    token = subject(web)["access_token"]
    assert refusal(exchange(web, web.client, token)) == "unauthorized_client"
    closed = make.organization(settings=FAST_KEYS)
    there = Flow(web.app, web.http, make, make.client(closed), make.user(closed))
    with web.app.app_context(), pytest.raises(DomainError) as refused:
        service(there, scopes=[])
    assert refused.value.field == "grant_types"


def test_bound_token_is_not_exchanged_for_an_unbound_one(web: Flow, orders: MadeClient) -> None:
    """RFC 9449: the new token is bound to the key that the exchanging client proves."""
    key, own = Prover(), Prover()
    code = web.code(scope="orders:read stock:read")
    headers = {**web.client.basic, "DPoP": key.proof("POST", "http://localhost/oauth/token")}
    token = web.redeem(code, headers=headers).get_json()["access_token"]
    assert refusal(exchange(web, orders, token)) == "invalid_request"
    proof = {"DPoP": own.proof("POST", "http://localhost/oauth/token")}
    given = exchange(web, orders, token, headers=proof).get_json()
    assert given["token_type"] == "DPoP"
    assert told(web, orders, given["access_token"])["cnf"] == {"jkt": own.jkt}


def test_bound_actor_token_needs_a_proof_of_its_key(web: Flow, orders: MadeClient) -> None:
    """RFC 9449: whoever only found the token must not act in its name."""
    key, other = Prover(), Prover()

    def proof(prover: Prover) -> dict[str, str]:
        return {"DPoP": prover.proof("POST", "http://localhost/oauth/token")}

    bound = web.http.post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers={**orders.basic, **proof(key)}
    ).get_json()["access_token"]
    token = subject(web)["access_token"]
    form = {"actor_token": bound, "actor_token_type": ACCESS_TOKEN_TYPE}
    assert refusal(exchange(web, orders, token, **form)) == "invalid_request"
    assert refusal(exchange(web, orders, token, headers=proof(other), **form)) == "invalid_request"
    assert exchange(web, orders, token, headers=proof(key), **form).get_json()["token_type"] == "DPoP"


def test_exchanged_token_expires_with_the_subject_token(web: Flow, orders: MadeClient) -> None:
    token = subject(web)["access_token"]
    change_stock(web, access_token_ttl_seconds=86_400)
    given = exchange(web, orders, token).get_json()
    assert 0 < given["expires_in"] <= 3600
    assert told(web, orders, given["access_token"])["exp"] <= told(web, orders, token)["exp"]


@pytest.mark.parametrize("end", ["subject", "grant", "client", "exchanger", "secret"])
def test_exchanged_token_is_revoked_with_what_it_depends_on(web: Flow, orders: MadeClient, end: str) -> None:
    """IT-3: the subject token, its grant, both clients, and the secret used for the exchange."""
    tokens = subject(web)
    given = exchange(web, orders, tokens["access_token"]).get_json()["access_token"]
    witness = service(web, resources=[STOCK], name="Witness")
    assert told(web, witness, given)["active"]
    if end in {"subject", "grant"}:
        token = tokens["access_token" if end == "subject" else "refresh_token"]
        web.http.post("/oauth/revoke", data={"token": token}, headers=web.client.basic)
    with web.app.app_context():
        actor = web.make.actor(web.organization)
        if end == "client":
            clients.update_client(actor, web.client.client_id, {"status": "disabled"})
        if end == "exchanger":
            clients.delete_client(actor, orders.client_id)
        if end == "secret":
            credential_revocation.revoke_credentials(actor, orders.client_id, revoke_tokens=True)
    assert told(web, witness, given) == {"active": False}


def test_revoking_the_exchanged_token_leaves_the_subject_token_valid(web: Flow, orders: MadeClient) -> None:
    token = subject(web)["access_token"]
    given = exchange(web, orders, token).get_json()["access_token"]
    web.http.post("/oauth/revoke", data={"token": given}, headers=orders.basic)
    assert told(web, orders, given) == {"active": False}
    assert told(web, orders, token)["active"]


def test_client_token_can_be_exchanged_and_is_revoked_with_its_secret(web: Flow, orders: MadeClient) -> None:
    worker = web.make.client(
        web.organization,
        name="Worker",
        type="machine",
        redirect_uris=[],
        scopes=["orders:read", "stock:read"],
    )
    token = web.http.post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=worker.basic
    ).get_json()["access_token"]
    given = exchange(web, orders, token).get_json()["access_token"]
    seen = told(web, orders, given)
    assert (seen["sub"], seen["client_id"], seen["act"]) == (
        worker.client_id,
        orders.client_id,
        {"sub": orders.client_id},
    )
    with web.app.app_context():
        actor = web.make.actor(web.organization)
        credential_revocation.revoke_credentials(actor, worker.client_id, revoke_tokens=True)
    assert told(web, orders, given) == {"active": False}


def test_resource_that_uses_jwts_gets_a_jwt_with_act(web: Flow, orders: MadeClient) -> None:
    change_stock(web, access_token_format="jwt")
    given = exchange(web, orders, subject(web)["access_token"], requested_token_type=JWT_TYPE).get_json()
    assert given["issued_token_type"] == JWT_TYPE
    _, claims, _ = parts(given["access_token"])
    assert (claims["act"], claims["sub"], claims["aud"]) == (
        {"sub": orders.client_id},
        web.user.public_id,
        STOCK,
    )


def test_audience_parameter_can_name_a_resource(web: Flow, orders: MadeClient) -> None:
    given = exchange(web, orders, subject(web)["access_token"], resource=None, audience=STOCK).get_json()
    assert told(web, orders, given["access_token"])["aud"] == STOCK


def test_exchanged_token_releases_only_the_claims_of_its_scopes(web: Flow) -> None:
    """Claims requested by name were allowed to the client that requested them (OIDC Core 5.5)."""
    wanted = json.dumps({"userinfo": {"email": None, "name": None}})
    own = web.tokens(scope="openid orders:read", claims=wanted)["access_token"]
    at_userinfo = web.http.get("/oauth/userinfo", headers=bearer_header(own)).get_json()
    assert at_userinfo["email"] == web.user.email
    client = service(web, scopes=["openid", "orders:read"])
    given = exchange(web, client, own, resource=None, scope="openid").get_json()["access_token"]
    at_userinfo = web.http.get("/oauth/userinfo", headers=bearer_header(given)).get_json()
    assert at_userinfo == {"sub": web.user.public_id}


def test_exchanged_token_is_rejected_at_the_management_api_and_userinfo(
    web: Flow, orders: MadeClient
) -> None:
    """TK-6."""
    given = exchange(web, orders, subject(web)["access_token"]).get_json()["access_token"]
    assert web.http.get("/clients", headers=bearer_header(given)).status_code == 401
    assert web.http.get("/oauth/userinfo", headers=bearer_header(given)).status_code in {401, 403}
