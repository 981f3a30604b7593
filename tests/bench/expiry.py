"""``python -m tests.bench.expiry``: how fast expired tokens are deleted, compared with how fast they are issued.

In turns: the service issues tokens as fast as it can; the janitor deletes expired ones as fast as it can; and a few
clients use the service while the janitor works and while it does not.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.bench import scenarios
from tests.bench.crowd import Crowd
from tests.bench.grown import load_tokens
from tests.bench.instance import Instance
from tests.bench.load import run
from tests.bench.servers import GATEHOUSE, cpu_seconds, serving
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import ROOT

_ORGANIZATIONS = 200
_FEW = 2
# A process of its own, as the worker that leads another host would be; it prints seconds and rows.
_JANITOR = """
import time
from app import create_app
from app.operations.maintenance.janitor import purge_expired
from app.rules.actor import Actor

with create_app().app_context():
    began = time.monotonic()
    deleted = purge_expired(Actor.system("", "bench"))
    print(time.monotonic() - began, sum(deleted.values()))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.expiry", description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000, help="expired tokens in each turn")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-expiry-"))
    database = MariaDB(folder / "mariadb", "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M")
    try:
        instance = Instance(MariaDBDatabase(database.start(), "gatehouse"), folder)
        crowd = Crowd(instance, each=1)
        crowd.grow(_ORGANIZATIONS)
        env = instance.env | {"GATEHOUSE_JANITOR": "off"}
        log = folder / "server.log"
        with serving(GATEHOUSE, env, probe="/healthz", workers=2, threads=8, log=log) as (port, server, _):
            _compare(options, crowd, database, port, server.pid)
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _compare(options: argparse.Namespace, crowd: Crowd, database: MariaDB, port: int, pid: int) -> None:
    issue = scenarios.client_credentials([place.client for place in crowd.places])
    run(port, issue, connections=16, seconds=2)
    figures: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.repeats):
        _expire(crowd, options.rows)
        before = cpu_seconds(pid), cpu_seconds(database.pid)
        issued = run(port, issue, connections=16, seconds=3)
        spent = cpu_seconds(database.pid) - before[1]
        figures["issued a second"].append(issued.rate)
        figures["database CPU of an issued row, us"].append(spent / len(issued.latencies) * 1e6)
        began = cpu_seconds(database.pid)
        seconds, rows = _wait(_start(crowd))
        figures["deleted a second"].append(rows / seconds)
        figures["deleted for one issued"].append(rows / seconds / issued.rate)
        figures["database CPU of a deleted row, us"].append((cpu_seconds(database.pid) - began) / rows * 1e6)
        _expire(crowd, options.rows)
        calm = run(port, issue, connections=_FEW, seconds=3)
        janitor = _start(crowd)
        # It imports the service first.
        time.sleep(1.5)
        busy = run(port, issue, connections=_FEW, seconds=3)
        _wait(janitor)
        for part in (0.5, 0.99):
            figures[f"p{part * 100:.0f} while rows are deleted, of p{part * 100:.0f} without"].append(
                busy.percentile(part) / calm.percentile(part)
            )
    for name, values in figures.items():
        print(f"{name}: median {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")


def _expire(crowd: Crowd, rows: int) -> None:
    """Add this number of tokens that expired long ago."""
    with crowd.instance.database.connect() as connection:
        for client in crowd.clients:
            load_tokens(connection, client, rows // len(crowd.clients), expired=True)


def _start(crowd: Crowd) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _JANITOR]
    return subprocess.Popen(command, env=crowd.instance.env, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _wait(janitor: subprocess.Popen[str]) -> tuple[float, int]:
    output, _ = janitor.communicate()
    seconds, rows = output.split()[-2:]
    return float(seconds), int(rows)


if __name__ == "__main__":
    main()
