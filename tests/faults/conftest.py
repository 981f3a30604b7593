"""A server and a database that tests may kill."""

from __future__ import annotations

from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def _mortal_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    server = MariaDB(tmp_path_factory.mktemp("mortal") / "mariadb").start()
    yield server
    server.stop()


@pytest.fixture
def mortal_database(_mortal_database: MariaDB) -> MariaDB:
    """A MariaDB of this module's tests that they may kill."""
    if not _mortal_database.is_running:
        _mortal_database.start()
    return _mortal_database


@pytest.fixture(scope="module")
def _mortal_server(
    _mortal_database: MariaDB, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("mortal-server")
    keys = folder / "instance"
    keys.mkdir(mode=0o700)
    database = MariaDBDatabase(_mortal_database, "gatehouse")
    # Killed processes log errors, all of which are expected.
    server = LiveServer(database, keys, folder / "server.log", expected="")
    server.start()
    Factory(server.app).root()
    yield server
    server.stop()


@pytest.fixture
def mortal_server(mortal_database: MariaDB, _mortal_server: LiveServer) -> LiveServer:
    """Two workers of this module's tests that they may kill, on a database that they may kill."""
    if not _mortal_server.is_running:
        _mortal_server.start()
    return _mortal_server
