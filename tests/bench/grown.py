"""``python -m tests.bench.grown``: a database of ten million tokens, compared with a small one in the same server.

Loads tokens, users and organizations in the order of their primary keys, says how long that took and how many bytes
they are, and measures every flow and some pages of both installations in turns. ``--load-only`` ends after loading.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app.rules.identifiers import parse_client_id
from tests.bench import crowd as crowds
from tests.bench import scenarios
from tests.bench.__main__ import Bench
from tests.bench.crowd import Crowd
from tests.bench.fill import Credentials
from tests.bench.idle_database import wait_until_idle
from tests.bench.instance import Instance
from tests.bench.load import MakeVisitor
from tests.bench.scenario import Prepare, Scenario
from tests.bench.servers import GATEHOUSE, serving
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB

# Of the tokens, how many belong to one client; the others are spread over the organizations.
_OF_ONE_CLIENT = 0.3
_ROWS = 20_000
_WITHIN = 0.15
# The database makes the rows: ids ascend with the time, as those of the service do, and digests are random.
_FILL = """
INSERT INTO access_tokens
  (organization_id, id, digest, client_id, credential_id, scope, audience, issued_at, expires_at)
SELECT %(organization)s,
  UNHEX(CONCAT(LPAD(HEX(%(first)s + seq), 12, '0'), '7', LEFT(MD5(CONCAT(%(first)s, seq)), 19))),
  UNHEX(SHA2(CONCAT(%(organization)s, %(first)s, seq), 256)), %(client)s, %(credential)s, %(scope)s, %(audience)s,
  UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %(days)s DAY + INTERVAL seq SECOND
