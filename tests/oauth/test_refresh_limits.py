"""Refresh token limits: client, organization, scopes, and absolute and idle expiry."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.operations.clients.clients import update_client
from app.operations.users.users import disable_user
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, Flow, audited, on_another_worker
from tests.oauth.test_refresh import configure, grant_of, is_refused, move
from tests.support.databases import Database


def test_another_client_can_neither_use_nor_revoke_it(flow: Flow, database: Database) -> None:
    """RF-6."""
    first = flow.tokens()
    flow.refresh(first["refresh_token"])
    other = flow.other_client(redirect_uris=[REDIRECT_URI])
    public = flow.other_client(type="spa", redirect_uris=[REDIRECT_URI])
    for token in (first["refresh_token"], flow.tokens()["refresh_token"]):
        assert is_refused(other.refresh(token))
        assert is_refused(public.refresh(token, {}, client_id=public.client.client_id))
    assert flow.is_alive(first["access_token"])
    assert audited(database, "refresh_token.reused") == 0


def test_refresh_token_of_another_organization_is_unknown(flow: Flow) -> None:
    """TN-6."""
    token = flow.tokens()["refresh_token"]
    there = flow.make.organization(settings=FAST_KEYS)
    client = flow.make.client(there, scopes=SCOPES)
    foreign = Flow(flow.app, flow.http, flow.make, client, flow.user)
    assert is_refused(foreign.refresh(token))
    assert flow.refresh(token).status_code == 200


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("profile", "profile"),
        ("email openid", "email openid"),
        (None, " ".join(SCOPES)),
        ("", " ".join(SCOPES)),
    ],
)
def test_scope_can_narrow_and_does_not_narrow_the_family(flow: Flow, asked: str | None, given: str) -> None:
    """RF-6."""
    first = flow.tokens()
    second = flow.refresh(first["refresh_token"], scope=asked).get_json()
    assert second["scope"] == given
    assert ("id_token" in second) == ("openid" in given)
    assert flow.refresh(second["refresh_token"]).get_json()["scope"] == " ".join(SCOPES)


@pytest.mark.parametrize("asked", ["openid address", "reports:read", "a  b", 'say"', "OPENID"])
def test_scope_cannot_widen_and_the_attempt_consumes_nothing(flow: Flow, asked: str) -> None:
    """RF-6."""
    token = flow.tokens()["refresh_token"]
    answer = flow.refresh(token, scope=asked)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_scope")
    assert grant_of(flow.app).generation == 0
    assert flow.refresh(token).status_code == 200


def test_scope_removed_from_the_client_is_not_renewed(flow: Flow) -> None:
    """RF-6: another worker removed it, and this worker's cache still has it."""
    token = flow.tokens()["refresh_token"]
    with flow.app.app_context(), on_another_worker():
        scopes = ["openid", "offline_access"]
        update_client(flow.make.system(flow.organization), flow.client.client_id, {"scopes": scopes})
    assert flow.refresh(token, scope="email").get_json()["error"] == "invalid_scope"
    renewed = flow.refresh(token).get_json()
    assert renewed["scope"] == "openid offline_access"
    with flow.app.app_context(), on_another_worker():
        update_client(flow.make.system(flow.organization), flow.client.client_id, {"scopes": ["openid"]})
    # CO-5: nor is the refresh token, which the client may not have any more.
    assert is_refused(flow.refresh(renewed["refresh_token"]))


def test_rotation_does_not_extend_the_absolute_expiry(flow: Flow) -> None:
    """RF-5."""
    configure(flow, ttl_seconds=1_000_000, idle_ttl_seconds=900_000)
    first = flow.tokens()
    before = grant_of(flow.app)
    assert before.expires_at - before.created_at == timedelta(seconds=1_000_000)
    assert before.idle_expires_at - before.created_at == timedelta(seconds=900_000)
    move(flow.app, expires_at=-timedelta(seconds=500_000), idle_expires_at=-timedelta(seconds=500_000))
    flow.refresh(first["refresh_token"])
    after = grant_of(flow.app)
    assert after.expires_at == before.expires_at - timedelta(seconds=500_000)
    assert after.idle_expires_at == after.expires_at, "idle never beyond the absolute end"


@pytest.mark.parametrize("column", ["expires_at", "idle_expires_at"])
def test_refresh_token_is_invalid_after_either_expiry(flow: Flow, column: str) -> None:
    """RF-5."""
    first = flow.tokens()
    grant = grant_of(flow.app)
    left = getattr(grant, column) - grant.created_at
    move(flow.app, **{column: -left})
    assert is_refused(flow.refresh(first["refresh_token"]))
    assert not flow.is_alive(first["refresh_token"])


def test_use_extends_the_idle_expiry(flow: Flow) -> None:
    first = flow.tokens()
    before = grant_of(flow.app).idle_expires_at
    move(flow.app, idle_expires_at=-timedelta(days=10))
    flow.refresh(first["refresh_token"])
    assert abs(grant_of(flow.app).idle_expires_at - before) < timedelta(seconds=30)


def test_disabled_user_cannot_refresh(flow: Flow) -> None:
    """SS-6."""
    first = flow.tokens()
    with flow.app.app_context():
        disable_user(flow.make.system(flow.organization), flow.user.id)
    assert is_refused(flow.refresh(first["refresh_token"]))
    assert not flow.is_alive(first["access_token"])
