"""Many requests at once with one DPoP proof: one is accepted, and none gets a 5xx (DC-6)."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from tests.factories import MadeClient
from tests.races.conftest import CROWD, Race
from tests.support.concurrent_requests import Post, send, send_concurrently
from tests.support.dpop import Prover

FORM = {"grant_type": "client_credentials"}


@pytest.fixture
def machine(race: Race) -> MadeClient:
    return race.make.machine(race.client.organization, "clients:read")


def asking(race: Race, machine: MadeClient, prover: Prover, **changes: str) -> Post:
    """Return a token request with a proof."""
    proof = prover.headers("POST", f"{race.server.url}/oauth/token", **changes)
    return Post("/oauth/token", FORM, machine.basic | proof)


def test_dpop_proof_issues_one_token(race: Race, machine: MadeClient) -> None:
    replies = send_concurrently(race.server.url, [asking(race, machine, Prover())] * CROWD)
    assert Counter(reply.status for reply in replies) == {200: 1, 400: CROWD - 1}
    assert {reply.json["error"] for reply in replies if reply.status == 400} == {"invalid_dpop_proof"}
    assert {reply.worker for reply in replies} == set(race.server.worker_pids())
    [(stored,)] = race.server.database.query(
        "SELECT COUNT(*) FROM used_identifiers WHERE organization_id = %s", machine.organization.id.encode()
    )
    assert stored == 1


def test_jti_is_accepted_once_across_proofs(race: Race, machine: MadeClient) -> None:
    """The jti is single-use, not the bytes of the proof: these proofs differ only in their signatures."""
    prover = Prover()
    replies = send_concurrently(
        race.server.url, [asking(race, machine, prover, jti="one") for _ in range(200)]
    )
    assert Counter(reply.status for reply in replies) == {200: 1, 400: 199}


def test_dpop_proof_is_accepted_once_by_the_management_api(race: Race, machine: MadeClient) -> None:
    prover = Prover()
    token = send(race.server.url, asking(race, machine, prover)).json["access_token"]
    headers = prover.headers("GET", f"{race.server.url}/clients", access_token=token)
    gate = threading.Barrier(200)

    def one(_: int) -> int:
        gate.wait(60)
        return _get(race.server.url, list(headers.items()))

    with ThreadPoolExecutor(200) as pool:
        assert Counter(pool.map(one, range(200))) == {200: 1, 401: 199}


def test_two_dpop_headers_are_rejected(race: Race, machine: MadeClient) -> None:
    """The real server joins the two proofs of one request."""
    prover, url = Prover(), f"{race.server.url}/clients"
    token = send(race.server.url, asking(race, machine, prover)).json["access_token"]
    proofs = [("DPoP", prover.proof("GET", url, access_token=token)) for _ in range(2)]
    named = [("Authorization", f"DPoP {token}")]
    assert _get(race.server.url, named + proofs[:1]) == 200
    assert (
        _get(race.server.url, [*named, ("DPoP", prover.proof("GET", url, access_token=token)), proofs[1]])
        == 401
    )


def _get(server: str, headers: list[tuple[str, str]]) -> int:
    connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=60)
    try:
        connection.putrequest("GET", "/clients")
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()