FROM seq_1_to_{count}
"""


def load_tokens(connection: Any, client: Credentials, count: int, *, expired: bool = False) -> None:
    """Add this number of access tokens of the client, active for two days or expired long ago."""
    parsed = parse_client_id(client.client_id)
    assert parsed is not None
    organization_id, client_row = parsed[0].encode(), parsed[1].bytes
    cursor = connection.cursor()
    cursor.execute(
        "SELECT id FROM client_credentials WHERE organization_id = %s AND client_id = %s LIMIT 1",
        (organization_id, client_row),
    )
    values = {
        "organization": organization_id,
        "client": client_row,
        "credential": cursor.fetchone()[0],
        "scope": "clients:read",
        "audience": "http://127.0.0.1",
        "days": -20 if expired else 2,
    }
    first = int((time.time() - 86_400) * 1000)
    for start in range(0, count, _ROWS):
        some = min(_ROWS, count - start)
        cursor.execute(_FILL.format(count=some), values | {"first": first + start})


def load(crowd: Crowd, machine: Credentials, *, tokens: int, users: int, organizations: int) -> None:
    """Load the organizations with their users and tokens, and print how long each took and how large the tables are."""
    crowd.each = max(1, users // organizations)
    began = time.monotonic()
    crowd.grow(organizations)
    _tell(f"{organizations:,} organizations with {crowd.each * organizations:,} users", began)
    began = time.monotonic()
    of_one = int(tokens * _OF_ONE_CLIENT)
    with crowd.instance.database.connect() as connection:
        # The rows refer to what exists, and no two have one digest: the service itself checks each.
        cursor = connection.cursor()
        cursor.execute("SET foreign_key_checks = 0, unique_checks = 0")
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        load_tokens(connection, machine, of_one)
        clients = sorted(crowd.clients, key=lambda client: client.client_id)
        for client in clients:
            load_tokens(connection, client, (tokens - of_one) // len(clients))
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    _tell(f"{tokens:,} tokens", began)


def _tell(what: str, began: float) -> None:
    print(f"{what}: loaded in {time.monotonic() - began:.0f} s", flush=True)


def print_sizes(database: MariaDB, schema: str) -> None:
    """Print the rows and bytes of the largest tables."""
    with database.connect(schema) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "SELECT table_name, table_rows, data_length, index_length FROM information_schema.tables"
            " WHERE table_schema = %s AND table_rows > 5000 ORDER BY data_length DESC",
            (schema,),
        )
        for name, rows, data, index in cursor.fetchall():
            print(
                f"{name}: {rows:,} rows, {data / 1e6:,.0f} MB and {index / 1e6:,.0f} MB of indexes,"
                f" {(data + index) / max(rows, 1):.0f} bytes a row",
                flush=True,
            )


class Grown(Bench):
    """The comparison of a small and a grown installation."""

    def compare(self) -> None:
        """Load one of two installations, then measure both in turns."""
        small, grown = (
            Instance(MariaDBDatabase(self.database, name), self.folder, name) for name in ("small", "grown")
        )
        sizes = {name: getattr(self.options, name) for name in ("tokens", "users", "organizations")}
        crowd_of = {"small": Crowd(small, each=100), "grown": Crowd(grown, each=100)}
        # As many as receive requests, so that both fill their caches alike, and lists have full pages.
        crowd_of["small"].grow(crowds.VISITED)
        load(crowd_of["grown"], scenarios.credentials_of(grown.machine), **sizes)
        wait_until_idle(self.database)
        print_sizes(self.database, "grown")
        if self.options.load_only:
            return
        with ExitStack() as stack:
            places = []
            for name, instance in (("small", small), ("grown", grown)):
                server = serving(GATEHOUSE, instance.env, probe="/healthz", **self._server(name))
                port, process, _ = stack.enter_context(server)
                instance.warm(port, "/oauth/jwks")
                places.append(
                    (name, self.side(instance, port, self.options.connections), crowd_of[name], process.pid)
                )
            self._measure_flows(places)

    def _measure_flows(self, places: list[Any]) -> None:
        def both(
            title: str,
            make: Callable[[Any, Crowd], MakeVisitor | Prepare],
            *,
            warm_up: float = 2.0,
            connections: int | None = None,
        ) -> None:
            self.measure_in_turns(
                *(
                    Scenario(
                        f"{title}, {name}", side.port, pid, make(side, crowd),
                        warm_up=warm_up, connections=connections,
                    )
                    for name, side, crowd, pid in places
                )
            )  # fmt: skip
            self.report.judge_flat(title, "small", "grown", within=_WITHIN)

        both(
            "client_credentials",
            lambda _, crowd: scenarios.client_credentials([one.client for one in crowd.places]),
            warm_up=4,
        )
        both("introspection", lambda side, _: scenarios.introspection(side.machine, side.tokens))
        both("issue and revoke", lambda side, _: scenarios.issue_and_revoke(side.machine))
        both(
            "refresh",
            lambda side, _: Prepare(lambda: scenarios.refresh(side.web, side.of_users("refresh_token"))),
        )
        both("userinfo", lambda side, _: scenarios.userinfo(side.of_users("access_token")))
        both("code flow", lambda side, _: scenarios.code_flow(side.web, side.cookies))
        both("sign-in page", lambda _, crowd: crowds.sign_in_pages(crowd), warm_up=4)
        for title, path in (
            ("overview page", ""),
            ("users page", "/users"),
            ("clients page", "/clients"),
            ("audit page", "/audit"),
        ):
            both(title, lambda _, crowd, path=path: crowds.pages(crowd, path=path))
        both("list of organizations", lambda _, crowd: crowds.organization_lists(crowd))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.grown", description=__doc__)
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--organizations", type=int, default=10_000)
    parser.add_argument("--load-only", action="store_true")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--only", default="", help="only scenarios whose names begin so")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-grown-"))
    # With MariaDB's default it writes 200 pages a second, and the loaded ones for longer than anyone waits.
    capacity = "--innodb-io-capacity=10000"
    database = MariaDB(
        folder / "mariadb", "--innodb-buffer-pool-size=2G", "--innodb-log-file-size=1G", capacity
    )
    try:
        bench = Grown(options, database.start(), folder)
        bench.report.head(options)
        bench.compare()
        bench.report.close()
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
