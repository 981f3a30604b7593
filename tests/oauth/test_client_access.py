"""Client access to APIs: which client gets an API's scopes without a user's consent (AC-1)."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients import resources
from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.actor import Actor
from app.rules.directory.permissions import BUILT_IN_ROLES
from app.rules.organizations.settings_table import GRANT_TYPES
from app.rules.tokens.token_exchange import ACCESS_TOKEN_TYPE, GRANT_TYPE
from tests.factories import Factory, MadeClient
from tests.oauth.conftest import FAST_KEYS

PAYROLL = "https://payroll.example"
SETTINGS = {"oauth": {**FAST_KEYS["oauth"], "grant_types": [*GRANT_TYPES, GRANT_TYPE]}}
MACHINE: dict[str, Any] = {"type": "machine", "redirect_uris": [], "grant_types": ["client_credentials"]}
EXCHANGING = {"grant_types": ["client_credentials", GRANT_TYPE], "token_exchange": "delegation"}


def developer(make: Factory, organization: OrganizationSnapshot) -> Actor:
    """A user with the role of a developer."""
    held = BUILT_IN_ROLES["developer"].permissions
    return make.actor(organization, *held, user=make.user(organization, role="developer"))


@pytest.fixture
def organization(make: Factory) -> OrganizationSnapshot:
    return make.organization(settings=SETTINGS)


@pytest.fixture
def payroll(app: Flask, make: Factory, organization: OrganizationSnapshot) -> str:
    """The id of an API of an administrator, which developers cannot see."""
    fields = {
        "identifier": PAYROLL,
        "name": "Payroll",
        "scopes": [{"name": "payroll:read"}, {"name": "payroll:write"}],
    }
    with app.app_context():
        return resources.define_resource(make.actor(organization), fields).public_id


def mint(http: FlaskClient, client: MadeClient, **form: Any) -> Any:
    data = {"grant_type": "client_credentials"} | form
    return http.post("/oauth/token", data=data, headers=client.basic)


def exchange(http: FlaskClient, client: MadeClient, **form: Any) -> Any:
    """Exchange a token of the client itself."""
    own = mint(http, client, scope="reports:read").get_json()["access_token"]
    data = {"grant_type": GRANT_TYPE, "subject_token": own, "subject_token_type": ACCESS_TOKEN_TYPE} | form
    return http.post("/oauth/token", data=data, headers=client.basic)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"scope": "payroll:read"}, "invalid_scope"),
        ({"scope": "payroll:read", "resource": PAYROLL}, "invalid_target"),
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
    own = make.client(
        organization, by=developer(make, organization), **MACHINE, scopes=["payroll:read", "payroll:write"]
    )
    answer = mint(http, own, **asked)
    assert (answer.status_code, answer.get_json().get("error")) == (400, error), answer.text
