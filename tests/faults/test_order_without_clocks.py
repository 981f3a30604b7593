"""Two machines on one database: a revoked secret issues nothing after a second, whatever the clocks say.

The machines are servers with an instance folder each, so that they share no memory, and their clocks are set while they
run. The seconds are counted from the moment at which the revocation was acknowledged.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from app.fast_path.cache_invalidation import TRUSTED_SECONDS
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.store.transactions import transaction
from app.rules.identifiers import digest
from tests.factories import Factory, MadeClient, bearer_header
from tests.faults.traffic import Traffic
from tests.journeys.conftest import REDIRECT_URI, SCOPE
from tests.oauth.conftest import FAST_KEYS
from tests.races.conftest import Race
from tests.support import process
from tests.support.concurrent_requests import Post, Reply, send
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer
from tests.support.set_clock import SetClock

# Longer than any window of time in which changes were looked for before.
STALL_SECONDS = 12.0
PAUSE_SECONDS = 4.0
# Requests that are sent while a process is stopped.
LATE = 8


@dataclass(frozen=True, slots=True)
class Machine:
    """A server whose clock can be set."""

    server: LiveServer
    clock: SetClock


@pytest.fixture(scope="module")
def machines(
    mariadb: MariaDB, worker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Machine, Machine]]:
    """The machine on which secrets are revoked, and the one that has to learn of it."""
    folder = tmp_path_factory.mktemp("machines")
    with ExitStack() as stack:
        made = []
        for name in ("here", "there"):
            keys, clock = folder / name, SetClock(folder / f"clock-{name}")
            if made:
                shutil.copytree(made[0].server.instance, keys, ignore=shutil.ignore_patterns("changes"))
            else:
                keys.mkdir(mode=0o700)
            server = LiveServer(
                MariaDBDatabase(mariadb, f"order_{worker}") if not made else made[0].server.database,
                keys,
                folder / f"{name}.log",
                workers=1,
                settings=clock.environment,
            )
            server.start()
            stack.callback(server.stop)
            made.append(Machine(server, clock))
        Factory(made[0].server.app).root()
        yield made[0], made[1]


@pytest.fixture
def here(machines: tuple[Machine, Machine]) -> Machine:
    return machines[0]


@pytest.fixture
def there(machines: tuple[Machine, Machine]) -> Iterator[Machine]:
    yield machines[1]
    for machine in machines:
        machine.clock.set(0)


@pytest.fixture
def client(here: Machine) -> MadeClient:
    make = Factory(here.server.app)
    return make.machine(make.organization(), "clients:read")


def revoke(here: Machine, client: MadeClient, *, stall: float = 0.0) -> float:
    """Revoke the secret, with so many seconds between INSERT and COMMIT; return when it was acknowledged."""
    actor = Factory(here.server.app).system(client.organization)

    @transaction
    def revoked() -> None:
        revoke_credentials(actor, client.client_id)
        time.sleep(stall)

    with here.server.app.app_context():
        revoked()
    return time.monotonic()


def revoke_over_http(here: Machine, client: MadeClient) -> float:
    """Revoke the secret by a request to the machine itself; return when it was acknowledged."""
    request = urllib.request.Request(
        f"{here.server.url}/clients/{client.client_id}/credentials",
        headers=bearer_header(Factory(here.server.app).bearer(client.organization)),
        method="DELETE",
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200
    return time.monotonic()


def seconds_of_grace(there: Machine, client: MadeClient, change: Callable[[], float]) -> float:
    """Return how long after the change the other machine still issued tokens; assert that it always answered."""
    with Traffic(there.server.url, client, threads=4, pause=0.1) as traffic:
        process.wait_until(lambda: len(traffic.tokens) > 20, "tokens are issued")
        acknowledged = change()
        time.sleep(3 * TRUSTED_SECONDS)
        refused = len(traffic.refused)
        process.wait_until(lambda: len(traffic.refused) > refused + 5, "tokens are refused")
    # 503: a revocation whose COMMIT stalls holds a lock on the client's row.
    assert set(traffic.statuses) <= {401, 429, 503}
    assert traffic.cut == 0
    return traffic.last_issued - acknowledged


@pytest.mark.parametrize(("here_by", "there_by"), [(60, -60), (-60, 60)])
def test_revoked_secret_issues_nothing_after_a_second_when_a_clock_was_set(
    here: Machine, there: Machine, client: MadeClient, here_by: int, there_by: int
) -> None:
    def set_clocks_and_revoke() -> float:
        here.clock.set(here_by)
        there.clock.set(there_by)
        return revoke_over_http(here, client)

    assert seconds_of_grace(there, client, set_clocks_and_revoke) < TRUSTED_SECONDS


def test_revoked_secret_issues_nothing_after_a_second_when_its_commit_stalled(
    here: Machine, there: Machine, client: MadeClient
) -> None:
    def stalled() -> float:
        return revoke(here, client, stall=STALL_SECONDS)

    assert seconds_of_grace(there, client, stalled) < TRUSTED_SECONDS


def test_revoked_secret_issues_nothing_in_a_process_that_was_stopped(
    here: Machine, there: Machine, client: MadeClient
) -> None:
    """Its requests wait until it goes on; what it knew before is then older than a second."""
    pid = there.server.worker_pids()[0]
    late: list[Reply] = []

    def revoke_while_stopped() -> float:
        os.kill(pid, signal.SIGSTOP)
        try:
            acknowledged = revoke(here, client)
            time.sleep(PAUSE_SECONDS)
            waiting = [threading.Thread(target=lambda: late.append(send(url, request))) for _ in range(LATE)]
            for thread in waiting:
                thread.start()
            # They are sent, and the first thing that it finds.
            time.sleep(1)
        finally:
            os.kill(pid, signal.SIGCONT)
        for thread in waiting:
            thread.join()
        return acknowledged

    url, request = there.server.url, Post("/oauth/token", {"grant_type": "client_credentials"}, client.basic)
    assert seconds_of_grace(there, client, revoke_while_stopped) < TRUSTED_SECONDS
    assert len(late) == LATE and {reply.status for reply in late} <= {401, 429}


@pytest.mark.parametrize("by", [-60, 60])
def test_codes_life_is_the_same_on_a_machine_whose_clock_was_set(
    here: Machine, there: Machine, by: int
) -> None:
    """CD-2, CK-1: a code of 65 seconds is rejected and a fresh one accepted."""
    make = Factory(here.server.app)
    organization = make.organization(settings=FAST_KEYS)
    web = make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    race = Race(here.server, make, web, make.user(organization))
    fresh, old, first = race.code(), race.code(), race.code()
    here.server.database.query(
        "UPDATE authorization_codes SET issued_at = issued_at - INTERVAL 65 SECOND,"
        " expires_at = expires_at - INTERVAL 65 SECOND WHERE organization_id = %s AND digest = %s",
        organization.id.encode(),
        digest(old),
    )
    # The account is older than the code.
    here.server.database.query(
        "UPDATE users SET password_changed_at = password_changed_at - INTERVAL 1 HOUR WHERE organization_id = %s",
        organization.id.encode(),
    )
    # It has just compared its clock with the database's.
    assert send(there.server.url, race.redemption(first)).status == 200
    there.clock.set(by)
    reply = send(there.server.url, race.redemption(old))
    assert (reply.status, reply.json["error"]) == (400, "invalid_grant")
    assert send(there.server.url, race.redemption(fresh)).status == 200
