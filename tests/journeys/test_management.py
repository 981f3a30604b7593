"""A machine client manages its organization: client_credentials, then the management API, with Authlib."""

from __future__ import annotations

from typing import Any

import pytest
from authlib.integrations.requests_client import OAuth2Session

from tests.factories import Factory, MadeClient, basic_header
from tests.support.concurrent_requests import Post, replies_of_every_worker
from tests.support.servers import LiveServer


@pytest.fixture
def machine(live_make: Factory) -> MadeClient:
    return live_make.machine(live_make.organization())


def session_of(machine: MadeClient, server: LiveServer) -> OAuth2Session:
    session = OAuth2Session(machine.client_id, machine.secret)
    session.fetch_token(f"{server.url}/oauth/token", grant_type="client_credentials")
    return session


def data(answer: Any) -> Any:
    assert answer.ok, answer.text
    body = answer.json()
    assert body["success"] is True
    return body["data"]


def test_client_is_registered_updated_and_deleted(machine: MadeClient, live_server: LiveServer) -> None:
    session, url = session_of(machine, live_server), live_server.url
    fields = {"name": "Pear", "redirect_uris": ["https://pear.example/cb"], "scopes": ["openid"]}
    made = data(session.post(f"{url}/clients", json=fields))
    assert made["client_secret"].startswith("gth_cs_")
    client_id = made["client_id"]
    listed = data(session.get(f"{url}/clients"))
    assert client_id in {client["client_id"] for client in listed}
    renamed = data(session.put(f"{url}/clients/{client_id}", json={"name": "Quince"}))
    assert renamed["name"] == "Quince"
    assert session.delete(f"{url}/clients/{client_id}").status_code == 200
    assert session.get(f"{url}/clients/{client_id}").status_code == 404


def test_new_secret_works_at_once_and_revoked_secret_never(
    machine: MadeClient, live_server: LiveServer, live_make: Factory
) -> None:
    """On both workers, whatever they have cached (F24)."""
    session, url = session_of(machine, live_server), live_server.url
    workers = live_server.worker_pids()
    for _ in range(6):
        other = live_make.machine(machine.organization, "clients:read")
        made = data(session.post(f"{url}/clients/{other.client_id}/credentials", json={}))
        header = basic_header(other.client_id, made["client_secret"])
        request = Post("/oauth/token", {"grant_type": "client_credentials"}, header)
        assert {reply.status for reply in replies_of_every_worker(url, request, workers)} == {200}
        assert session.delete(f"{url}/clients/{other.client_id}/credentials").status_code == 200
        refused = {reply.status for reply in replies_of_every_worker(url, request, workers)}
        assert refused <= {401, 429}


def test_revoke_response_matches_its_specification(machine: MadeClient, live_server: LiveServer) -> None:
    session, url = session_of(machine, live_server), live_server.url
    victim = session_of(machine, live_server).token["access_token"]
    body = {
        "organization_id": machine.organization.slug,
        "token_type": "access_token",
        "token": victim,
    }
    answer = session.post(f"{url}/api/v1/revoke", json=body)
    assert (answer.status_code, answer.json()) == (200, {"success": True, "data": "Token revoked"})
    refused = session.get(
        f"{url}/clients", withhold_token=True, headers={"Authorization": f"Bearer {victim}"}
    )
    assert refused.status_code == 401


def test_another_organization_is_inaccessible(
    machine: MadeClient, live_server: LiveServer, live_make: Factory
) -> None:
    session = session_of(machine, live_server)
    theirs = live_make.client(live_make.organization())
    assert session.get(f"{live_server.url}/clients/{theirs.client_id}").status_code == 404
    assert session.delete(f"{live_server.url}/clients/{theirs.client_id}").status_code == 404
