"""script/server in a copy of its own: the first start sets up, the second is quick, reload and end are graceful."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import process

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("app", "migrations", "script", "static", "templates", "requirements.txt", "wsgi.py")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The application's files with the environment of this run in place of an installed one."""
    folder = tmp_path_factory.mktemp("gatehouse")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    environment = folder / ".venv"
    environment.mkdir()
    for name in ("bin", "lib", "lib64", "include", "pyvenv.cfg"):
        if (Path(sys.prefix) / name).exists():
            (environment / name).symlink_to(Path(sys.prefix) / name)
    pinned = hashlib.sha256((folder / "requirements.txt").read_bytes()).hexdigest()
    (environment / "installed-requirements.txt").write_text(pinned)
    return folder


class Started:
    """One run of script/server."""

    def __init__(self, folder: Path, *arguments: str, **settings: str) -> None:
        self.port = process.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / f"server-{self.port}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEHOUSE_")}
        environment.pop("DATABASE_URL", None)
        self.begun = time.monotonic()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["script/server", "--port", str(self.port), *arguments],
                cwd=folder,
                env=environment | settings,
                stdout=log,
                stderr=log,
            )

    def answers(self) -> float:
        """Seconds from the start to the first answer."""
        while time.monotonic() < self.begun + 60:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}:\n{self.output()}")
            try:
                self.get("/readyz")
                return time.monotonic() - self.begun
            except urllib.error.HTTPError as error:
                error.close()
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.02)
        raise AssertionError(self.output())

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            body: bytes = answer.read()
        return body.decode()

    def workers(self) -> set[int]:
        pid = self.process.pid
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

    def output(self) -> str:
        return self._log.read_text()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(40)


@contextlib.contextmanager
def started(folder: Path, *arguments: str, **settings: str) -> Iterator[Started]:
    server = Started(folder, *arguments, **settings)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def processor_seconds() -> float:
    """What ended children of this process have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_first_start_prints_a_link_and_the_next_is_quick(copy: Path) -> None:
    with started(copy) as server:
        server.answers()
        link = re.search(r"http://127\.0\.0\.1:\d+(/setup\?token=gth_su_\S+)", server.output())
        assert link is not None
        assert 'name="organization_name"' in server.get(link[1])
        assert len(server.workers()) == 2
        assert server.end() == 0
    for name in ("secret.key", "master.key"):
        about = (copy / "instance" / name).stat()
        assert stat.S_IMODE(about.st_mode) == 0o600
        assert about.st_size == 65
    keys = [(copy / "instance" / name).read_text() for name in ("secret.key", "master.key")]
    setup = [str(copy / ".venv/bin/python"), "-m", "flask", "--app", "wsgi", "setup"]
    subprocess.run(
        [*setup, "--email", "rosa@gatehouse.example", "--organization", "Acme"],
        cwd=copy, input=b"seven tall herons by the weir\n", check=True, capture_output=True,
    )  # fmt: skip
    seconds, busy = [], []
    for _ in range(3):
        before = processor_seconds()
        with started(copy) as server:
            seconds.append(server.answers())
            assert "setup?token" not in server.output()
            assert "Installing" not in server.output()
            assert server.end() == 0
        busy.append(processor_seconds() - before)
        if seconds[-1] < 2:
            break
    # Other tests may hold the processors; then its own work, spread over two of them, is what counts.
    assert min(seconds) < 2 or min(busy) / 2 < 2, (seconds, busy)
    assert [(copy / "instance" / name).read_text() for name in ("secret.key", "master.key")] == keys


def test_the_demo_prints_sign_ins_that_work(copy: Path, tmp_path: Path) -> None:
    with started(copy, "--demo", GATEHOUSE_INSTANCE=str(tmp_path)) as server:
        server.answers()
        assert re.search(r"ada@acme\.example +(\w{4}-){3}\w{4}  admin", server.output())
        assert "acme" in server.get("/organizations/acme/.well-known/openid-configuration")
        assert server.end() == 0


def test_no_request_fails_while_it_reloads(copy: Path, tmp_path: Path) -> None:
    with started(copy, GATEHOUSE_INSTANCE=str(tmp_path)) as server:
        server.answers()
        before = server.workers()
        failures: list[str] = []
        count = 0
        done = threading.Event()

        def ask() -> None:
            nonlocal count
            while not done.is_set():
                try:
                    server.get("/readyz")
                    count += 1
                except (OSError, urllib.error.URLError) as error:
                    failures.append(repr(error))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        server.process.send_signal(signal.SIGHUP)
        process.wait_until(lambda: not before & server.workers(), "new workers", seconds=30)
        done.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert count > 20
        assert server.end() == 0


def test_told_to_end_while_it_begins_it_ends(copy: Path, tmp_path: Path) -> None:
    with started(copy, GATEHOUSE_INSTANCE=str(tmp_path)) as server:
        process.wait_until(lambda: "serves" in server.output(), "the workers to begin", seconds=30)
        time.sleep(0.2)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(40)
        assert time.monotonic() - begun < 10


def test_an_unsafe_setting_stops_the_start_and_says_what_to_type(copy: Path, tmp_path: Path) -> None:
    with started(
        copy, GATEHOUSE_INSTANCE=str(tmp_path), GATEHOUSE_BASE_URL="http://id.example.com"
    ) as server:
        assert server.process.wait(30) == 78
        assert "GATEHOUSE_BASE_URL=https://id.example.com" in server.output()


def test_without_root_a_missing_package_is_one_line_to_type(copy: Path, tmp_path: Path) -> None:
    """A machine where nothing is installed and `id` says that we are nobody."""
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
