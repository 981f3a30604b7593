"""The application on a clean database, real servers, and a browser."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from flask import Flask
from flask.testing import FlaskClient

from app.database import FENCE
from app.operations.grants import signing_keys
from app.rules.sign_in import passwords
from tests.support.applications import BASE_URL, application, forget
from tests.support.databases import Database, MariaDBDatabase, SQLiteDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

_REAL_HASHER = passwords._hasher
_generate_pair = signing_keys._generate_pair


@pytest.fixture(scope="session", autouse=True)
def _fence_of_the_application_alone() -> None:
    """Allow tests to read rows of every organization; the application's own queries stay restricted."""
    refuse = FENCE.refuse

    def refuse_the_application(words: str) -> None:
        frame: Any = inspect.currentframe()
        frame = frame.f_back
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if "app" in path.parts and path.name not in {
                "database.py",
                "compiled_query.py",
                "transaction.py",
            }:
                refuse(words)
            if "tests" in path.parts:
                return
            frame = frame.f_back

    FENCE.refuse = refuse_the_application  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def _cheap_hashes() -> None:
    """Make password hashing cheap in this process; see ``real_hashes``."""
    passwords._hasher = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1, hash_len=32, salt_len=16)


@pytest.fixture
def real_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use production password hashing, for tests of its time, memory and parameters."""
    from tests.factories import forget_hashes

    monkeypatch.setattr(passwords, "_hasher", _REAL_HASHER)
    forget_hashes()
    yield
    forget_hashes()


@pytest.fixture(scope="session")
def _rsa_pairs() -> list[Any]:
    """RSA key pairs that this worker has generated."""
    return []


@pytest.fixture(autouse=True)
def _reused_rsa_pairs(_rsa_pairs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Generate each RSA key pair once per worker; within a test all are different.

    A key of 3072 bits takes up to a second.
    """
    numbers = itertools.count()

    def generate_pair(algorithm: str) -> Any:
        if algorithm not in {"RS256", "PS256"}:
            return _generate_pair(algorithm)
        number = next(numbers)
        while len(_rsa_pairs) <= number:
            _rsa_pairs.append(_generate_pair(algorithm))
        return _rsa_pairs[number]

    monkeypatch.setattr(signing_keys, "_generate_pair", generate_pair)


@pytest.fixture(scope="session")
def instance(scratch: Path) -> Path:
    """The folder of this worker's keys."""
    folder = scratch / "instance"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session")
def databases(
    request: pytest.FixtureRequest, scratch: Path, worker: str
) -> Iterator[Callable[[str], Database]]:
    """This worker's database of an engine, created at first use."""
    made: dict[str, Database] = {}

    def of(engine: str) -> Database:
        if engine not in made:
            if engine == "sqlite":
                made[engine] = SQLiteDatabase(scratch / "gatehouse.sqlite")
            else:
                made[engine] = MariaDBDatabase(request.getfixturevalue("mariadb"), f"test_{worker}")
        return made[engine]

    yield of
    for database in made.values():
        database.close()


@pytest.fixture
def database(request: pytest.FixtureRequest, databases: Callable[[str], Database]) -> Database:
    """The database of the engine under test; ``app`` migrates and cleans it."""
    return databases(request.param)


@pytest.fixture(scope="session")
def applications(instance: Path) -> Callable[[Database, str], Flask]:
    """The application on a database, created and migrated at first use."""
    made: dict[tuple[str, str], Flask] = {}

    def on(database: Database, base_url: str) -> Flask:
        key = (database.url, base_url)
        if key not in made:
            made[key] = application(database, instance, base_url)
        return made[key]

    return on


@pytest.fixture
def app(database: Database, applications: Callable[[Database, str], Flask]) -> Flask:
    """The application on a clean database. No context is pushed: see ``context``."""
    made = applications(database, BASE_URL)
    database.clean()
    forget(made)
    return made


@pytest.fixture
def context(app: Flask) -> Iterator[Flask]:
    """The application with its context pushed, for operations; requests of ``http`` would share it."""
    with app.app_context():
        yield app


@pytest.fixture
def http(app: Flask) -> FlaskClient:
    """An HTTP client of the application without cookies."""
    return app.test_client()


@pytest.fixture(scope="session")
def _live_server(mariadb: MariaDB, instance: Path, scratch: Path, worker: str) -> Iterator[LiveServer]:
    database = MariaDBDatabase(mariadb, f"live_{worker}")
    # Pages contain URLs of webhooks and images that do not respond.
    server = LiveServer(database, instance, scratch / "live.log", expected=r"gatehouse\.outbox")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def live_server(_live_server: LiveServer) -> LiveServer:
    """A server of two workers on MariaDB, shared and never cleaned: each test creates its own organizations.

    ``live_server.app`` is the same instance in this process.
    """
    return _live_server


@pytest.fixture
def live_make(live_server: LiveServer) -> Any:
    """Factory for the live server; the instance is set up."""
    from tests.factories import Factory

    factory = Factory(live_server.app)
    factory.root()
    return factory


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Chromium, started once."""
    from tests.support.browser import started

    with started() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """A new Chromium context without cookies. Open pages with ``browser.new_page()``."""
    from tests.support.browser import watched

    with watched(chromium) as context:
        yield context


@pytest.fixture
def page(browser: Any) -> Any:
    """One page of a new browser; a script error or a blocked resource fails the test."""
    return browser.new_page()


@pytest.fixture
def make(app: Flask) -> Any:
    """Factory for ``app``."""
    from tests.factories import Factory

    return Factory(app)


@pytest.fixture
def acme(make: Any) -> Any:
    """An organization."""
    return make.organization(name="Acme")


@pytest.fixture
def ada(make: Any, acme: Any) -> Any:
    """A user of ``acme``."""
    return make.user(acme, email="ada@acme.example")


@pytest.fixture
def signer() -> Any:
    """A client's key."""
    from tests.support.signer import Signer

    return Signer()


@pytest.fixture
def prover() -> Any:
    """A client's key for DPoP proofs."""
    from tests.support.dpop import Prover

    return Prover()
