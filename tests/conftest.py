"""Fixtures of all tests: a private MariaDB and SQLite, the application on either, servers, a browser.

``--db mariadb`` or ``--db sqlite`` limits the tests that run on both, and ``script/test mysql`` puts MySQL in the place
of MariaDB. Tests marked ``mariadb`` or ``live`` always run
on MariaDB, and tests marked ``either`` on one of the two. No test is skipped: when a program is missing, the test
fails with the command to type.
"""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.support import slow_tests
from tests.support.cases import LIMIT
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

pytest_plugins = ["tests.support.fixtures", "tests.support.mail_fixtures"]

ENGINES = ("mariadb", "sqlite")
# Whole flows, state machines, migrations, and tests that start processes or call every route.
SLOW_FOLDERS = {"journeys", "security", "transfer"}
SLOW_FILES = {
    *("test_migrations.py", "test_restored_backups.py", "test_route_matrix.py", "test_schemathesis.py"),
    *("test_server_memory.py", "test_start.py"),
}
# Each starts servers. Faults are last of them, because they notice when types are checked beside the tests.
LONG_FOLDERS = ("journeys", "security", "browser", "races", "faults")
# Pages, endpoints and commands only translate what the operations do, and those are tested on both engines. Moves and
# files of organizations copy whole rows: half of their tests on each engine read and write every type.
EITHER_FOLDERS = {"account", "api", "cli", "portal", "scim", "transfer"}
# The first case of each test runs on both engines, and the others, which send other values through the same statements,
# on one. A test marked ``both`` runs all of its cases on both.
FLOW_FOLDERS = {"oauth", "operations", "web"}
# Transactions, locks and clocks of the database, and its rows as such.
DATABASE_ROOMS = {"maintenance", "store"}
_server = pytest.StashKey[MariaDB]()
_folder = pytest.StashKey[Path]()
_rows = pytest.StashKey[int | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--db", choices=(*ENGINES, "both"), default="both", help="engines of the database tests")
    parser.addoption(
        "--quick", action="store_true", help="the first case of each test, without those in slow.txt"
    )
    parser.addoption(
        "--list-slow", action="store_true", help="the first case of each test, to write slow.txt"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" not in metafunc.fixturenames:
        return
    wanted = metafunc.config.getoption("--db")
    engines = ENGINES if wanted == "both" else (wanted,)
    if any(metafunc.definition.iter_markers("mariadb")):
        engines = ("mariadb",)
    metafunc.parametrize("database", engines, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first_cases: dict[tuple[str, str | None], pytest.Item] = {}
    for item in items:
        needed = set(getattr(item, "fixturenames", ()))
        if "mariadb" in needed:
            item.add_marker("mariadb")
        if "live_server" in needed:
            item.add_marker("live")
        if "browser" in needed:
            item.add_marker("browser")
        if SLOW_FOLDERS & set(item.path.parts) or item.path.name in SLOW_FILES:
            item.add_marker("slow")
        if EITHER_FOLDERS & set(item.path.relative_to(config.rootpath).parts[1:-1]) or (
            _is_flow(item) and not _is_first_case(item, first_cases)
        ):
            item.add_marker("either")
    left_out: set[pytest.Item] = set()
    is_listing = config.getoption("--list-slow")
    is_quick = is_listing or config.getoption("--quick")
    if config.getoption("--db") == "both":
        left_out |= {item for item in items if _is_for_the_other_engine(item)}
    if is_quick:
        left_out |= set(_left_out_of_quick_runs(items, set() if is_listing else slow_tests.listed()))
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = _longest_first([item for item in items if item not in left_out])
    for item in items:
        has_all_rows = config.getoption("--db") != "both" or _has_all_rows(item)
        item.stash[_rows] = 1 if is_quick or not has_all_rows else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    LIMIT.rows = item.stash[_rows]


def pytest_collection_finish() -> None:
    """Keep garbage collections off what stays until the end: libraries, the application and thousands of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Order whole files, so that at the end of a run no worker waits for another one's long file."""
    with_slow_tests = {item.path for item in items if any(item.iter_markers("slow"))}

    def place(item: pytest.Item) -> tuple[int, bool]:
        folder = item.path.relative_to(item.config.rootpath).parts[1]
        rank = LONG_FOLDERS.index(folder) if folder in LONG_FOLDERS else len(LONG_FOLDERS)
        return rank, item.path not in with_slow_tests

    return sorted(items, key=place)


def _left_out_of_quick_runs(items: list[pytest.Item], slow: set[str]) -> Iterator[pytest.Item]:
    """Yield all cases of the slow tests, and all but the first of the others."""
    seen = set(slow)
    for item in items:
        name = slow_tests.name_of(item.nodeid)
        if name in seen:
            yield item
        seen.add(name)


def _engine_of(item: pytest.Item) -> str | None:
    return getattr(item, "callspec", None) and item.callspec.params.get("database")


def _is_first_case(item: pytest.Item, first_cases: dict[tuple[str, str | None], pytest.Item]) -> bool:
    name = slow_tests.name_of(item.nodeid)
    return first_cases.setdefault((name, _engine_of(item)), item) is item


def _is_flow(item: pytest.Item) -> bool:
    _, folder, *rooms = item.path.relative_to(item.config.rootpath).parts
    is_flow = folder in FLOW_FOLDERS and not DATABASE_ROOMS & set(rooms)
    return is_flow and not any(item.iter_markers("both"))


def _is_for_the_other_engine(item: pytest.Item) -> bool:
    """Return whether a test marked ``either`` runs on the other engine: its name decides, half of them on each."""
    return any(item.iter_markers("either")) and not _is_on_its_engine(item)


def _has_all_rows(item: pytest.Item) -> bool:
    """Return whether the test checks all rows of a table of ``each`` on this engine; on the other, only the first."""
    return not _is_flow(item) or _is_on_its_engine(item)


def _is_on_its_engine(item: pytest.Item) -> bool:
    """Return whether this is the engine that runs the test if one does; a test marked ``mariadb`` has no choice."""
    engine = _engine_of(item)
    if engine is None or any(item.iter_markers("mariadb")):
        return True
    return ENGINES[crc32(item.nodeid.replace(engine, "").encode()) % 2] == engine


def _new_folder(name: str) -> Path:
    """Create a temporary folder, in memory where there is space: a disk would make every commit wait."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    has_room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 << 30
    where = memory if has_room and "TMPDIR" not in os.environ else None
    return Path(tempfile.mkdtemp(prefix=f"gatehouse-{name}-", dir=where))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Databases and servers of single tests are in ``tmp_path``. This folder is not kept, one of --basetemp is.
    if not hasattr(config, "workerinput") and not config.option.basetemp:
        config.stash[_folder] = _new_folder("pytest")
        config.option.basetemp = config.stash[_folder] / "base"
    if not hasattr(config, "workerinput") and config.getoption("--list-slow"):
        config.pluginmanager.register(slow_tests.Clock())
    # With several workers the controller starts the server that they share while they import. With --db sqlite few
    # tests need one, if any.
    needs_server = config.getoption("--db") != "sqlite" and config.getoption("numprocesses", default=None)
    if not hasattr(config, "workerinput") and needs_server:
        config.stash[_server] = MariaDB(_new_folder("mariadb"))
        config.stash[_server].begin()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if _server in node.config.stash:
        node.workerinput["mariadb"] = node.config.stash[_server].address()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if _server in config.stash:
        version = config.stash[_server].version()
        terminalreporter.write_line(f"database engines: {version}, SQLite {sqlite3.sqlite_version}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _server in config.stash:
        config.stash[_server].stop()
    if _folder in config.stash:
        shutil.rmtree(config.stash[_folder], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report = yield
    if call.excinfo is not None:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, LiveServer):
                relevant = [line for line in value.logs().splitlines() if '"level":"info"' not in line]
                report.sections.append((f"end of the log of {name}", "\n".join(relevant)[-6000:]))
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
    """A temporary folder of this test worker."""
    folder = _new_folder("tests")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def worker() -> str:
    """The name of this test worker."""
    return os.environ.get("PYTEST_XDIST_WORKER", "main")
