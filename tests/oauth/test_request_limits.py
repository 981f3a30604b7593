"""Clients beyond their limit of requests per minute, at each interface that authenticates them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.organizations import settings
from tests.factories import Factory
from tests.oauth.conftest import Flow

LIMITED = {"limits": {"client_requests_per_minute": 10}}
REQUESTS: dict[str, Callable[[Flow, str], Any]] = {
    "token": lambda flow, _: flow.http.post(
        "/oauth/token", data={"grant_type": "refresh_token", "refresh_token": "x"}, headers=flow.client.basic
    ),
    "introspect": lambda flow, _: flow.http.post(
        "/oauth/introspect", data={"token": "unknown"}, headers=flow.client.basic
    ),
    "userinfo": lambda flow, token: flow.http.get(
        "/oauth/userinfo", headers={"Authorization": f"Bearer {token}"}
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_client_beyond_its_limit_is_told_when_to_come_back(flow: Flow, make: Factory, name: str) -> None:
    token = flow.tokens()["access_token"]
    organization = flow.client.organization
    with flow.app.app_context():
        settings.update_settings(make.system(organization), organization.slug, LIMITED)
    answers = [REQUESTS[name](flow, token) for _ in range(12)]
    assert [answer.status_code == 429 for answer in answers] == [False] * 10 + [True] * 2
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 61
    assert answers[-1].get_json()["error"] == "too_many_requests"


def test_client_beyond_its_limit_cannot_call_the_management_api(flow: Flow, make: Factory) -> None:
    organization = flow.client.organization
    header = {"Authorization": f"Bearer {make.bearer(organization, 'clients:read')}"}
    with flow.app.app_context():
        settings.update_settings(make.system(organization), organization.slug, LIMITED)
    answers = [flow.http.get("/clients", headers=header) for _ in range(12)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 2
    assert answers[-1].get_json()["success"] is False and "Retry-After" in answers[-1].headers


def test_requests_without_authentication_do_not_use_up_the_limits_of_the_organization(
    flow: Flow, make: Factory
) -> None:
    organization = flow.client.organization
    public = flow.other_client(type="spa", redirect_uris=["https://spa.example/callback"])
    with flow.app.app_context():
        limits = {"client_requests_per_minute": 10, "organization_requests_per_minute": 10}
        settings.update_settings(make.system(organization), organization.slug, {"limits": limits})
    assert [_refresh_publicly(public).status_code for _ in range(15)] == [400] * 15
    answers = [REQUESTS["token"](flow, "") for _ in range(12)]
    assert [answer.status_code for answer in answers] == [400] * 10 + [429] * 2
    assert _refresh_publicly(public).status_code == 400


def test_requests_without_authentication_count_for_their_network(flow: Flow, make: Factory) -> None:
    organization = flow.client.organization
    public = flow.other_client(type="spa", redirect_uris=["https://spa.example/callback"])
    with flow.app.app_context():
        limits = {"network_requests_per_minute": 10}
        settings.update_settings(make.system(organization), organization.slug, {"limits": limits})
    answers = [_refresh_publicly(public) for _ in range(12)]
    assert [answer.status_code for answer in answers] == [400] * 10 + [429] * 2


@pytest.mark.parametrize("kind", ["client", "network", "organization"])
def test_token_can_be_revoked_beyond_each_limit(flow: Flow, make: Factory, kind: str) -> None:
    token = flow.tokens()["access_token"]
    organization = flow.client.organization

    def limit(number: int | None) -> None:
        changes = {"limits": {f"{kind}_requests_per_minute": number}}
        with flow.app.app_context():
            settings.update_settings(make.system(organization), organization.slug, changes)

    limit(10)
    assert [REQUESTS["token"](flow, token) for _ in range(12)][-1].status_code == 429
    for path in ("/oauth/revoke", f"/organizations/{organization.slug}/oauth/revoke"):
        answer = flow.http.post(path, data={"token": token}, headers=flow.client.basic)
        assert answer.status_code == 200
    limit(None)
    assert REQUESTS["userinfo"](flow, token).status_code == 401


def _refresh_publicly(flow: Flow) -> Any:
    data = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": flow.client.client_id}
    return flow.http.post("/oauth/token", data=data)
