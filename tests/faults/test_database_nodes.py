"""What a load balancer is told about the nodes of a database, and the agent check that tells it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from flask import Flask

from app.operations.maintenance.database_nodes import DatabaseNodes, NodeState, parse_nodes, serve_agent
from app.rules.errors import InvalidInput
from tests.support import process
from tests.support.applications import application, environment
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import ROOT

pytestmark = pytest.mark.mariadb


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("instance")
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="module")
def app(_mortal_database: MariaDB, instance: Path) -> Flask:
    return application(MariaDBDatabase(_mortal_database, "gatehouse"), instance, "http://localhost")


@pytest.fixture
def nodes(app: Flask, mortal_database: MariaDB) -> DatabaseNodes:
    with app.app_context():
        made = DatabaseNodes(
            {"db1": ("127.0.0.1", mortal_database.port), "db2": ("127.0.0.1", process.free_port())}
        )
    made.ask_all()
    return made


def test_node_that_is_writable_is_up_and_one_that_refuses_is_not(nodes: DatabaseNodes) -> None:
    assert nodes.why_not("db1") is None
    assert nodes.why_not("db2") == "it refuses connections"
    with pytest.raises(KeyError):
        nodes.why_not("db3")


def test_node_that_becomes_read_only_is_down_until_it_can_be_written(
    nodes: DatabaseNodes, mortal_database: MariaDB
) -> None:
    mortal_database.execute("SET GLOBAL read_only = 1")
    nodes.ask_all()
    assert nodes.why_not("db1") == "read_only is ON"
    mortal_database.execute("SET GLOBAL read_only = 0")
    nodes.ask_all()
    assert nodes.why_not("db1") is None


def test_node_whose_connection_was_closed_is_asked_on_a_new_one(
    nodes: DatabaseNodes, mortal_database: MariaDB
) -> None:
    mortal_database.shut_down()
    nodes.ask_all()
    assert nodes.why_not("db1") is not None
    mortal_database.start(240)
    nodes.ask_all()
    assert nodes.why_not("db1") is None


def test_node_that_does_not_answer_is_down_after_some_seconds(
    nodes: DatabaseNodes, mortal_database: MariaDB
) -> None:
    mortal_database.pause(True)
    try:
        nodes.ask_all()
        assert nodes.why_not("db1") is None

        def is_down() -> bool:
            nodes.ask_all()
            return nodes.why_not("db1") == "it does not answer"

        process.wait_until(is_down, "the node is down", seconds=60)
    finally:
        mortal_database.pause(False)


def test_donor_is_up_only_while_no_other_node_can_be_written(
    nodes: DatabaseNodes,
) -> None:
    nodes.states["db1"] = NodeState(None, is_donor=True)
    assert nodes.why_not("db1") is None
    nodes.states["db2"] = NodeState(None)
    assert nodes.why_not("db1") == "it is a donor, and another node is not"


def test_agent_is_asked_for_a_node_answers_up_or_down_with_the_reason(nodes: DatabaseNodes) -> None:
    def ask(port: int, name: str) -> str:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(f"{name}\n".encode())
            return connection.makefile().read()

    with serve_agent(nodes, process.free_port()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = int(server.server_address[1])
        assert [ask(port, name) for name in ("db1", "db2", "db9")] == [
            "up\n",
            "down #it refuses connections\n",
            "",
        ]
        server.shutdown()


@pytest.mark.parametrize("word", ["db1", "db1=10.0.0.1", "=10.0.0.1:3306", "db1=10.0.0.1:x"])
def test_word_that_names_no_node_is_refused_with_an_example(word: str) -> None:
    with pytest.raises(InvalidInput, match=r"db1=10\.0\.0\.11:3306"):
        parse_nodes((word,))


def test_command_lists_the_nodes_and_fails_if_none_can_be_written(
    app: Flask, mortal_database: MariaDB, instance: Path
) -> None:
    settings = environment(MariaDBDatabase(mortal_database, "other"), instance, "http://localhost")
    command = [sys.executable, "-m", "flask", "--app", "wsgi", "maintenance", "database-nodes"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words],
            cwd=ROOT,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
        )

    closed = process.free_port()
    done = run(f"db1=127.0.0.1:{mortal_database.port}", f"db2=127.0.0.1:{closed}")
    assert done.returncode == 0, done.stderr
    assert f"db1 127.0.0.1:{mortal_database.port}: can be written" in done.stdout
    assert f"db2 127.0.0.1:{closed}: it refuses connections" in done.stdout
    assert run(f"db2=127.0.0.1:{closed}").returncode == 1
