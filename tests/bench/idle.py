"""``python -m tests.bench.idle``: how often an idle machine asks the database, for several numbers of workers.

Counts the statements that reach a private MariaDB in a minute, once without any request for longer than cached
values are followed, and once with a token request a second.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.bench import scenarios
from tests.bench.instance import Instance
from tests.bench.servers import GATEHOUSE, serving
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB

# Long enough for the work of a minute.
SECONDS = 65.0
# Longer than cached values are followed after their last use.
REST_SECONDS = 35.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.idle", description=__doc__)
    parser.add_argument("--workers", default="1,2,4", help="to compare (1,2,4)")
    parser.add_argument("--statements", action="store_true", help="list the statements of an idle machine")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-idle-"))
    database = MariaDB(folder / "mariadb")
    try:
        instance = Instance(MariaDBDatabase(database.start(), "gatehouse"), folder)
        client = scenarios.credentials_of(instance.machine)
        cursor = database.connect().cursor()
        for workers in (int(each) for each in options.workers.split(",")):
            log = folder / "server.log"
            with serving(GATEHOUSE, instance.env, probe="/healthz", workers=workers, threads=8, log=log) as (
                port,
                _,
                _,
            ):
                time.sleep(REST_SECONDS)
                idle = _count(cursor, SECONDS)
                deadline, before = time.monotonic() + SECONDS, _statements(cursor)
                requests = 0
                while time.monotonic() < deadline:
                    scenarios.client_tokens(port, [client])
                    requests += 1
                    time.sleep(1)
                used = (_statements(cursor) - before) / SECONDS
                print(
                    f"{workers} workers: idle {idle:.2f}/s, with {requests} token requests {used:.2f}/s",
                    flush=True,
                )
                if options.statements:
                    time.sleep(REST_SECONDS)
                    _list(database)
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _count(cursor: Any, seconds: float) -> float:
    before = _statements(cursor)
    time.sleep(seconds)
    return (_statements(cursor) - before - 1) / seconds


def _statements(cursor: Any) -> int:
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
    return int(cursor.fetchone()[1])


def _list(database: MariaDB) -> None:
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("TRUNCATE mysql.general_log")
        cursor.execute("SET GLOBAL log_output = 'TABLE', GLOBAL general_log = ON")
        time.sleep(SECONDS)
        cursor.execute("SET GLOBAL general_log = OFF")
        cursor.execute("SELECT command_type, LEFT(argument, 90) FROM mysql.general_log")
        for (kind, words), count in Counter(cursor.fetchall()).most_common(40):
            print(f"{count:5} {kind} {words}")


if __name__ == "__main__":
    main()
