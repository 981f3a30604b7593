"""Client access to APIs: which client gets an API's scopes without a user's consent, or at all (AC-1)."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients import access_decisions, access_requests, clients, resource_scopes, resources
from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.actor import Actor
from app.rules.clients.client_types import TOKEN_EXCHANGE
from app.rules.directory.permissions import BUILT_IN_ROLES
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound
from app.rules.organizations.settings_table import GRANT_TYPES
from app.rules.tokens.token_exchange import ACCESS_TOKEN_TYPE
from tests.factories import Factory, MadeClient
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, Flow, on_another_worker, query_of
from tests.oauth.failure_log import only

pytestmark = pytest.mark.either

PAYROLL = "https://payroll.example"
READ, WRITE = "payroll:read", "payroll:write"
SETTINGS = {"oauth": {**FAST_KEYS["oauth"], "grant_types": [*GRANT_TYPES, TOKEN_EXCHANGE]}}
MACHINE: dict[str, Any] = {"type": "machine", "redirect_uris": [], "grant_types": ["client_credentials"]}
ALL_GRANTS: dict[str, Any] = {
    "redirect_uris": [REDIRECT_URI],
    "trust": "first_party",
    "scopes": ["openid", "offline_access", READ, WRITE],
    "grant_types": ["authorization_code", "refresh_token", "client_credentials", TOKEN_EXCHANGE],
    "token_exchange": "delegation",
}


def developer(make: Factory, organization: OrganizationSnapshot) -> Actor:
    """A user with the role of a developer."""
    held = BUILT_IN_ROLES["developer"].permissions
    return make.actor(organization, *held, user=make.user(organization, role="developer"))


def without_apis(make: Factory, organization: OrganizationSnapshot) -> Actor:
    """Somebody who may trust clients, but manages no API."""
    return make.actor(organization, "clients:read", "clients:write", "clients:trust")


@pytest.fixture
def organization(make: Factory) -> OrganizationSnapshot:
    return make.organization(settings=SETTINGS)


@pytest.fixture
def payroll(app: Flask, make: Factory, organization: OrganizationSnapshot) -> str:
    """The id of an API of an administrator, which developers cannot see."""
    fields = {"identifier": PAYROLL, "name": "Payroll", "scopes": [{"name": READ}, {"name": WRITE}]}
    with app.app_context():
        return resources.define_resource(make.actor(organization), fields).public_id


@pytest.fixture
def outsider(
    app: Flask, http: FlaskClient, make: Factory, organization: OrganizationSnapshot, payroll: str
) -> Flow:
    """A client for every grant with the API's scopes, but no access, and a signed-in user."""
    client = make.client(organization, by=without_apis(make, organization), **ALL_GRANTS)
    flow = Flow(app, http, make, client, make.user(organization))
    flow.sign_in()
    return flow


def change_policy(app: Flask, admin: Actor, payroll: str, policy: str) -> None:
    with app.app_context():
        resources.update_resource(admin, payroll, {"access_policy": policy})


def give(app: Flask, admin: Actor, payroll: str, client: MadeClient, *scopes: str) -> str:
    with app.app_context():
        given = access_decisions.give_access(admin, payroll, client.client_id, {"scopes": list(scopes)})
        return given.public_id


def withdraw(app: Flask, admin: Actor, access_id: str) -> None:
    with app.app_context():
        access_decisions.withdraw_access(admin, access_id)


def mint(http: FlaskClient, client: MadeClient, **form: Any) -> Any:
    data = {"grant_type": "client_credentials"} | form
    return http.post("/oauth/token", data=data, headers=client.basic)


def exchange(flow: Flow, subject: str, **form: Any) -> Any:
    data = {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": subject,
        "subject_token_type": ACCESS_TOKEN_TYPE,
        "resource": PAYROLL,
    }
    return flow.http.post("/oauth/token", data=data | form, headers=flow.client.basic)


def outcome(answer: Any) -> str:
    """Return the granted scopes, or the error."""
    document = answer.get_json()
    return str(document.get("scope") or document["error"])


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"scope": READ}, "invalid_scope"),
        ({"scope": READ, "resource": PAYROLL}, "invalid_target"),
        ({"resource": PAYROLL}, "invalid_target"),
        ({}, "invalid_scope"),
    ],
)
def test_developer_cannot_get_tokens_for_an_api_of_others(
    http: FlaskClient,
    make: Factory,
    organization: OrganizationSnapshot,
    payroll: str,
    asked: dict[str, str],
    error: str,
) -> None:
    """A developer gives a client of their own scopes of an API that they cannot even see."""
    own = make.client(organization, by=developer(make, organization), **MACHINE, scopes=[READ, WRITE])
    assert any("Payroll" in warning for warning in own.registered.warnings)
    answer = mint(http, own, **asked)
    assert (answer.status_code, outcome(answer)) == (400, error)


