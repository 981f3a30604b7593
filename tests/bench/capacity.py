"""``python -m tests.bench.capacity``: what one operation of each flow costs: CPU, statements, commits, rows and bytes.

The figures of docs/operations/capacity.md. Counters of a private MariaDB that nothing else uses, divided by operations.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.__main__ import FLOWS, Bench
from tests.bench.instance import Instance
from tests.bench.load import run
from tests.bench.scenario import Prepare
from tests.bench.servers import GATEHOUSE, cpu_seconds, serving
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB

_COUNTERS = {
    "statements": "Questions",
    "commits": "Com_commit",
    "inserted": "Handler_write",
    "updated": "Handler_update",
    "log bytes": "Innodb_os_log_written",
    "to database": "Bytes_received",
    "from database": "Bytes_sent",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.capacity", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-capacity-"))
    database = MariaDB(folder / "mariadb", "--innodb-buffer-pool-size=1G")
    try:
        bench = Bench(options, database.start(), folder)
        instance = Instance(MariaDBDatabase(database, "gatehouse"), folder)
        log = folder / "server.log"
        with serving(GATEHOUSE, instance.env, probe="/healthz", workers=2, threads=8, log=log) as (
            port,
            server,
            _,
        ):
            instance.warm(port, "/oauth/jwks")
            side = bench.side(instance, port, options.connections)
            cursor = database.connect().cursor()
            print(
                f"{'':<22}{'app us':>9}{'db us':>8}" + "".join(f"{name:>15}" for name in _COUNTERS),
                flush=True,
            )
            for flow in FLOWS:
                made = flow.make(side)
                visit = made() if isinstance(made, Prepare) else made
                run(port, visit, connections=options.connections, seconds=1)
                # Those of the first run are used up.
                made = flow.make(side)
                visit = made() if isinstance(made, Prepare) else made
                before, app, own = _counters(cursor), cpu_seconds(server.pid), cpu_seconds(database.pid)
                result = run(port, visit, connections=options.connections, seconds=options.seconds)
                done = max(1, len(result.latencies))
                app, own = cpu_seconds(server.pid) - app, cpu_seconds(database.pid) - own
                spent = {name: value - before[name] for name, value in _counters(cursor).items()}
                print(
                    f"{flow.name:<22}{app / done * 1e6:>9.0f}{own / done * 1e6:>8.0f}"
                    + "".join(f"{value / done:>15.2f}" for value in spent.values()),
                    flush=True,
                )
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _counters(cursor: Any) -> dict[str, int]:
    cursor.execute("SHOW GLOBAL STATUS")
    found = dict(cursor.fetchall())
    return {name: int(found[variable]) for name, variable in _COUNTERS.items()}


if __name__ == "__main__":
    main()
