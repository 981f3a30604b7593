"""``python -m tests.bench.expiry``: how fast expired tokens are deleted, compared with how fast they are issued.

The janitor is a thread of a worker, as in production. In turns: the service issues tokens as fast as it can; a few
clients use it while the janitor waits, and while it works; and the janitor deletes the rest alone.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from app.operations.maintenance.janitor import LEASE
from tests.bench import scenarios
from tests.bench.crowd import Crowd
from tests.bench.grown import load_tokens
from tests.bench.instance import Instance
from tests.bench.load import run
from tests.bench.servers import cpu_seconds, serving
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.process import wait_until

_ORGANIZATIONS = 200
_FEW = 2
_SERVER = "tests.bench.eager_janitor:app"
_DUE = "FROM access_tokens WHERE expires_at < UTC_TIMESTAMP() - INTERVAL 2 DAY"


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
        env = instance.env | {"GATEHOUSE_JANITOR": "on"}
        log = folder / "server.log"
        with serving(_SERVER, env, probe="/healthz", workers=2, threads=8, log=log) as (port, server, _):
            _compare(options, crowd, database, port, server.pid)
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _compare(options: argparse.Namespace, crowd: Crowd, database: MariaDB, port: int, pid: int) -> None:
    issue = scenarios.client_credentials([place.client for place in crowd.places])
    run(port, issue, connections=16, seconds=2)
    figures: dict[str, list[float]] = defaultdict(list)
    latencies: dict[str, list[float]] = defaultdict(list)
    with crowd.instance.database.connect() as connection, connection.cursor() as cursor:
        for _ in range(options.repeats):
            before = cpu_seconds(database.pid)
            issued = run(port, issue, connections=16, seconds=3)
            spent = cpu_seconds(database.pid) - before
            figures["issued a second"].append(issued.rate)
            figures["database CPU of an issued row, us"].append(spent / len(issued.latencies) * 1e6)
            _hold_lease(cursor)
            _expire(crowd, options.rows)
            calm = run(port, issue, connections=_FEW, seconds=3)
            rows = _count_due(cursor)
            _release_lease(cursor)
            wait_until(lambda rows=rows: _count_due(cursor) < rows, "the janitor", pause=0.02)
            rows, began = _count_due(cursor), time.monotonic()
            busy = run(port, issue, connections=_FEW, seconds=3)
            left = _count_due(cursor)
            rate = (rows - left) / (time.monotonic() - began)
            figures["deleted a second, beside a few clients"].append(rate)
            figures["deleted for one that is issued at full speed"].append(rate / issued.rate)
            figures["rows left after that"].append(left)
            for part in (0.5, 0.99):
                name = f"p{part * 100:.0f} while rows are deleted, of p{part * 100:.0f} without"
                figures[name].append(busy.percentile(part) / calm.percentile(part))
            latencies["without"] += calm.latencies
            latencies["while rows are deleted"] += busy.latencies
            before, began, service = cpu_seconds(database.pid), time.monotonic(), cpu_seconds(pid)
            wait_until(lambda: _count_due(cursor) == 0, "the janitor", pause=0.2)
            if left:
                figures["deleted a second, alone"].append(left / (time.monotonic() - began))
                for name, spent in (
                    ("database", cpu_seconds(database.pid) - before),
                    ("service", cpu_seconds(pid) - service),
                ):
                    figures[f"{name} CPU of a deleted row, us"].append(spent / left * 1e6)
    for name, values in figures.items():
        print(f"{name}: median {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    for name, values in latencies.items():
        cuts = statistics.quantiles(values, n=100)
        print(f"all requests {name}: p50 {cuts[49] * 1000:.2f} ms, p99 {cuts[98] * 1000:.2f} ms")


def _hold_lease(cursor: Any) -> None:
    """Keep the janitor from working."""
    cursor.execute(
        "REPLACE INTO leases (name, holder, expires_at) VALUES (%s, 'bench', UTC_TIMESTAMP() + INTERVAL 1 HOUR)",
        (LEASE,),
    )


def _release_lease(cursor: Any) -> None:
    cursor.execute("DELETE FROM leases WHERE name = %s AND holder = 'bench'", (LEASE,))


def _count_due(cursor: Any) -> int:
    cursor.execute(f"SELECT COUNT(*) {_DUE}")
    return int(cursor.fetchone()[0])


def _expire(crowd: Crowd, rows: int) -> None:
    """Add this number of tokens that expired long ago."""
    with crowd.instance.database.connect() as connection:
        for client in crowd.clients:
            load_tokens(connection, client, rows // len(crowd.clients), expired=True)


if __name__ == "__main__":
    main()
