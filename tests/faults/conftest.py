"""A server and a database that tests may kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories import Factory
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "faults" in item.path.parts:
            item.add_marker("fault")


def restarted(server: LiveServer) -> None:
    """Raise unless the server was stopped and has restarted with new workers."""
    before = set(server.worker_pids())
    server.stop()
    server.start()
    assert before.isdisjoint(server.worker_pids())


@pytest.fixture
def mortal_database(tmp_path: Path) -> Iterator[MariaDB]:
    """A MariaDB that tests may kill."""
    server = MariaDB(tmp_path / "mariadb").start()
    yield server
    server.stop()


@pytest.fixture
def mortal_server(mortal_database: MariaDB, tmp_path: Path) -> Iterator[LiveServer]:
    """Two workers that tests may kill, on a database that tests may kill."""
    keys = tmp_path / "instance"
    keys.mkdir(mode=0o700)
    database = MariaDBDatabase(mortal_database, "gatehouse")
    # Killed processes log errors, all of which are expected.
    server = LiveServer(database, keys, tmp_path / "server.log", expected="")
    server.start()
    Factory(server.app).root()
    yield server
    server.stop()
