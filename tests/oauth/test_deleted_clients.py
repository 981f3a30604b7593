"""User tokens after the client's secret was revoked or the client was deleted."""

from __future__ import annotations

from base64 import b64encode

import pytest

from app.operations.clients import clients, credential_revocation, credentials
from app.operations.grants.grant_lists import list_grants
from app.rules.actor import Actor
from tests.factories import Factory
from tests.oauth.conftest import Flow
from tests.support.databases import Database


@pytest.fixture
def admin(flow: Flow, make: Factory) -> Actor:
    return make.actor(flow.organization)


def test_revoked_secret_revokes_user_tokens_on_request(flow: Flow, admin: Actor) -> None:
    tokens = flow.tokens()
    with flow.app.app_context():
        made = credentials.create_credential(admin, flow.client.client_id)
        old = flow.client.registered.credential
        assert old is not None
        credential_revocation.revoke_credentials(
            admin, flow.client.client_id, credential_id=old.public_id, revoke_tokens=True
        )
    pair = b64encode(f"{flow.client.client_id}:{made.secret}".encode()).decode()
    answer = flow.http.post(
        "/oauth/token",
        data={"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]},
        headers={"Authorization": f"Basic {pair}"},
    )
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_grant")
    with flow.app.app_context():
        assert credentials.get_credential(admin, flow.client.client_id, old.public_id).live_tokens == 0


def test_revoked_secret_keeps_user_tokens_by_default(flow: Flow, admin: Actor) -> None:
    flow.tokens()
    with flow.app.app_context():
        counts = credential_revocation.revoke_credentials(admin, flow.client.client_id)
        assert (counts.credentials, counts.tokens) == (1, 0)
        [entry] = credentials.list_credentials(admin, flow.client.client_id).items
        assert entry.live_tokens == 1


@pytest.mark.parametrize("ending", ["deleted", "disabled"])
def test_deleted_client_has_no_active_tokens(
    flow: Flow, admin: Actor, ending: str, database: Database
) -> None:
    """Without a statement that changes all of its grants, which is not done in time if there are very many."""
    tokens = flow.tokens()
    assert flow.is_alive(tokens["access_token"])
    with flow.app.app_context():
        if ending == "deleted":
            counts = clients.delete_client(admin, flow.client.client_id)
            assert (counts.access_tokens, counts.grants) == (1, 1)
            assert list_grants(admin).items == ()
        else:
            clients.update_client(admin, flow.client.client_id, {"status": "disabled"})
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    assert flow.http.get("/oauth/userinfo", headers=bearer).status_code == 401
    assert database.query("SELECT COUNT(*) FROM grants WHERE revoked_at IS NOT NULL") == [(0,)]
    assert flow.refresh(tokens["refresh_token"]).status_code in {400, 401}


def test_deletion_does_not_count_grants_that_a_block_revoked(flow: Flow, admin: Actor) -> None:
    flow.tokens()
    with flow.app.app_context():
        clients.update_client(admin, flow.client.client_id, {"approval": "blocked"})
        counts = clients.delete_client(admin, flow.client.client_id)
    assert (counts.access_tokens, counts.grants) == (0, 0)
