"""script/server in a copy of the repository: first start, later starts, reload and stop."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from flask import Flask

from app import config, create_app
from app.extensions import db
from app.operations.store import checkpoints
from tests.factories import Factory
from tests.support import process
from tests.support.cases import each
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.server_script import ROOT, Started, copy_to, started

sys.path.insert(0, str(ROOT / "script" / "lib"))
import serve
from installation import is_ready

# Longer than it may take until readiness says that a server stops.
DRAIN_SECONDS = 6


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's files."""
    return copy_to(tmp_path_factory.mktemp("gatehouse"))


@pytest.fixture(scope="module")
def prepared(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The instance folder of a server that was started with the demo organization and has ended, and its output."""
    folder = tmp_path_factory.mktemp("prepared")
    with started(copy, "--demo", GATEHOUSE_INSTANCE=str(folder)) as server:
        server.answers()
        process.wait_until(lambda: list(folder.glob("checkpoint-*.json")), "a checkpoint", seconds=120)
        assert server.end() == 0
        return folder, server.output()


@pytest.fixture
def instance(prepared: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of that folder: a start prepares nothing."""
    return Path(shutil.copytree(prepared[0], tmp_path / "instance"))


@pytest.fixture(scope="module")
def shared(
    copy: Path, prepared: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Started]]:
    """Return a function that returns the server of ``running``."""
    folder = shutil.copytree(prepared[0], tmp_path_factory.mktemp("shared") / "instance")
    settings = {"GATEHOUSE_INSTANCE": str(folder), "GATEHOUSE_DRAIN_SECONDS": str(DRAIN_SECONDS)}
    with contextlib.ExitStack() as ended:
        servers: list[Started] = []

        def get() -> Started:
            if not servers or servers[-1].process.poll() is not None:
                servers.append(ended.enter_context(started(copy, **settings)))
                servers[-1].answers()
            return servers[-1]

        yield get


@pytest.fixture
def running(shared: Callable[[], Started]) -> Started:
    """A server that announces its stop, for all tests that need no other one; started again after one that ended it."""
    return shared()


def application_on(instance: Path, **settings: str) -> Flask:
    """Return the application of the instance in this process, where password hashes and RSA keys are cheap."""
    return create_app(
        config.load(settings | {"GATEHOUSE_INSTANCE": str(instance), "GATEHOUSE_JANITOR": "off"})
    )


def processor_seconds() -> float:
    """Return the CPU time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_first_start_prints_a_setup_link_the_next_is_quick_and_a_demo_is_refused(copy: Path) -> None:
    with started(copy) as server:
        server.answers()
        link = re.search(r"http://127\.0\.0\.1:\d+(/setup\?token=gth_su_\S+)", server.output())
        assert link is not None
        assert 'name="organization_name"' in server.get(link[1])
        # SQLite has one writer.
        assert len(server.workers()) == 1
        assert server.end() == 0
    for name in ("secret.key", "master.key"):
        about = (copy / "instance" / name).stat()
        assert stat.S_IMODE(about.st_mode) == 0o600
        assert about.st_size == 65
    keys = [(copy / "instance" / name).read_text() for name in ("secret.key", "master.key")]
    typed = ["setup", "--email", "rosa@gatehouse.example", "--organization", "Acme"]
    runner = application_on(copy / "instance").test_cli_runner()
    done = runner.invoke(args=typed, input="seven tall herons by the weir\n")
    assert done.exit_code == 0, done.output
    seconds, busy = [], []
    for _ in range(3):
        before = processor_seconds()
        with started(copy) as server:
            seconds.append(server.answers())
            assert "setup?token" not in server.output()
            assert "Installing" not in server.output()
            assert server.end() == 0
        busy.append(processor_seconds() - before)
        if seconds[-1] < 2 or busy[-1] / 2 < 2:
            break
    # Other tests may use the CPUs, so its own CPU time, spread over two cores, counts instead.
    assert min(seconds) < 2 or min(busy) / 2 < 2, (seconds, busy)
    assert [(copy / "instance" / name).read_text() for name in ("secret.key", "master.key")] == keys
    with started(copy, "--demo") as server:
        assert server.process.wait(120) == 78
        assert "This installation is in use" in server.output()
    with closing(sqlite3.connect(copy / "instance" / "gatehouse.sqlite3")) as database:
        assert database.execute("SELECT COUNT(*) FROM organizations").fetchone() == (2,)


def test_demo_prints_its_sign_ins_at_each_start_and_ends_with_the_server(
    copy: Path, prepared: tuple[Path, str], instance: Path
) -> None:
    """However the server ends, its ports are free for the next start: those of the workers and of the demo app."""
    with started(copy, "--demo", GATEHOUSE_INSTANCE=str(instance)) as server:
        server.answers()
        assert re.search(r"ada@acme\.example +(\w{4}-){3}\w{4}  admin", server.output())
        assert "acme" in server.get("/organizations/acme/.well-known/openid-configuration")
        with urllib.request.urlopen(server.url + "/organizations/acme/login", timeout=5) as answer:
            assert not answer.headers["Server"], "nothing tells which server this is (HD-4)"
        process.wait_until(lambda: "Sign in" in open_page(server.app_url), "the demo app", seconds=120)
        first, second = (re.findall(r"\S+@\S+ +\S+  .+", text) for text in (prepared[1], server.output()))
        assert first == second and len(first) == 4
        assert server.app_url in server.output()
        server.process.kill()
        server.process.wait(60)
        for port in (server.port, urlsplit(server.app_url).port):
            process.wait_until(lambda port=port: is_free(port), f"port {port} to be free")


@pytest.mark.parametrize(
    ("host", "base_url"),
    [("0.0.0.0", "http://127.0.0.1:8000"), ("127.0.0.1", "https://id.example.com")],  # noqa: S104
)
def test_demo_is_refused_beyond_the_loopback_interface(
    copy: Path, tmp_path: Path, host: str, base_url: str
) -> None:
    settings = {"GATEHOUSE_INSTANCE": str(tmp_path), "GATEHOUSE_BASE_URL": base_url}
    for name in ("GATEHOUSE_SECRET_KEY", "GATEHOUSE_MASTER_KEY"):
        settings[name] = secrets.token_hex(32)
    with started(copy, "--demo", "--host", host, **settings) as server:
        assert server.process.wait(120) == 78
        assert "--demo is for the loopback interface" in server.output()
    assert not (tmp_path / "gatehouse.sqlite3").exists()


def open_page(url: str) -> str:
    """Return the page, or nothing while no server listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""


