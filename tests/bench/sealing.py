"""``python -m tests.bench.sealing``: audit events sealed per second, all of one organization or spread over many.

Both are measured in turns on one private MariaDB that is durable at each commit. A turn includes the heads of the
chains that the sealing host writes into files.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from flask import Flask

from app.operations.audit.chain import seal_pending_events
from app.operations.audit.chain_verification import remember_heads
from app.rules.actor import Actor
from app.rules.identifiers import new_id
from tests.bench import fill
from tests.bench.idle_database import wait_until_idle
from tests.factories import Factory
from tests.support.applications import application
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sealing", description=__doc__)
    parser.add_argument("--organizations", type=int, default=200, help="compared with one")
    parser.add_argument("--events", type=int, default=4000, help="sealed in each turn")
    parser.add_argument("--repeats", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        server = MariaDB(Path(folder) / "mariadb", "--innodb-buffer-pool-size=1G").start()
        try:
            _compare(server, Path(folder), options)
        finally:
            server.stop()


def _compare(server: MariaDB, folder: Path, options: argparse.Namespace) -> None:
    database = MariaDBDatabase(server, "sealing")
    keys = folder / "instance"
    keys.mkdir(mode=0o700)
    app = application(database, keys, "http://127.0.0.1")
    make = Factory(app)
    make.root()
    organizations = [make.organization().id for _ in range(options.organizations)]
    rates: dict[int, list[float]] = {1: [], options.organizations: []}
    # The first turn creates the chains and opens the connections.
    for turn in range(options.repeats + 1):
        for count in rates:
            _record(database, organizations[:count], options.events)
            wait_until_idle(server)
            seconds = _seal(app)
            if turn:
                rates[count].append(options.events / seconds)
    medians = {count: statistics.median(found) for count, found in rates.items()}
    for count, rate in medians.items():
        shown = ", ".join(f"{one:.0f}" for one in sorted(rates[count]))
        print(f"{count:>5} organizations: {rate:7.0f} events/s  ({shown})")
    print(f"ratio: {medians[1] / medians[options.organizations]:.2f}")


def _record(database: MariaDBDatabase, organizations: list[str], count: int) -> None:
    """Replace all events and links by this number of new events, spread evenly over the organizations."""
    with database.connect() as connection:
        cursor = connection.cursor()
        for table in ("audit_events", "audit_links"):
            cursor.execute(f"TRUNCATE TABLE {table}")
        rows: list[dict[str, Any]] = []
        cursor.execute("SELECT UTC_TIMESTAMP(6)")
        now = cursor.fetchone()[0]
        for number in range(count):
            own = organizations[number % len(organizations)].encode()
            what = {
                "action": "client.updated",
                "actor_kind": "user",
                "actor_id": "usr_0",
                "actor_label": "Ada",
            }
            target = {"target_type": "client", "target_id": f"clt_{number}", "before": None}
            after = {"after": '{"name": "Orchard", "redirect_uris": ["https://orchard.example/callback"]}'}
            row = {"organization_id": own, "id": new_id().bytes, "at": now, "actor_organization": own}
            rows.append(row | what | target | after)
        fill.insert_rows(connection, "audit_events", rows)


def _seal(app: Flask) -> float:
    """Seal what waits, and return the seconds."""
    with app.app_context():
        began = time.perf_counter()
        heads = seal_pending_events(Actor.system("", "bench"), holder="bench")
        assert heads
        remember_heads(heads.values())
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
