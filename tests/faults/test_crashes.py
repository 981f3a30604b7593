"""The database or a worker is killed under traffic: acknowledged tokens stay valid, other requests get a 503."""

from __future__ import annotations

import os
import signal
import time

from app.rules.identifiers import digest
from tests.factories import Factory, MadeClient
from tests.faults.traffic import Traffic
from tests.support import process
from tests.support.concurrent_requests import Post, replies_of_every_worker, send
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

# Some request is on its way at any moment, and the machine has time for what is started meanwhile.
PAUSE_SECONDS = 0.01


def stored(server: LiveServer) -> set[bytes]:
    """Return the digests of all access tokens."""
    return {bytes(row[0]) for row in server.database.query("SELECT digest FROM access_tokens")}


def token_request(client: MadeClient) -> Post:
    """Return a token request of the client itself."""
    return Post("/oauth/token", {"grant_type": "client_credentials"}, client.basic)


def test_killed_database_loses_no_token_and_recovers_in_seconds(
    mortal_server: LiveServer, mortal_database: MariaDB
) -> None:
    """F1."""
    make = Factory(mortal_server.app)
    client = make.machine(make.organization(), "clients:read")
    with Traffic(mortal_server.url, client, pause=PAUSE_SECONDS) as traffic:
        for _ in range(2):
            done = len(traffic.tokens)
            process.wait_until(lambda done=done: len(traffic.tokens) > done + 50, "tokens are issued")
            refused = len(traffic.refused)
            mortal_database.kill()
            process.wait_until(lambda refused=refused: len(traffic.refused) > refused + 5, "503 is answered")
            mortal_database.start()
            back, done = time.monotonic(), len(traffic.tokens)
            process.wait_until(lambda done=done: len(traffic.tokens) > done + 50, "tokens are issued again")
            assert time.monotonic() - back < 20
    assert set(traffic.statuses) == {503}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in traffic.refused)
    assert traffic.cut == 0
    assert {digest(token) for token in traffic.tokens} <= stored(mortal_server)


def test_killed_worker_is_replaced_without_losing_a_token(mortal_server: LiveServer) -> None:
    """F10."""
    make = Factory(mortal_server.app)
    client = make.machine(make.organization(), "clients:read")
    token = send(mortal_server.url, token_request(client)).json["access_token"]
    question = Post("/oauth/introspect", {"token": token}, client.basic)
    # The server was started when one of its workers responded.
    replies_of_every_worker(mortal_server.url, question, mortal_server.worker_pids())
    with Traffic(mortal_server.url, client, pause=PAUSE_SECONDS) as traffic:
        for _ in range(2):
            before = mortal_server.worker_pids()
            os.kill(before[0], signal.SIGKILL)
            process.wait_until(
                lambda before=before: len(set(mortal_server.worker_pids()) - set(before)) == 1,
                "another worker",
            )
            # A worker has a process id before it accepts connections; kill the next one only once this one responds.
            replies = replies_of_every_worker(mortal_server.url, question, mortal_server.worker_pids())
            assert {reply.json["active"] for reply in replies} == {True}
    assert traffic.refused == []
    assert traffic.tokens
    assert {digest(token) for token in traffic.tokens} <= stored(mortal_server)
