"""A served instance writes its counters by itself: also when it is stopped, and all but the last when it is killed."""

from __future__ import annotations

import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.operations.store.usage_counters import NONE
from tests.factories import Factory, MadeClient
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.process import wait_until
from tests.support.servers import LiveServer

pytestmark = pytest.mark.live
TOKENS = 20


@pytest.fixture
def server(mariadb: MariaDB, instance: Path, tmp_path: Path, worker: str) -> Iterator[LiveServer]:
    """One worker: it has started once the server answers, and is stopped as a server that has served for long."""
    log = tmp_path / "server.log"
    made = LiveServer(MariaDBDatabase(mariadb, f"usage_{worker}"), instance, log, workers=1)
    made.database.clean()
    made.start()
    yield made
    made.stop()


def issue(server: LiveServer, client: MadeClient) -> None:
    body = urllib.parse.urlencode({"grant_type": "client_credentials"}).encode()
    for _ in range(TOKENS):
        request = urllib.request.Request(f"{server.url}/oauth/token", body, client.basic)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200


def counted(server: LiveServer) -> int:
    """Return the counted tokens of the organization."""
    rows = server.database.query("SELECT client_id, span, metric, count FROM usage_counters")
    return sum(int(count) for *key, count in rows if key == [NONE.bytes, b"day", b"tokens"])


def test_stopped_server_has_counted_every_token(server: LiveServer) -> None:
    make = Factory(server.app)
    client = make.machine(make.organization(), "clients:read")
    issue(server, client)
    server.stop()
    assert counted(server) == TOKENS == server.database.count("access_tokens")


def test_killed_server_loses_only_what_was_not_written(server: LiveServer) -> None:
    make = Factory(server.app)
    client = make.machine(make.organization(), "clients:read")
    issue(server, client)
    wait_until(lambda: counted(server) == TOKENS, "the counters", seconds=60)
    issue(server, client)
    server.kill()
    after_crash = counted(server)
    assert TOKENS <= after_crash <= 2 * TOKENS
    server.start()
    issue(server, client)
    wait_until(lambda: counted(server) == after_crash + TOKENS, "the counters", seconds=60)
