"""The instance folder is full or read-only: a message that says what to do, and no worker that dies of SIGBUS.

Each process has a mount namespace of its own, in which the folder is a small file system.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from app.database import engines
from tests.factories import Factory, bearer_header
from tests.support import process
from tests.support.applications import application
from tests.support.concurrent_requests import Post, replies_of_every_worker, send
from tests.support.databases import MariaDBDatabase, SQLiteDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import ROOT, LiveServer

# $1 is the folder, $2 its fault; the rest is the command. What the folder holds is there too.
_MOUNT = """
set -e
held=$(mktemp -d)
cp -a "$1/." "$held"
mount -t tmpfs -o size=8m,mode=700 none "$1"
cp -a "$held/." "$1"
rm -r "$held"
case $2 in
full) dd if=/dev/zero of="$1/fill" bs=4k status=none || true ;;
read-only) mount -o remount,ro "$1" ;;
esac
shift 2
exec "$@"
"""
FIXES = {"full": "Free up space on its file system", "read-only": "Mount its file system writable"}


def mounted(instance: Path, fault: str) -> list[str]:
    """Return the prefix of a command that has the fault in its instance folder."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *as_root, "sh", "-c", _MOUNT, "sh", str(instance), fault]


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    folder = tmp_path / "instance"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize("fault", sorted(FIXES))
def test_changes_take_effect_while_the_instance_folder_cannot_be_written(
    mariadb: MariaDB, worker: str, instance: Path, tmp_path: Path, fault: str
) -> None:
    server = LiveServer(
        MariaDBDatabase(mariadb, f"folder_{worker}"),
        instance,
        tmp_path / "server.log",
        # Its warnings are checked below.
        expected="",
        prefix=mounted(instance, fault),
    )
    make = Factory(server.app)
    make.root()
    # A file of an earlier release that has holes, for which there is no space. This process has mapped the one there.
    with (tmp_path / "changes").open("wb") as file:
        file.truncate(4096 * 8)
    (tmp_path / "changes").replace(instance / "changes")
    server.start()
    workers = server.worker_pids()
    try:
        organization = make.organization()
        client = make.machine(organization, "clients:read")
        ask = Post("/oauth/token", {"grant_type": "client_credentials"}, client.basic)
        assert {reply.status for reply in replies_of_every_worker(server.url, ask, workers)} == {200}
        request = urllib.request.Request(
            f"{server.url}/clients/{client.client_id}/credentials",
            headers=bearer_header(make.bearer(organization)),
            method="DELETE",
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
        process.wait_until(
            lambda: {send(server.url, ask).status for _ in range(20)} <= {401, 429},
            "every worker knows",
            seconds=10,
        )
        process.wait_until(lambda: "checkpoint" in server.logs(), "a checkpoint fails")
        assert server.worker_pids() == workers
    finally:
        server.stop()
    assert f"Nothing can be stored in {instance}" in server.logs()
    assert FIXES[fault] in server.logs()


def start_script(instance: Path, fault: str, url: str) -> list[str]:
    """Return the command that starts script/server on the database in the instance folder."""
    port = url.rpartition(":")[2]
    settings = [f"GATEHOUSE_INSTANCE={instance}", f"GATEHOUSE_BASE_URL={url}"]
    return [
        *mounted(instance, fault),
        "env",
        *settings,
        sys.executable,
        "script/lib/serve.py",
        "--port",
        port,
    ]


@pytest.fixture
def url() -> str:
    return f"http://127.0.0.1:{process.free_port()}"


@pytest.fixture
def set_up(instance: Path, url: str) -> None:
    """Complete the setup on an embedded database."""
    app = application(SQLiteDatabase(instance / "gatehouse.sqlite3"), instance, url)
    Factory(app).root()
    with app.app_context():
        for engine in engines():
            engine.dispose()


def assert_start_is_refused(instance: Path, url: str, fault: str) -> None:
    ended = subprocess.run(
        start_script(instance, fault, url), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 78, ended.stderr
    assert f"Nothing can be stored in {instance}" in ended.stderr
    assert FIXES[fault] in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("fault", sorted(FIXES))
def test_first_start_without_a_writable_folder_says_what_to_do(instance: Path, url: str, fault: str) -> None:
    assert_start_is_refused(instance, url, fault)


@pytest.mark.usefixtures("set_up")
def test_start_on_a_read_only_database_says_what_to_do(instance: Path, url: str) -> None:
    assert_start_is_refused(instance, url, "read-only")


@pytest.mark.usefixtures("set_up")
def test_start_on_a_full_disk_serves_and_is_not_ready(instance: Path, url: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    server = process.start(start_script(instance, "full", url), log, cwd=ROOT)
    try:
        process.wait_until(lambda: answer(f"{url}/healthz")[0] == 200, "the server", seconds=60)
        assert FIXES["full"] in log.read_text()
        assert answer(f"{url}/readyz")[0] == 503
        # SQLite itself needs some space to read: with the last bytes the keys are served, without them nothing is.
        status, seconds, body = answer(f"{url}/oauth/jwks")
        assert (status == 200 and json.loads(body)["keys"]) or (status == 503 and seconds), (status, body)
        assert "Traceback" not in log.read_text()
    finally:
        process.stop(server)


def answer(url: str) -> tuple[int, str | None, bytes]:
    """Return status, Retry-After and body of the answer, or status 0 without one."""
    try:
        with urllib.request.urlopen(url, timeout=10) as found:
            return found.status, found.headers["Retry-After"], found.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers["Retry-After"], refusal.read()
    except (urllib.error.URLError, ConnectionError):
        return 0, None, b""
