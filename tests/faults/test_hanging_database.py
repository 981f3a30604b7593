"""The database hangs: what needs none is answered at once, everything else within five seconds."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import literal, select, text

from app import config, create_app
from app.circuit_breaker import CircuitBreaker
from app.config import Config
from app.database import breaker
from app.database_errors import DATABASE_ERRORS
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.operations.store import clock
from app.operations.store.transactions import read
from app.rules.errors import Unavailable
from tests.factories import Factory, bearer_header
from tests.faults.traffic import Traffic
from tests.oauth.conftest import FAST_KEYS
from tests.support import process
from tests.support.applications import BASE_URL
from tests.support.concurrent_requests import Post, replies_of_every_worker
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer
from tests.support.switch import Switch

HANG_SECONDS = 4.5
# Once a process has noticed the hang, at most this much after it began.
NOTICED_SECONDS = 3.5
# Generous: the machine that runs the tests may be busy. Without a breaker it takes 4 to 6 seconds.
AT_ONCE_SECONDS = 1.0
# More than there are threads. Each pauses after a response, so that the machine is not busy with refusing.
CONNECTIONS = 64
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of an answer, and how many seconds it took."""

    path: str
    status: int
    seconds: float


def ask(server: LiveServer, path: str, headers: dict[str, str] | None = None) -> Answer:
    """Send a GET request on a new connection and time it."""
    sent = time.monotonic()
    request = urllib.request.Request(f"{server.url}{path}", headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            status = answer.status
    except urllib.error.HTTPError as refusal:
        refusal.read()
        status = refusal.code
    return Answer(path, status, time.monotonic() - sent)


@contextmanager
def asking(
    server: LiveServer, paths: list[str], headers: dict[str, str] | None = None
) -> Iterator[list[Answer]]:
    """Ask for each path again and again, each in a thread of its own, until the ``with`` block ends."""
    answers: list[Answer] = []
    stopping = threading.Event()

    def ask_again(path: str) -> None:
        while not stopping.wait(0.1):
            answers.append(ask(server, path, headers))

    threads = [threading.Thread(target=ask_again, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def percentile(answers: list[Answer], share: float) -> float:
    """Return the seconds within which this share of the answers came."""
    seconds = sorted(answer.seconds for answer in answers)
    return seconds[min(len(seconds) - 1, int(share * len(seconds)))]


@pytest.fixture(params=[3, 15], ids="timeout {}".format)
def server(request: pytest.FixtureRequest, mortal_database: MariaDB, tmp_path: Path) -> Iterator[LiveServer]:
    """Two workers whose statements may take so many seconds: the default, and what a cluster needs."""
    instance = tmp_path / "instance"
    instance.mkdir(mode=0o700)
    server = LiveServer(
        MariaDBDatabase(mortal_database, "gatehouse"),
        instance,
        tmp_path / "server.log",
        settings={"GATEHOUSE_DATABASE_TIMEOUT": str(request.param)},
        expected="",
    )
    server.start()
    Factory(server.app).root()
    yield server
    server.stop()


def test_hanging_database_delays_no_request_that_does_not_need_it(
    server: LiveServer, mortal_database: MariaDB
) -> None:
    """F8."""
    make = Factory(server.app)
    organization = make.organization(settings=FAST_KEYS)
    client = make.machine(organization, "clients:read")
    bearer = bearer_header(make.bearer(organization))
    base = f"/organizations/{organization.slug}"
    public = ["/healthz", f"{base}/.well-known/openid-configuration", f"{base}/oauth/jwks"]
    other = [f"{base}/login", "/clients", "/readyz", f"{base}/oauth/userinfo"]
    for path in public:
        replies = replies_of_every_worker(server.url, Post(path, method="GET"), server.worker_pids())
        assert {reply.status for reply in replies} == {200}
    with Traffic(server.url, client, threads=CONNECTIONS, pause=PAUSE_SECONDS) as traffic:
        process.wait_until(lambda: len(traffic.tokens) > 2 * CONNECTIONS, "tokens are issued")
        mortal_database.pause(True)
        try:
            # These are sent before any process has noticed.
            with ThreadPoolExecutor() as pool:
                early = [pool.submit(ask, server, path, bearer) for path in public + other]
                time.sleep(NOTICED_SECONDS)
                with asking(server, public) as at_once, asking(server, other, bearer) as refused:
                    time.sleep(HANG_SECONDS)
                slowest = traffic.slowest
                mortal_database.pause(False)
        finally:
            mortal_database.pause(False)
        issued = len(traffic.tokens)
        process.wait_until(lambda: len(traffic.tokens) > issued + CONNECTIONS, "tokens again", seconds=10)
    for path in public:
        mine = [answer for answer in at_once if answer.path == path]
        assert {answer.status for answer in mine} == {200}
        assert percentile(mine, 0.9) < AT_ONCE_SECONDS, path
    for path in other:
        mine = [answer for answer in refused if answer.path == path]
        assert {answer.status for answer in mine} == {503}, path
        assert percentile(mine, 0.9) < AT_ONCE_SECONDS, path
    # Those that were waiting when the hang began have waited longest.
    timeout = int(server.settings["GATEHOUSE_DATABASE_TIMEOUT"])
    waited = {answer.result().path: answer.result().seconds for answer in early} | {"traffic": slowest}
    # The probe of readiness tries once more, and the machine may be busy.
    assert max(waited.values()) < timeout + 4, waited
    assert set(traffic.statuses) == {503}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in traffic.refused)
    assert traffic.cut == 0


@dataclass(frozen=True, slots=True)
class Watched:
    """An application with its breaker watched, which one thread uses, on a database behind a switch."""

    app: Flask
    guard: CircuitBreaker
    switch: Switch

    def opens(self, seconds: float = 3.0) -> bool:
        """Return whether the breaker is open at any time within the seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.guard.is_open:
                return True
            time.sleep(0.01)
        return False


@pytest.fixture
def watched(mortal_database: MariaDB, tmp_path: Path) -> Iterator[Watched]:
    """The watched application."""
    switch = Switch(mortal_database.port)
    mortal_database.create_database("gatehouse")
    url = mortal_database.tcp_url("gatehouse").replace(f":{mortal_database.port}/", f":{switch.port}/")
    settings = {
        "DATABASE_URL": url,
        "GATEHOUSE_BASE_URL": BASE_URL,
        "GATEHOUSE_INSTANCE": str(tmp_path / "instance"),
    }
    app = create_app(config.load(settings))
    with app.app_context():
        guard = breaker()
        threading.Thread(target=guard.watch, daemon=True).start()
        stopping = threading.Event()
        user = threading.Thread(target=_use_database, args=(app, stopping))
        user.start()
        yield Watched(app, guard, switch)
        stopping.set()
    switch.close()
    user.join()


def _use_database(app: Flask, stopping: threading.Event) -> None:
    with app.app_context():
        while not stopping.wait(0.1):
            # While nobody waits for the database, its silence says nothing.
            with suppress(*DATABASE_ERRORS, Unavailable):
                ONE.rows()


ONE = CompiledQuery(select(literal(1).label("one")), across_organizations=True)


def test_breaker_opens_soon_after_a_hang_and_closes_at_the_first_answer(
    watched: Watched, mortal_database: MariaDB
) -> None:
    ONE.rows()
    mortal_database.pause(True)
    try:
        process.wait_until(lambda: watched.guard.is_open, "the breaker opens", seconds=NOTICED_SECONDS)
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(Unavailable):
                ONE.rows()
            with pytest.raises(Unavailable):
                read(lambda: None)()
        assert clock._ask() is None
        assert time.monotonic() - began < AT_ONCE_SECONDS
    finally:
        mortal_database.pause(False)
    process.wait_until(lambda: not watched.guard.is_open, "the breaker closes", seconds=5)
    assert ONE.rows()


def test_breaker_opens_when_the_server_is_gone_and_closes_when_it_is_back(
    watched: Watched, mortal_database: MariaDB
) -> None:
    mortal_database.kill()
    # A restart may take less.
    assert not watched.opens(2.0)
    assert watched.opens()
    mortal_database.start()
    process.wait_until(lambda: not watched.guard.is_open, "the breaker closes", seconds=5)


def test_breaker_stays_closed_while_every_statement_is_slow(watched: Watched) -> None:
    def wait_for_lock() -> None:
        with watched.app.app_context():
            read(lambda: db.session.execute(text("SELECT SLEEP(2)")))()

    threads = [threading.Thread(target=wait_for_lock) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert not watched.opens()
    for thread in threads:
        thread.join()


def test_breaker_stays_closed_when_new_connections_lead_to_another_node(
    watched: Watched, mortal_database: MariaDB, mariadb: MariaDB
) -> None:
    ONE.rows()
    mortal_database.pause(True)
    watched.switch.target = mariadb.port
    try:
        assert not watched.opens()
    finally:
        mortal_database.pause(False)


def test_requests_wait_for_a_slot_in_the_order_of_arrival_until_the_breaker_opens(
    watched: Watched, mortal_database: MariaDB
) -> None:
    served: list[int] = []

    def use(number: int) -> None:
        with watched.app.app_context():
            try:
                with watched.guard:
                    served.append(number)
            except Unavailable:
                served.append(-1)

    def start(count: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=use, args=[number]) for number in range(count)]
        for number, thread in enumerate(threads, 1):
            thread.start()
            process.wait_until(lambda n=number: watched.guard.slots.waiting == n, "it waits")
        return threads

    for _ in range(Config.LATE_THREADS):
        watched.guard.__enter__()
    threads = start(4)
    watched.guard.__exit__(None, None, None)
    for thread in threads:
        thread.join()
    assert served == [0, 1, 2, 3]
    watched.guard.__enter__()
    served.clear()
    mortal_database.pause(True)
    try:
        threads = start(2)
        for thread in threads:
            thread.join()
    finally:
        mortal_database.pause(False)
    assert served == [-1, -1]
    for _ in range(Config.LATE_THREADS):
        watched.guard.__exit__(None, None, None)
    process.wait_until(lambda: not watched.guard.is_open, "the breaker closes", seconds=5)
    assert ONE.rows()
