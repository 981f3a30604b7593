"""A killed import continues where it stopped: no user is left out or imported twice.

On the command line it is started again; in the background the other worker continues it after the lease has expired.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask

from app.operations.users import import_runner
from tests.factories import Factory, bearer_header
from tests.oauth.conftest import audited
from tests.support import process
from tests.support.applications import BASE_URL, environment
from tests.support.databases import Database
from tests.support.servers import ROOT, LiveServer

ROWS = 2_500


@pytest.fixture
def command(database: Database, instance: Path, tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start ``users import`` of the file in its own process."""
    file = tmp_path / "users.csv"
    rows = (f"p{number}@users.example,Person {number}\r\n" for number in range(ROWS))
    file.write_text("email,name\r\n" + "".join(rows), newline="")

    def start(*options: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "flask", "--app", "wsgi", "users", "import", str(file)]
        surroundings = os.environ | environment(database, instance, BASE_URL)
        return process.start(
            [*line, "--organization", "acme", *options], tmp_path / "import.log", env=surroundings, cwd=ROOT
        )

    return start


def has_more_than(database: Database, count: int) -> bool:
    return database.count("users") > count


@pytest.mark.either
def test_import_killed_twice_imports_every_user_once(
    app: Flask,
    make: Factory,
    database: Database,
    command: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    make.organization("acme")
    seen = 0
    for _ in range(2):
        running = command("--resume")
        process.wait_until(
            functools.partial(has_more_than, database, seen), "users are imported", pause=0.002
        )
        os.kill(running.pid, signal.SIGKILL)
        running.wait(60)
        seen = database.count("users")
        assert 0 < seen < ROWS, (tmp_path / "import.log").read_text()
        # Complete parts, each with the audit events of its users.
        assert seen % 250 == 0 and audited(database, "user.imported") == seen
    refused = command()
    assert refused.wait(60) == 1
    assert "--resume" in (tmp_path / "import.log").read_text()
    resumed = command("--resume")
    assert resumed.wait(120) == 0, (tmp_path / "import.log").read_text()
    assert (
        f"created {ROWS}, updated 0, skipped 0, rejected 0 of {ROWS} rows"
        in (tmp_path / "import.log").read_text()
    )
    assert database.count("users") == ROWS == audited(database, "user.imported")
    assert database.count("user_imports") == 1
    assert database.count("user_import_parts") == 0


def test_import_of_a_killed_worker_is_finished_by_the_other(mortal_server: LiveServer) -> None:
    """P3: one of two workers runs the import, so both are killed, one after the other."""
    server, make = mortal_server, Factory(mortal_server.app)
    acme = make.organization("acme")
    rows = (f"p{number}@users.example,Person {number}\n" for number in range(ROWS))
    request = urllib.request.Request(
        f"{server.url}/users/imports?name=users.csv",
        data=("email,name\n" + "".join(rows)).encode(),
        headers=bearer_header(make.bearer(acme)) | {"Content-Type": "text/csv"},
    )
    before = server.database.count("users")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201
    for worker in server.worker_pids():
        seen = server.database.count("users")
        process.wait_until(
            functools.partial(has_more_than, server.database, seen),
            "users are imported",
            seconds=30,
            pause=0.01,
        )
        os.kill(worker, signal.SIGKILL)
        there = server.database.count("users") - before
        assert 0 < there < ROWS, "the import ended before a worker was killed"
        # Let the lease expire: the killed worker cannot release it.
        server.database.query(
            "UPDATE leases SET expires_at = '2026-01-01' WHERE name = %s", import_runner.LEASE.encode()
        )
    process.wait_until(
        lambda: server.database.query("SELECT CAST(status AS CHAR) FROM user_imports") == [("done",)],
        "the import ends",
        seconds=90,
    )
    assert server.database.query("SELECT created, skipped, refused FROM user_imports") == [(ROWS, 0, 0)]
    assert server.database.count("users") - before == ROWS == audited(server.database, "user.imported")
    assert server.database.query(
        "SELECT COUNT(*) - COUNT(DISTINCT email_canonical) FROM users WHERE email LIKE '%%users.example'"
    ) == [(0,)]
    assert server.database.count("user_import_parts") == 0
