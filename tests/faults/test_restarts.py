"""A restart changes no state: what was used, rotated or revoked before it stays so (RF-8)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from app.operations.organizations.settings import update_settings
from tests.factories import Factory
from tests.faults.conftest import restarted
from tests.journeys.conftest import REDIRECT_URI, SCOPE
from tests.oauth.conftest import FAST_KEYS
from tests.races.conftest import Race
from tests.support import process
from tests.support.concurrent_requests import Post, Reply, send
from tests.support.dpop import Prover
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

# More than a busy machine needs until it notices that the database is back.
GRACE_SECONDS = 10


def race_on(server: LiveServer) -> Race:
    """Create an organization with one web client and one user on the server."""
    make = Factory(server.app)
    organization = make.organization(settings=FAST_KEYS)
    client = make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    return Race(server, make, client, make.user(organization))


def is_refused(reply: Reply) -> bool:
    return (reply.status, reply.json["error"]) == (400, "invalid_grant")


def rotated_refresh_token_stays_rotated(race: Race) -> Iterator[None]:
    """RF-8: Keycloak's CVE-2026-9802, where a restart restored rotated tokens."""
    url = race.server.url
    first = send(url, race.redemption(race.code())).json["refresh_token"]
    second = send(url, race.refresh(first)).json["refresh_token"]
    third = send(url, race.refresh(second)).json
    yield
    assert send(url, race.introspection(third["access_token"])).json["active"] is True
    assert is_refused(send(url, race.refresh(first)))
    assert send(url, race.introspection(third["access_token"])).json == {"active": False}
    assert is_refused(send(url, race.refresh(third["refresh_token"])))


def lost_response_is_repeated(race: Race) -> Iterator[None]:
    """RF-3, RF-8: the grace period is stored in the database, not in the process."""
    url = race.server.url
    first = send(url, race.redemption(race.code())).json["refresh_token"]
    answer = send(url, race.refresh(first)).json
    yield
    repeated = send(url, race.refresh(first)).json
    # A restart that takes longer than the grace period counts as an outage, after which the lifetime is what remains.
    assert 0 < repeated["expires_in"] <= answer["expires_in"]
    assert repeated | {"expires_in": answer["expires_in"]} == answer


def single_use_values_stay_used(race: Race) -> Iterator[None]:
    """RF-8 applied to codes (CD-6), proofs (DC-6) and revocations (RV-5)."""
    url, code = race.server.url, race.code()
    tokens = send(url, race.redemption(code)).json
    revoked = send(url, race.redemption(race.code())).json["access_token"]
    assert send(url, race.revocation(revoked)).status == 200
    machine = race.make.machine(race.client.organization, "clients:read")
    proof = Prover().headers("POST", f"{url}/oauth/token")
    proven = Post("/oauth/token", {"grant_type": "client_credentials"}, machine.basic | proof)
    assert send(url, proven).status == 200
    yield
    assert send(url, race.introspection(revoked)).json == {"active": False}
    assert (send(url, proven).status, send(url, proven).json["error"]) == (400, "invalid_dpop_proof")
    assert is_refused(send(url, race.redemption(code)))
    assert send(url, race.introspection(tokens["access_token"])).json == {"active": False}


def test_state_is_the_same_after_a_restart(mortal_server: LiveServer) -> None:
    """Each function does something, yields once for the restart, and checks what is left of it."""
    parts = [
        part(race_on(mortal_server))
        # The one with a grace period last before the restart, and first after it.
        for part in (
            single_use_values_stay_used,
            rotated_refresh_token_stays_rotated,
            lost_response_is_repeated,
        )
    ]
    for part in parts:
        next(part)
    restarted(mortal_server)
    assert [next(part, "checked") for part in reversed(parts)] == ["checked"] * len(parts)


def start_refresh(race: Race) -> tuple[Post, Reply]:
    """Refresh in an organization with a short grace period; return the request and the response, as if it were lost."""
    changes = {"oauth": {"refresh_token": {"reuse_grace_seconds": GRACE_SECONDS}}}
    with race.server.app.app_context():
        update_settings(race.make.system(race.client.organization), race.client.organization.slug, changes)
    request = race.refresh(send(race.server.url, race.redemption(race.code())).json["refresh_token"])
    return request, send(race.server.url, request)


@pytest.mark.parametrize("what", ["server", "database"])
def test_response_lost_in_an_outage_is_repeated_afterwards(
    mortal_server: LiveServer, mortal_database: MariaDB, what: str
) -> None:
    """RF-3: the grace period goes on when the service is back, and ends when it was reachable for so long.

    The outage of the server, and the time after that of the database, are over at once: what is stored grows older.
    """
    race, url = race_on(mortal_server), mortal_server.url
    organization_id = race.client.organization.id
    process.wait_until(lambda: is_reported(mortal_server), "the first report that the service is reachable")
    request, lost = start_refresh(race)
    # The clock of the grace period began before.
    if what == "server":
        mortal_server.kill()
        grow_older(mortal_server, "instance_facts", "updated_at", name="heartbeat")
        grow_older(mortal_server, "grants", "rotated_at", organization_id=organization_id)
        mortal_server.start()
    else:
        mortal_database.kill()
        time.sleep(GRACE_SECONDS + 1)
        mortal_database.start()
        process.wait_until(lambda: send(url, race.refresh("x")).status == 400, "the database is back")
    repeated = send_until_served(url, request)
    assert (repeated.status, repeated.json["refresh_token"]) == (200, lost.json["refresh_token"])
    if what == "database":
        grow_older(mortal_server, "grants", "rotated_at", organization_id=organization_id)
    process.wait_until(
        lambda: send(url, request).status == 400, "the grace period is over", seconds=60, pause=1
    )
    assert is_refused(send(url, race.refresh(lost.json["refresh_token"])))


def grow_older(server: LiveServer, table: str, time_column: str, **where: str) -> None:
    """Subtract more than the grace period from a time in the rows where one column has the value."""
    [(column, value)] = where.items()
    server.database.query(
        f"UPDATE {table} SET {time_column} = {time_column} - INTERVAL {GRACE_SECONDS + 1} SECOND"
        f" WHERE {column} = %s",
        value.encode(),
    )


def send_until_served(url: str, request: Post) -> Reply:
    """Send the request again, as clients do, while one of the workers has not noticed that the database is back."""
    replies = []

    def is_served() -> bool:
        replies.append(send(url, request))
        return replies[-1].status != 503

    process.wait_until(is_served, "a response of a worker that has a database", pause=0.2)
    return replies[-1]


def is_reported(server: LiveServer) -> bool:
    """Return whether the server has reported that it is reachable."""
    return bool(server.database.query("SELECT 1 FROM instance_facts WHERE name = 'heartbeat'"))
