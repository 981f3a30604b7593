"""Fixtures of all tests: a private MariaDB and SQLite, the application on either, servers, a browser.

``--db mariadb`` or ``--db sqlite`` limits the tests that run on both. Those marked ``mariadb`` or ``live``
always run on MariaDB, and those marked ``either`` on one of the two. Nothing here is skipped: what is missing on the
machine fails, naming what to type.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

pytest_plugins = ["tests.support.fixtures", "tests.support.post_office"]

ENGINES = ("mariadb", "sqlite")
_server = pytest.StashKey[MariaDB]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--db", choices=(*ENGINES, "both"), default="both", help="engines of the database tests")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" not in metafunc.fixturenames:
        return
    wanted = metafunc.config.getoption("--db")
    engines = ENGINES if wanted == "both" else (wanted,)
    if any(metafunc.definition.iter_markers("mariadb")):
        engines = ("mariadb",)
    metafunc.parametrize("database", engines, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        needed = set(getattr(item, "fixturenames", ()))
        if "live_server" in needed:
            item.add_marker("live")
        if "browser" in needed:
            item.add_marker("browser")
        if _shares_within_its_module(item):
            # What a module makes once is made by one worker.
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    if config.getoption("--db") == "both":
        left_out = [item for item in items if _is_for_the_other_engine(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _shares_within_its_module(item: pytest.Item) -> bool:
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(definition.scope == "module" for found in fixtures for definition in found)


def _is_for_the_other_engine(item: pytest.Item) -> bool:
    """Of a test that is marked ``either``, the name decides which engine it runs on: half of them on each."""
    engine = getattr(item, "callspec", None) and item.callspec.params.get("database")
    if engine is None or not any(item.iter_markers("either")):
        return False
    return ENGINES[crc32(item.nodeid.replace(engine, "").encode()) % 2] != engine


def _new_folder(name: str) -> Path:
    """In memory where there is room: nobody pulls the plug in a test, and a disk makes every commit wait."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    has_room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 << 30
    where = memory if has_room and "TMPDIR" not in os.environ else None
    return Path(tempfile.mkdtemp(prefix=f"gatehouse-{name}-", dir=where))


def pytest_configure(config: pytest.Config) -> None:
    # With several workers the controller starts the one server that they share, while they import.
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", default=None):
        config.stash[_server] = MariaDB(_new_folder("mariadb"))
        config.stash[_server].begin()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["mariadb"] = node.config.stash[_server].address()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _server in config.stash:
        config.stash[_server].stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report = yield
    if call.excinfo is not None:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, LiveServer):
                telling = [line for line in value.logs().splitlines() if '"level":"info"' not in line]
                report.sections.append((f"end of the log of {name}", "\n".join(telling)[-6000:]))
    return report


@pytest.fixture(scope="session")
def mariadb(request: pytest.FixtureRequest, scratch: Path) -> Iterator[MariaDB]:
    """The run's private MariaDB."""
    shared = getattr(request.config, "workerinput", {}).get("mariadb")
    if shared is not None:
        server = MariaDB.attach(shared)
        server.wait()
        yield server
        return
    server = MariaDB(scratch / "mariadb").start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A folder of this worker, gone with it."""
    folder = _new_folder("tests")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def worker() -> str:
    """The name of this test worker."""
    return os.environ.get("PYTEST_XDIST_WORKER", "main")
