"""Three Galera nodes: two are written at once, the writer becomes read-only, one loses its quorum (P3, P4, P5)."""

from __future__ import annotations

import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import MySQLdb
import pytest

from app.operations.maintenance.database_nodes import DatabaseNodes, serve_agent
from tests.factories import Factory, MadeClient
from tests.faults.traffic import Traffic
from tests.journeys.conftest import REDIRECT_URI, SCOPE
from tests.oauth.conftest import FAST_KEYS
from tests.races.conftest import Race
from tests.support import process
from tests.support.applications import BASE_URL, application
from tests.support.concurrent_requests import Post, Reply, send
from tests.support.databases import MariaDBDatabase
from tests.support.form_browser import FormBrowser
from tests.support.galera import GaleraCluster, NodeDatabase
from tests.support.haproxy import HAProxy
from tests.support.servers import LiveServer
from tests.support.switch import Switch

pytestmark = pytest.mark.slow

ROUNDS = 100
CODES = 6
CLIENT_CREDENTIALS = {"grant_type": "client_credentials"}


@pytest.fixture(scope="module")
def instances(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folders of two machines, still without keys."""
    folder = tmp_path_factory.mktemp("instances")
    made = folder / "one", folder / "two"
    for instance in made:
        instance.mkdir(mode=0o700)
    return made


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, instances: tuple[Path, Path]
) -> Iterator[GaleraCluster]:
    """Three nodes with a migrated database."""
    nodes = GaleraCluster(tmp_path_factory.mktemp("galera"))
    try:
        Factory(application(MariaDBDatabase(nodes.found(), "gatehouse"), instances[0], BASE_URL)).root()
        nodes.join()
        yield nodes
    finally:
        nodes.stop()


@pytest.fixture(scope="module")
def servers(cluster: GaleraCluster, instances: tuple[Path, Path]) -> Iterator[tuple[LiveServer, LiveServer]]:
    """Two servers as on two machines: the same keys, and each writes to a node of its own."""
    one, two = instances
    for key in one.glob("*.key"):
        shutil.copy2(key, two)
    made: list[LiveServer] = []
    for node, instance in zip(cluster.nodes, instances, strict=False):
        # Each is started before the next one looks for a free port.
        server = LiveServer(
            NodeDatabase(node, "gatehouse"),
            instance,
            instance.with_suffix(".log"),
            workers=1,
            expected="",
            settings={"GATEHOUSE_DATABASE_TIMEOUT": "15"},
        )
        server.start()
        made.append(server)
    assert made[0].url != made[1].url
    yield made[0], made[1]
    for server in made:
        server.stop()


@pytest.fixture(scope="module")
def machine(servers: tuple[LiveServer, LiveServer]) -> MadeClient:
    """A client that gets tokens for itself."""
    make = Factory(servers[0].app)
    return make.machine(make.organization(), "clients:read")


def issue(server: LiveServer, client: MadeClient) -> str:
    """A new access token."""
    return str(send(server.url, Post("/oauth/token", CLIENT_CREDENTIALS, client.basic)).json["access_token"])


def introspect(server: LiveServer, client: MadeClient, token: str) -> bool:
    """Return whether the server calls the token active."""
    return bool(send(server.url, Post("/oauth/introspect", {"token": token}, client.basic)).json["active"])


def revoke(server: LiveServer, client: MadeClient, token: str) -> None:
    """Revoke the token; the server must claim success."""
    assert send(server.url, Post("/oauth/revoke", {"token": token}, client.basic)).status == 200


def test_tokens_issued_and_revoked_at_two_nodes_give_no_wrong_answer(
    servers: tuple[LiveServer, LiveServer], machine: MadeClient
) -> None:
    def check(number: int) -> list[str]:
        here, there = servers if number % 2 else servers[::-1]
        token, wrong = issue(here, machine), []
        if not introspect(there, machine, token):
            wrong.append("an issued token is unknown")
        second = issue(here, machine)
        revoke(there, machine, second)
        if introspect(here, machine, second):
            wrong.append("a revoked token is active where it was issued")
        revoke(here, machine, token)
        if introspect(there, machine, token):
            wrong.append("a revoked token is active elsewhere")
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert [wrong for found in pool.map(check, range(ROUNDS)) for wrong in found] == []


def test_codes_and_refresh_tokens_at_two_nodes_are_used_once(servers: tuple[LiveServer, LiveServer]) -> None:
    one, two = servers
    make = Factory(one.app)
    organization = make.organization(settings=FAST_KEYS)
    client = make.client(organization, redirect_uris=[REDIRECT_URI], scopes=SCOPE.split())
    race = Race(one, make, client, make.user(organization))
    person = FormBrowser(one.url)

    def at_both(post: Post) -> list[Reply]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda server: send(server.url, post), servers))

    for _ in range(CODES):
        # Each step is at the node that did not do the one before.
        tokens = send(two.url, race.redemption(race.code(person))).json
        for server in (one, two, one):
            reply = send(server.url, race.refresh(tokens["refresh_token"]))
            assert reply.status == 200, reply.body
            tokens = reply.json
        assert introspect(two, client, tokens["access_token"])
        # The repetition of a refresh within the grace period receives the same response.
        replies = at_both(race.refresh(tokens["refresh_token"]))
        assert [reply.status for reply in replies] == [200, 200]
        assert replies[0].body == replies[1].body
        # A code that was used twice is worth nothing afterwards.
        replies = at_both(race.redemption(race.code(person)))
        assert sorted(reply.status for reply in replies) == [200, 400]
        issued = next(reply for reply in replies if reply.status == 200).json["access_token"]
        assert not introspect(one, client, issued) and not introspect(two, client, issued)


def ready(server: LiveServer) -> int:
    """Return the status of /readyz."""
    try:
        with urllib.request.urlopen(f"{server.url}/readyz", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_requests_go_on_when_the_writer_becomes_read_only(
    cluster: GaleraCluster, servers: tuple[LiveServer, LiveServer], machine: MadeClient, tmp_path: Path
) -> None:
    """The load balancer leads new connections to another node, and existing ones stay with the old writer."""
    old, new = cluster.nodes[:2]
    # The account of docs/deployment.md: read_only does not bind one with all privileges.
    old.execute(f"CREATE USER IF NOT EXISTS served@'%' IDENTIFIED BY '{old.password}'")
    old.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON gatehouse.* TO served@'%'")
    switch = Switch(old.port)
    url = f"mysql+mysqldb://served:{old.password}@127.0.0.1:{switch.port}/gatehouse"
    instance = tmp_path / "instance"
    shutil.copytree(servers[0].instance, instance)
    server = LiveServer(
        NodeDatabase(old, "gatehouse", url), instance, tmp_path / "server.log", workers=2, expected=""
    )
    server.start()
    try:
        with Traffic(server.url, machine, pause=0.02) as traffic:
            process.wait_until(lambda: len(traffic.tokens) > 50, "tokens are issued")
            assert ready(server) == 200
            old.execute("SET GLOBAL read_only = 1")
            process.wait_until(lambda: ready(server) == 503, "not ready", seconds=5)
            assert "read_only is ON" in server.logs()
            switch.target = new.port
            switched = time.monotonic()
            process.wait_until(lambda: ready(server) == 200, "ready again", seconds=5)
            time.sleep(2)
        assert set(traffic.statuses) <= {503}
        assert traffic.last_refusal < switched + 1
        assert traffic.cut == 0
        # An idle connection to the old writer is closed only when it would be used, so those are not counted.
        with closing(new.connect("gatehouse")) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'served'")
            assert cursor.fetchone()[0] > 0
    finally:
        old.execute("SET GLOBAL read_only = 0")
        server.stop()
        switch.close()


def test_node_without_quorum_is_not_ready(
    cluster: GaleraCluster, servers: tuple[LiveServer, LiveServer], machine: MadeClient
) -> None:
    server, node = servers[1], cluster.nodes[1]
    assert ready(server) == 200
    options = "SET GLOBAL wsrep_provider_options = 'gmcast.isolate={}'"
    node.execute(options.format(1))
    try:
        process.wait_until(lambda: ready(server) == 503, "not ready", seconds=15)
        # Readiness may give up first, while the node still waits for the others.
        request = Post("/oauth/token", CLIENT_CREDENTIALS, machine.basic)
        process.wait_until(lambda: send(server.url, request).status == 503, "tokens are refused", seconds=15)
        # Each is tried until its deadline.
        with ThreadPoolExecutor(10) as pool:
            assert {reply.status for reply in pool.map(lambda _: send(server.url, request), range(10))} == {
                503
            }
        assert ready(server) == 503
    finally:
        node.execute(options.format(0))
    process.wait_until(lambda: ready(server) == 200, "ready again", seconds=30)
    process.wait_until(
        lambda: send(server.url, Post("/oauth/token", CLIENT_CREDENTIALS, machine.basic)).status == 200,
        "tokens again",
        seconds=5,
    )


def test_haproxy_leads_connections_away_from_a_node_without_quorum(
    cluster: GaleraCluster, servers: tuple[LiveServer, LiveServer], tmp_path: Path
) -> None:
    """With the file of docs/operations, by the agent check that it asks."""
    addresses = {f"db{number}": ("127.0.0.1", node.port) for number, node in enumerate(cluster.nodes, 1)}
    with servers[0].app.app_context():
        nodes = DatabaseNodes(addresses)
    port, agent_port = process.free_port(), process.free_port()
    names = {
        f"10.0.0.1{number}:3306": f"127.0.0.1:{node.port}" for number, node in enumerate(cluster.nodes, 1)
    }
    names |= {"bind 127.0.0.1:3306": f"bind 127.0.0.1:{port}", "agent-port 3309": f"agent-port {agent_port}"}
    haproxy = HAProxy("haproxy-database.cfg", tmp_path, names)

    def leads_to() -> int:
        nodes.ask_all()
        try:
            password = cluster.nodes[0].password
            with (
                closing(
                    MySQLdb.connect(host="127.0.0.1", port=port, user="gatehouse", password=password)
                ) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SELECT @@port")
                return int(cursor.fetchone()[0])
        except MySQLdb.Error:
            return 0

    options = "SET GLOBAL wsrep_provider_options = 'gmcast.isolate={}'"
    with serve_agent(nodes, agent_port) as agent:
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        haproxy.start()
        try:
            process.wait_until(lambda: leads_to() == cluster.nodes[0].port, "the first node", seconds=60)
            cluster.nodes[0].execute(options.format(1))
            process.wait_until(lambda: leads_to() == cluster.nodes[1].port, "the second node", seconds=60)
            assert haproxy.states()["db1"].startswith("DOWN")
        finally:
            cluster.nodes[0].execute(options.format(0))
            process.wait_until(lambda: leads_to() == cluster.nodes[0].port, "the first node", seconds=60)
            haproxy.stop()
            agent.shutdown()


def test_node_that_could_not_apply_a_write_serves_again_after_its_restart(
    cluster: GaleraCluster, servers: tuple[LiveServer, LiveServer], machine: MadeClient
) -> None:
    """As with a full disk: it leaves as inconsistent, and does not return by itself (docs/deployment.md)."""
    server, node = servers[1], cluster.nodes[1]
    cluster.nodes[0].execute("CREATE TABLE gatehouse.written (id INT PRIMARY KEY, value INT)")
    cluster.nodes[0].execute("INSERT INTO gatehouse.written VALUES (1, 1)")
    with closing(node.connect("gatehouse")) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION wsrep_sync_wait = 1")
        cursor.execute("SELECT COUNT(*) FROM written")
        cursor.execute("SET SESSION wsrep_on = OFF")
        cursor.execute("DELETE FROM written")
    assert not node.has_left() and node.is_serving()
    cluster.nodes[0].execute("UPDATE gatehouse.written SET value = 2")
    process.wait_until(node.has_left, "the node leaves", seconds=60)
    process.wait_until(lambda: ready(server) == 503, "not ready", seconds=60)
    assert not node.is_serving()
    node.shut_down()
    node.start(240)
    assert not node.has_left()
    process.wait_until(lambda: ready(server) == 200, "ready again", seconds=60)
    assert introspect(server, machine, issue(servers[0], machine))
    cluster.nodes[0].execute("DROP TABLE gatehouse.written")