def test_developer_of_the_api_needs_no_request(
    app: Flask, http: FlaskClient, make: Factory, organization: OrganizationSnapshot
) -> None:
    ada = developer(make, organization)
    fields = {"identifier": "https://own.example", "name": "Own", "scopes": [{"name": "own:read"}]}
    with app.app_context():
        resources.define_resource(ada, fields)
    own = make.client(organization, by=ada, **MACHINE, scopes=["own:read"])
    assert own.registered.warnings == []
    assert outcome(mint(http, own)) == "own:read"


@pytest.mark.parametrize(
    ("policy", "has_access", "expected"),
    [
        ("open", False, {"client": READ, "exchange": READ, "code": READ, "refresh": READ}),
        ("open", True, {"client": READ, "exchange": READ, "code": READ, "refresh": READ}),
        (
            "approval",
            False,
            {"client": "invalid_scope", "exchange": "invalid_target", "code": READ, "refresh": READ},
        ),
        ("approval", True, {"client": READ, "exchange": READ, "code": READ, "refresh": READ}),
        (
            "listed",
            False,
            {
                "client": "invalid_scope",
                "exchange": "invalid_request",
                "code": "invalid_scope",
                "refresh": "invalid_scope",
            },
        ),
        ("listed", True, {"client": READ, "exchange": READ, "code": READ, "refresh": READ}),
    ],
)
def test_policy_and_access_decide_for_each_grant(
    app: Flask,
    make: Factory,
    outsider: Flow,
    payroll: str,
    policy: str,
    has_access: bool,
    expected: dict[str, str],
) -> None:
    admin = make.actor(outsider.organization)
    earlier = outsider.tokens(scope=f"{READ} offline_access")
    change_policy(app, admin, payroll, policy)
    if has_access:
        give(app, admin, payroll, outsider.client, READ)
    found = {
        "client": outcome(mint(outsider.http, outsider.client, scope=READ)),
        "exchange": outcome(exchange(outsider, earlier["access_token"], scope=READ)),
        "refresh": outcome(outsider.refresh(earlier["refresh_token"], scope=READ)),
    }
    query = query_of(outsider.authorize(scope=READ))
    found["code"] = query.get("error") or outcome(outsider.redeem(query["code"]))
    assert found == expected


def test_access_covers_only_its_scopes(app: Flask, make: Factory, outsider: Flow, payroll: str) -> None:
    give(app, make.actor(outsider.organization), payroll, outsider.client, READ)
    assert outcome(mint(outsider.http, outsider.client, scope=WRITE)) == "invalid_scope"
    assert outcome(mint(outsider.http, outsider.client)) == READ
    assert outcome(mint(outsider.http, outsider.client, resource=PAYROLL)) == READ


def test_withdrawal_stops_the_next_token_and_revokes_earlier_ones(
    app: Flask, make: Factory, outsider: Flow, payroll: str
) -> None:
    admin = make.actor(outsider.organization)
    by_user = outsider.tokens(scope=READ)["access_token"]
    access = give(app, admin, payroll, outsider.client, READ)
    own = mint(outsider.http, outsider.client, scope=READ).get_json()["access_token"]
    exchanged = exchange(outsider, by_user).get_json()["access_token"]
    with app.app_context():
        assert access_decisions.preview_withdrawal(admin, access).access_tokens == 2
    withdraw(app, admin, access)
    assert outcome(mint(outsider.http, outsider.client, scope=READ)) == "invalid_scope"
    alive = [outsider.is_alive(token) for token in (own, exchanged, by_user)]
    assert alive == [False, False, True]
    # Access given again does not bring them back.
    give(app, admin, payroll, outsider.client, READ)
    assert not outsider.is_alive(own)
    newer = mint(outsider.http, outsider.client, scope=READ).get_json()["access_token"]
    assert outsider.is_alive(newer)
    # Neither does the end of the API, with which the record of the withdrawal ends.
    with app.app_context():
        resources.delete_resource(admin, payroll, confirmed=True)
    assert [outsider.is_alive(token) for token in (own, exchanged, by_user, newer)] == [
        False,
        False,
        True,
        True,
    ]


def test_withdrawal_for_listed_clients_includes_what_users_allowed(
    app: Flask, make: Factory, outsider: Flow, payroll: str
) -> None:
    admin = make.actor(outsider.organization)
    access = give(app, admin, payroll, outsider.client, READ)
    change_policy(app, admin, payroll, "listed")
    given = outsider.tokens(scope=f"openid {READ} offline_access")
    withdraw(app, admin, access)
    assert not outsider.is_alive(given["access_token"])
    refreshed = outsider.refresh(given["refresh_token"]).get_json()
    assert set(refreshed["scope"].split()) == {"openid", "offline_access"}


def test_another_worker_learns_of_new_access_before_it_refuses(
    app: Flask, make: Factory, outsider: Flow, payroll: str
) -> None:
    """A refusal is never based on a cached client alone."""
    assert outcome(mint(outsider.http, outsider.client, scope=READ)) == "invalid_scope"
    with on_another_worker():
        give(app, make.actor(outsider.organization), payroll, outsider.client, READ)
    assert outcome(mint(outsider.http, outsider.client, scope=READ)) == READ


