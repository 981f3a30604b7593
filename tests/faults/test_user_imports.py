"""An import that is killed in the middle goes on where it stopped: nobody is left out and nobody is there twice."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask

from tests.factories import Factory
from tests.oauth.conftest import audited
from tests.support import process
from tests.support.applications import BASE_URL, environment
from tests.support.databases import Database
from tests.support.servers import ROOT

ROWS = 6_000


@pytest.fixture
def command(database: Database, instance: Path, tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts ``users import`` of the file in a process of its own."""
    file = tmp_path / "people.csv"
    rows = (f"p{number}@people.example,Person {number}\r\n" for number in range(ROWS))
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


def test_an_import_killed_three_times_brings_everybody_in_once(
    app: Flask,
    make: Factory,
    database: Database,
    command: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    make.organization("acme")
    seen = 0
    for _ in range(3):
        running = command("--resume")
        process.wait_until(functools.partial(has_more_than, database, seen), "people come in", pause=0.002)
        os.kill(running.pid, signal.SIGKILL)
        running.wait(10)
        seen = database.count("users")
        assert 0 < seen < ROWS, (tmp_path / "import.log").read_text()
        # Whole parts, each with the events of its people.
        assert seen % 250 == 0 and audited(database, "user.imported") == seen
    refused = command()
    assert refused.wait(60) == 1
    assert "--resume" in (tmp_path / "import.log").read_text()
    resumed = command("--resume")
    assert resumed.wait(120) == 0, (tmp_path / "import.log").read_text()
    assert (
        f"created {ROWS}, updated 0, skipped 0, refused 0 of {ROWS} rows"
        in (tmp_path / "import.log").read_text()
    )
    assert database.count("users") == ROWS == audited(database, "user.imported")
    assert database.count("user_imports") == 1
    assert database.count("user_import_parts") == 0