def is_free(port: int) -> bool:
    """Return whether nothing listens on the port."""
    with contextlib.suppress(OSError):
        socket.create_server(("127.0.0.1", port)).close()
        return True
    return False


@each(
    ("options", "fix"),
    [
        ("--threads=-30", "--threads: use a number from 1 to 1000"),
        ("--workers=many", "--workers: use a number from 1 to 1000"),
        ("--demo-port=99999", "--demo-port: use a number from 1 to 65535"),
        ("--demo --port=9000", "Use two ports."),
    ],
)
def test_option_that_cannot_work_is_rejected(
    options: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        serve.parse(options.split())
    assert fix in capsys.readouterr().err


def test_second_server_on_a_port_is_refused(copy: Path, running: Started, tmp_path: Path) -> None:
    """The kernel would share the requests between both."""
    with started(copy, port=running.port, GATEHOUSE_INSTANCE=str(tmp_path)) as second:
        assert second.process.wait(120) == serve.EXIT_CONFIGURATION
        assert f"Cannot listen on port {running.port}" in second.output()
    running.get("/readyz")


def test_second_start_on_mariadb_prepares_nothing(copy: Path, tmp_path: Path, mariadb: MariaDB) -> None:
    url = MariaDBDatabase(mariadb, "server_script").url
    settings = {"GATEHOUSE_INSTANCE": str(tmp_path), "DATABASE_URL": url}
    with started(copy, **settings) as server:
        server.answers()
        assert "Creating the database schema" in server.output()
        assert "Running upgrade" not in server.output()
        assert "setup?token" in server.output()
        assert server.end() == 0
    Factory(application_on(tmp_path, DATABASE_URL=url)).root()
    with started(copy, **settings) as server:
        server.answers()
        assert "schema" not in server.output()
        assert "setup?token" not in server.output()
        assert server.end() == 0
    opened: list[str] = []
    versions = copy / "migrations" / "versions"
    assert is_ready(url, versions, lambda key, _wrapped: opened.append(key), tmp_path)
    assert len(opened) == 1, "root's data key was tried"
    demanded = f"{url}&ssl_ca=/etc/ssl/certs/ca-certificates.crt"
    assert not is_ready(demanded, versions, lambda key, _wrapped: opened.append(key), tmp_path), "no TLS"


def test_start_with_an_older_database_is_rejected(
    copy: Path, instance: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BK-1: until the command for restored backups has run; a backup of the file, put back after a later checkpoint."""
    database, backup = instance / "gatehouse.sqlite3", tmp_path / "backup"
    with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(backup)) as new:
        old.backup(new)
    [checkpoint] = instance.glob("checkpoint-*.json")
    first = checkpoint.read_text()
    app = application_on(instance)
    with app.app_context():
        monkeypatch.setattr(checkpoints, "INTERVAL", timedelta())
        checkpoints.advance()
        assert checkpoint.read_text() != first
        for engine in db.engines.values():
            engine.dispose()
    shutil.move(backup, database)
    for name in ("gatehouse.sqlite3-wal", "gatehouse.sqlite3-shm"):
        (instance / name).unlink(missing_ok=True)
    with started(copy, GATEHOUSE_INSTANCE=str(instance)) as server:
        assert server.process.wait(120) == 78
        assert "flask --app wsgi maintenance restore" in server.output()
    done = app.test_cli_runner().invoke(args=["maintenance", "restore"])
    assert done.exit_code == 0 and "New password of" in done.stdout and "Receipt: " in done.stdout, (
        done.output
    )
    with started(copy, GATEHOUSE_INSTANCE=str(instance)) as server:
        server.answers()
        assert server.end() == 0


def test_start_with_another_master_key_is_rejected(copy: Path, instance: Path) -> None:
    """KY-6: the database is not changed."""
    kept = instance / "master.key"
    own = kept.read_text()
    kept.write_text("0123456789abcdef7f3a9c5be2d4180695a7c3e1b8f2d604" + "c91e5a7d3b8f2064\n")
    # Merge the write-ahead log of the first server now, because the next connection would do it.
    with closing(sqlite3.connect(instance / "gatehouse.sqlite3")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = {path.name: path.read_bytes() for path in instance.glob("*.sqlite3")}
    with started(copy, GATEHOUSE_INSTANCE=str(instance)) as server:
        assert server.process.wait(120) == 78
        assert "The master key does not match this database" in server.output()
        assert "keys rewrap" in server.output()
    assert {path.name: path.read_bytes() for path in instance.glob("*.sqlite3")} == before
    with started(
        copy,
        GATEHOUSE_INSTANCE=str(instance),
        GATEHOUSE_PREVIOUS_MASTER_KEY=own.strip(),
    ) as server:
        server.answers()
        assert server.end() == 0


@pytest.fixture
def health(copy: Path) -> Iterator[Path]:
    """A file of the copy that a test may change."""
    file = copy / "app" / "web" / "health.py"
    text = file.read_text()
    yield file
    file.write_text(text)


def test_reload_loses_no_request_and_keeps_the_old_code_if_the_new_does_not_start(
    copy: Path, instance: Path, health: Path, tmp_path: Path
) -> None:
    before_release = health.read_text()
    settings = {"GATEHOUSE_INSTANCE": str(instance), "GATEHOUSE_DRAIN_SECONDS": "60"}
    with started(copy, **settings) as server, contextlib.ExitStack() as ended:
        server.answers()
        before = server.workers()
        # Code that does not start leaves the workers as they are.
        health.write_text("this is no Python")
        server.process.send_signal(signal.SIGHUP)
        process.wait_until(lambda: "Not reloaded" in server.output(), "the refusal", seconds=60)
        assert before == server.workers() and '"alive"' in server.get("/healthz")
        failures: list[str] = []
        count = closed = 0
        done = threading.Event()
        # Also if the test fails: threads that go on asking would keep this process from ending.
        ended.callback(done.set)

        def ask() -> None:
            nonlocal count, closed
            with closing(HTTPConnection("127.0.0.1", server.port)) as connection:
                while not done.wait(0.1):
                    try:
                        connection.request("GET", "/readyz")
                        response = connection.getresponse()
                        assert response.read() and response.status == 200
                        count += 1
                        closed += response.will_close
                    except (OSError, HTTPException) as error:
                        failures.append(repr(error))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        health.write_text(before_release.replace('"alive"', '"alive and renewed"'))
        server.process.send_signal(signal.SIGHUP)
        process.wait_until(lambda: not before & server.workers(), "new workers", seconds=120)
        assert "alive and renewed" in server.get("/healthz")
        done.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert count > 20
        # A request on an open connection would be lost when the old worker ends.
        assert closed >= len(threads)
        # Stopping the server also stops the check of code that hangs, and a second signal the wait for load balancers.
        tried = tmp_path / "tried"
        health.write_text(f"import time\nopen({str(tried)!r}, 'w').close()\ntime.sleep(600)\n")
        server.process.send_signal(signal.SIGHUP)
        process.wait_until(tried.exists, "the try", seconds=60)
        for _ in range(2):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        assert server.process.wait(45) == 0


def test_stopping_worker_answers_the_request_of_a_connection_that_it_has_accepted(running: Started) -> None:
    (worker,) = running.workers()
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        # So that it is accepted.
        time.sleep(0.2)
        os.kill(worker, signal.SIGTERM)
        time.sleep(serve.FIRST_BYTES_SECONDS / 4)
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    process.wait_until(lambda: worker not in running.workers(), "the end of the worker", seconds=60)


def test_new_worker_gets_all_connections_while_the_old_one_stops() -> None:
    """Those that wait in the socket of the old one when it is closed would be lost."""

    def listen(port: int = 0) -> socket.socket:
        return socket.create_server(("127.0.0.1", port), reuse_port=True, backlog=100)

    with listen() as old:
        port = old.getsockname()[1]
        with listen(port) as new, contextlib.ExitStack() as clients:
            opened = sorted(os.listdir("/proc/self/fd"))
            serve.send_connections_to_new_worker(port, workers=1)
            assert sorted(os.listdir("/proc/self/fd")) == opened
            for _ in range(20):
                clients.enter_context(socket.create_connection(("127.0.0.1", port)))
            old.setblocking(False)
            with pytest.raises(BlockingIOError):
                old.accept()
            for _ in range(20):
                clients.enter_context(new.accept()[0])
        # A worker that none replaces goes on.
        with socket.create_connection(("127.0.0.1", port)), old.accept()[0]:
            pass


def test_code_that_hangs_is_not_used_for_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """F11: while the main process waits, it neither replaces a failed worker nor stops."""
    monkeypatch.setattr(serve, "ROOT", tmp_path)
    monkeypatch.setattr(serve, "LOAD_SECONDS", 0.2)
    code = tmp_path / "wsgi.py"
    code.write_text("import time\ntime.sleep(20)\n")
    begun = time.monotonic()
    assert not serve.starts(lambda: False)
    assert time.monotonic() - begun < 30
    assert "it has 0.2 seconds" in capfd.readouterr().err
    monkeypatch.setattr(serve, "LOAD_SECONDS", 20)
    assert not serve.starts(lambda: True)
    code.write_text("app = None\n")
    assert serve.starts(lambda: False)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_stop_during_the_start_takes_effect_at_once(copy: Path, instance: Path, workers: int) -> None:
    """F11: when so many workers have been forked."""
    with started(copy, "--workers", "2", GATEHOUSE_INSTANCE=str(instance)) as server:
        process.wait_until(
            lambda: "is running" in server.output(), "the workers to begin", seconds=120, pause=0.001
        )
        process.wait_until(lambda: len(server.workers()) >= workers, "workers", seconds=120, pause=0.001)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(40)
        assert time.monotonic() - begun < 30


def test_workers_that_die_again_and_again_are_started_again(running: Started) -> None:
    """F10: Granian itself ends when a worker dies soon after it replaced another."""
    for _ in range(2):
        seen: set[int] = set()
        pauses = running.output().count("Starting them again")
        while running.output().count("Starting them again") == pauses:
            for pid in running.workers() - seen:
                seen.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert running.process.poll() is None
            time.sleep(0.1)
        process.wait_until(lambda: is_ready_now(running), "requests are answered again", seconds=30)


def test_stop_is_announced_by_readiness_before_the_port_closes(running: Started) -> None:
    """F11: a load balancer has time to stop sending requests."""
    process.wait_until(lambda: is_ready_now(running), "a worker")
    running.process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    process.wait_until(lambda: not is_ready_now(running), "readiness says so")
    assert time.monotonic() - begun < DRAIN_SECONDS - 2
    while time.monotonic() - begun < DRAIN_SECONDS - 1:
        assert '"alive"' in running.get("/healthz")
        time.sleep(0.05)
    assert running.process.wait(40) == 0


def is_ready_now(server: Started) -> bool:
    """Return whether /readyz answers 200."""
    try:
        server.get("/readyz")
    except OSError:
        return False
    return True


def test_unsafe_setting_ends_the_start_with_the_command_to_type(copy: Path, tmp_path: Path) -> None:
    with started(
        copy, GATEHOUSE_INSTANCE=str(tmp_path), GATEHOUSE_BASE_URL="http://id.example.com"
    ) as server:
        assert server.process.wait(120) == 78
        assert "GATEHOUSE_BASE_URL=https://id.example.com" in server.output()


def test_missing_package_without_root_prints_one_command(copy: Path, tmp_path: Path) -> None:
    """On a machine where nothing is installed, for a user who is not root."""
    fake = tmp_path / "bin"
    fake.mkdir()
    for name, script in (("id", "echo 1000"), ("apt-get", "exit 1")):
        (fake / name).write_text(f"#!/bin/sh\n{script}\n")
        (fake / name).chmod(0o755)
    command = ". script/lib/prepare.sh; install_packages python3-venv libmariadb-dev"
    result = subprocess.run(
        ["sh", "-c", command], cwd=copy, capture_output=True, text=True, check=False,
        env={"PATH": f"{fake}:/usr/bin:/bin"},
    )  # fmt: skip
    assert result.returncode == 1
    assert (
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends python3-venv libmariadb-dev"
        in result.stderr
    )