def test_scope_of_another_name_is_not_revived(
    app: Flask, make: Factory, outsider: Flow, payroll: str
) -> None:
    """A scope that is deleted and added again under the same name needs a new decision."""
    admin = make.actor(outsider.organization)
    give(app, admin, payroll, outsider.client, READ)
    with app.app_context():
        resources.update_resource(admin, payroll, {"scopes": [{"name": WRITE}]}, confirmed=True)
        resources.update_resource(admin, payroll, {"scopes": [{"name": WRITE}, {"name": READ}]})
        trusted = without_apis(make, outsider.organization)
        clients.update_client(trusted, outsider.client.client_id, {"scopes": ["openid", READ]})
    assert outcome(mint(outsider.http, outsider.client, scope=READ)) == "invalid_scope"


def test_api_for_listed_clients_does_not_exist_for_others(
    app: Flask, http: FlaskClient, make: Factory, organization: OrganizationSnapshot, payroll: str
) -> None:
    change_policy(app, make.actor(organization), payroll, "listed")
    ada = developer(make, organization)
    with app.app_context():
        with pytest.raises(InvalidInput) as refused:
            clients.register_client(ada, {"name": "Spy", **MACHINE, "scopes": [READ]})
        assert [error.code for error in refused.value.errors] == ["unknown_scope"]
        assert "payroll" not in refused.value.errors[0].message
    own = make.client(organization, by=ada, **MACHINE, scopes=[])
    with app.app_context():
        assert access_requests.list_requestable_resources(ada, own.client_id) == []
        with pytest.raises(NotFound):
            access_requests.request_access(ada, own.client_id, payroll, {"scopes": [], "reason": "Spying"})
    assert READ not in http.get(f"/organizations/{organization.slug}/oauth/authorize").text
    metadata = http.get(f"{organization.issuer}/.well-known/openid-configuration").get_json()
    assert READ not in metadata["scopes_supported"]


@pytest.mark.parametrize("way", ["register", "add the scope", "add the grant"])
def test_developer_cannot_give_a_machine_client_scopes_of_no_api(
    app: Flask, make: Factory, organization: OrganizationSnapshot, way: str
) -> None:
    """Such a scope fits every API, so nobody else's owner would decide about it."""
    admin, ada = make.actor(organization), developer(make, organization)
    web = {"redirect_uris": [REDIRECT_URI], "scopes": ["plain:admin"]}
    with app.app_context():
        clients.register_client(admin, {"name": "First", "type": "web", **web})
        registered: dict[str, Any] = {"name": "Own", **MACHINE, "scopes": []}
        change: dict[str, Any] = {"scopes": ["plain:admin"]}
        if way == "add the grant":
            registered = {"name": "Own", "type": "web", **web}
            change = {"grant_types": ["authorization_code", "client_credentials"]}
        if way == "register":
            with pytest.raises(Forbidden, match="no API"):
                clients.register_client(ada, registered | change)
        else:
            own = clients.register_client(ada, registered).client.client_id
            with pytest.raises(Forbidden, match="no API"):
                clients.update_client(ada, own, change)


def test_developer_cannot_grant_management_scopes(
    app: Flask, make: Factory, organization: OrganizationSnapshot
) -> None:
    """The management API's own scopes need clients:trust, and the permission itself."""
    ada = developer(make, organization)
    with app.app_context():
        for scope in ("clients:read", "clients:read:own"):
            with pytest.raises(Forbidden):
                clients.register_client(ada, {"name": "Own", **MACHINE, "scopes": [scope]})


def test_clients_keep_a_scope_that_an_api_adopts(
    app: Flask, http: FlaskClient, make: Factory, organization: OrganizationSnapshot
) -> None:
    machine = make.client(organization, **MACHINE, scopes=["stock:read"])
    with app.app_context():
        fields = {"identifier": "https://stock.example", "name": "Stock", "scopes": [{"name": "stock:read"}]}
        resources.define_resource(make.actor(organization), fields)
    assert outcome(mint(http, machine)) == "stock:read"


def test_api_adopts_no_scope_of_more_clients_than_it_can_give_access(
    app: Flask, make: Factory, organization: OrganizationSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those beyond the bound would lose the scope without a word. Clients that act for users do not count."""
    monkeypatch.setattr(resource_scopes, "MAX_HOLDERS", 1)
    for _ in range(2):
        make.client(organization, scopes=["openid", "stock:read"])
    fields = {"identifier": "https://stock.example", "name": "Stock", "scopes": [{"name": "stock:read"}]}
    boss = make.actor(organization)
    with app.app_context():
        for _ in range(2):
            make.client(organization, **MACHINE, scopes=["stock:read"])
        with pytest.raises(Conflict, match="More than 1 clients"):
            resources.define_resource(boss, fields)


def test_failed_request_names_the_missing_access(outsider: Flow) -> None:
    mint(outsider.http, outsider.client, scope=READ)
    failed = only(outsider)
    assert (failed.cause, failed.received) == ("access_not_granted", READ)
