"""Active grants in the API: who can list them, filters, and revocation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.models.grant import Grant
from app.operations.audit.audit_events import list_audit_events
from app.operations.grants import grant_lists
from app.operations.store import clock
from app.rules.errors import NotFound
from app.rules.identifiers import public_id
from tests.factories import Factory, bearer_header
from tests.oauth.conftest import Flow, change_rows


def listed(flow: Flow, **query: str) -> list[dict[str, Any]]:
    headers = bearer_header(flow.make.bearer(flow.organization, "tokens:read"))
    answer = flow.http.get("/grants", query_string=query, headers=headers)
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.get_json()["data"]
    return data


def revoke(flow: Flow, grant_id: str) -> Any:
    headers = bearer_header(flow.make.bearer(flow.organization, "tokens:revoke"))
    return flow.http.delete(f"/grants/{grant_id}", headers=headers)


def test_grant_names_user_client_and_scopes_but_no_token(flow: Flow) -> None:
    tokens = flow.tokens()
    [grant] = listed(flow)
    assert grant["client_id"] == flow.client.client_id and grant["client_name"] == "Orchard"
    assert (grant["user_id"], grant["user_email"]) == (flow.user.public_id, flow.user.email)
    assert "openid" in grant["scopes"]
    assert (grant["has_refresh_token"], grant["refresh_count"], grant["revoked_at"]) == (True, 0, None)
    assert not [value for value in tokens.values() if str(value) in str(grant) and len(str(value)) > 20]
    flow.refresh(tokens["refresh_token"])
    assert listed(flow)[0]["refresh_count"] == 1


def test_revoked_grant_invalidates_its_tokens_and_is_audited(flow: Flow) -> None:
    """IT-3: neither its access token nor its refresh token is accepted afterwards."""
    tokens = flow.tokens()
    [grant] = listed(flow)
    answer = revoke(flow, grant["id"])
    assert answer.status_code == 200 and answer.get_json()["data"]["revoked_at"], answer.text
    userinfo = flow.http.get("/oauth/userinfo", headers=bearer_header(tokens["access_token"]))
    assert userinfo.status_code == 401
    assert flow.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert listed(flow) == []
    again = revoke(flow, grant["id"])
    assert again.status_code == 404
    with flow.app.app_context():
        found = list_audit_events(
            flow.make.system(flow.organization), filters={"action": "grant.revoked"}
        ).items
    assert [(event.target_id, event.after) for event in found] == [
        (grant["id"], {"client_id": flow.client.client_id, "user": flow.user.public_id})
    ]


def test_grants_can_be_filtered_by_client_and_user(flow: Flow) -> None:
    flow.tokens()
    other = flow.make.client(flow.organization)
    assert len(listed(flow, client_id=flow.client.client_id)) == 1
    assert len(listed(flow, client_id=flow.client.client_id, user_id=flow.user.public_id)) == 1
    assert listed(flow, client_id=other.client_id) == []
    assert listed(flow, user_id=flow.make.user(flow.organization).public_id) == []


@pytest.mark.parametrize("column", ["expires_at", "idle_expires_at"])
def test_expired_grant_is_not_listed(flow: Flow, column: str) -> None:
    flow.tokens()
    with flow.app.app_context():
        past = clock.now() - timedelta(seconds=1)
    change_rows(flow, Grant, **{column: past})
    assert listed(flow) == []


def test_grants_are_paginated(flow: Flow) -> None:
    for _ in range(3):
        flow.tokens()
    every = [grant["id"] for grant in listed(flow)]
    headers = bearer_header(flow.make.bearer(flow.organization, "tokens:read"))
    first = flow.http.get("/grants?limit=2", headers=headers).get_json()
    query = {"limit": "2", "cursor": first["meta"]["next_cursor"]}
    second = flow.http.get("/grants", query_string=query, headers=headers).get_json()
    assert [grant["id"] for grant in first["data"] + second["data"]] == every and len(every) == 3
    assert second["meta"]["next_cursor"] is None


def test_developer_can_access_only_grants_of_own_clients(flow: Flow) -> None:
    """PO-1: ``tokens:read:own`` and ``tokens:revoke:own``."""
    flow.tokens()
    make: Factory = flow.make
    grace = make.user(flow.organization)
    actor = make.actor(flow.organization, "tokens:read:own", "tokens:revoke:own", user=grace)
    with flow.app.app_context():
        [grant] = grant_lists.list_grants(make.system(flow.organization)).items
        assert grant_lists.list_grants(actor).items == ()
        for reach in (grant_lists.get_grant, grant_lists.revoke_grant):
            with pytest.raises(NotFound):
                reach(actor, public_id("grt", grant.id))
        assert grant_lists.get_grant(make.system(flow.organization), grant.public_id) == grant
