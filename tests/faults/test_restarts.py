"""A restart changes no state: what was used, rotated or revoked before it stays so (RF-8)."""

from __future__ import annotations

from tests.factories import Factory
from tests.faults.conftest import restarted
from tests.journeys.conftest import REDIRECT_URI, SCOPE
from tests.races.conftest import Race
from tests.support.concurrent_requests import Post, Reply, send
from tests.support.dpop import Prover
from tests.support.servers import LiveServer


def race_on(server: LiveServer) -> Race:
    """Create an organization with one web client and one user on the server."""
    make = Factory(server.app)
    organization = make.organization()
    client = make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    return Race(server, make, client, make.user(organization))


def is_refused(reply: Reply) -> bool:
    return (reply.status, reply.json["error"]) == (400, "invalid_grant")


def test_rotated_refresh_token_stays_rotated_after_a_restart(mortal_server: LiveServer) -> None:
    """RF-8: Keycloak's CVE-2026-9802, where a restart restored rotated tokens."""
    race, url = race_on(mortal_server), mortal_server.url
    first = send(url, race.redemption(race.code())).json["refresh_token"]
    second = send(url, race.refresh(first)).json["refresh_token"]
    third = send(url, race.refresh(second)).json
    restarted(mortal_server)
    assert send(url, race.introspection(third["access_token"])).json["active"] is True
    assert is_refused(send(url, race.refresh(first)))
    assert send(url, race.introspection(third["access_token"])).json == {"active": False}
    assert is_refused(send(url, race.refresh(third["refresh_token"])))


def test_response_lost_in_a_restart_is_repeated(mortal_server: LiveServer) -> None:
    """RF-3, RF-8: the grace period is stored in the database, not in the process."""
    race, url = race_on(mortal_server), mortal_server.url
    first = send(url, race.redemption(race.code())).json["refresh_token"]
    answer = send(url, race.refresh(first))
    restarted(mortal_server)
    assert send(url, race.refresh(first)).body == answer.body


def test_single_use_values_stay_used_after_a_restart(mortal_server: LiveServer) -> None:
    """RF-8 applied to codes (CD-6), proofs (DC-6) and revocations (RV-5)."""
    race, url = race_on(mortal_server), mortal_server.url
    code = race.code()
    tokens = send(url, race.redemption(code)).json
    revoked = send(url, race.redemption(race.code())).json["access_token"]
    assert send(url, race.revocation(revoked)).status == 200
    machine = race.make.machine(race.client.organization, "clients:read")
    proof = Prover().headers("POST", f"{url}/oauth/token")
    proven = Post("/oauth/token", {"grant_type": "client_credentials"}, machine.basic | proof)
    assert send(url, proven).status == 200
    restarted(mortal_server)
    assert send(url, race.introspection(revoked)).json == {"active": False}
    assert (send(url, proven).status, send(url, proven).json["error"]) == (400, "invalid_dpop_proof")
    assert is_refused(send(url, race.redemption(code)))
    assert send(url, race.introspection(tokens["access_token"])).json == {"active": False}
