"""``python -m tests.bench``: operations per second, p50, p99 and ratios to the baseline, in one run.

The database is a private MariaDB that is durable at each commit. For each flow, Gatehouse takes turns with a baseline,
a bare WSGI function with the least durable statements of the flow in the same server, and, when Node.js is installed,
with node-oidc-provider on the same MariaDB, all with as many processes and connections. Both sides have their defaults:
RS256, and a client that users consented to.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench import crowd as crowds
from tests.bench import peer, proofs, scenarios
from tests.bench.crowd import Crowd
from tests.bench.fill import Credentials
from tests.bench.idle_database import wait_until_idle
from tests.bench.instance import BASE_URL, Instance
from tests.bench.load import MakeVisitor, Result, run
from tests.bench.report import Line, Report
from tests.bench.scenario import WARM_UP_SECONDS, Prepare, Scenario
from tests.bench.servers import GATEHOUSE, cpu_seconds, resident, serving
from tests.support.databases import MariaDBDatabase, SQLiteDatabase
from tests.support.mariadb import MariaDB


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="length of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="the median of so many counts")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=8, help="in each worker")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--rows", type=_numbers, default=[1000, 1_000_000], help="token rows to compare (1000,1000000)"
    )
    parser.add_argument("--organizations", type=_numbers, default=[1, 2000], help="to compare (1,2000)")
    parser.add_argument(
        "--crowd", type=int, default=0, help="organizations with 100 users each, compared with one (10000)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="the flows alone, without rows and organizations"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--only", default="", help="comma-separated beginnings of scenario names")
    return parser.parse_args()


SQLITE_CONNECTIONS = 8
# So many that none of them reaches the limit of grants, at which each code also revokes the oldest one: people do not.
USERS = 200


@dataclass(frozen=True, slots=True)
class _Side:
    """A server, its clients, the cookies of its users who signed in and consented, and tokens of its machine client.

    ``connections`` is how many of the users also hold tokens.
    """

    port: int
    machine: Credentials
    web: Credentials
    cookies: Sequence[str]
    tokens: Sequence[str]
    connections: int

    def of_users(self, name: str) -> list[str]:
        """Return a token for each connection, of different users: ``access_token`` or ``refresh_token``."""
        users = self.cookies[: self.connections]
        return [tokens[name] for tokens in scenarios.tokens_of_users(self.port, self.web, users)]


@dataclass(frozen=True, slots=True)
class _Flow:
    """A flow, its baseline, and the ratios that Gatehouse should reach."""

    name: str
    make: Callable[[_Side], MakeVisitor | Prepare]
    floor: MakeVisitor
    against: str = "floor"
    of_floor: float = 0.5
    of_peer: float = 1.1


FLOWS = (
    _Flow(
        "client_credentials",
        lambda side: scenarios.client_credentials([side.machine]),
        scenarios.floor_of("/insert"),
        of_floor=0.65,
        of_peer=1.0,
    ),
    _Flow(
        "introspection",
        lambda side: scenarios.introspection(side.machine, side.tokens),
        scenarios.floor_of("/select"),
        of_floor=0.65,
        of_peer=1.0,
    ),
    _Flow(
        "refresh",
        lambda side: Prepare(lambda: scenarios.refresh(side.web, side.of_users("refresh_token"))),
        scenarios.floor_of("/rotate"),
    ),
    _Flow(
        "issue and revoke",
        lambda side: scenarios.issue_and_revoke(side.machine),
        scenarios.floor_of("/insert", "/update"),
    ),
    _Flow(
        "userinfo",
        lambda side: scenarios.userinfo(side.of_users("access_token")),
        scenarios.floor_of("/select"),
    ),
    _Flow(
        "code flow",
        lambda side: scenarios.code_flow(side.web, side.cookies),
        scenarios.floor_of("/insert", "/redeem"),
        of_floor=0.35,
    ),
    _Flow(
        "discovery",
        lambda _: scenarios.get("/.well-known/openid-configuration", b'"token_endpoint"'),
        scenarios.get("/hello", b"world"),
        "hello",
        of_peer=2.0,
    ),
    _Flow(
        "jwks",
        lambda _: scenarios.get("/oauth/jwks", b'"keys"'),
        scenarios.get("/hello", b"world"),
        "hello",
        of_peer=2.0,
    ),
)


class Bench:
    """One run: starts and stops servers and writes the report."""

    def __init__(self, options: argparse.Namespace, database: MariaDB, folder: Path) -> None:
        self.options, self.database, self.folder = options, database, folder
        self.report = Report()
        self.server = 0

    def measure(
        self,
        name: str,
        port: int,
        make: MakeVisitor | Prepare,
        floor: str = "",
        *,
        warm_up: float = WARM_UP_SECONDS,
    ) -> None:
        """Measure a scenario and report its median run; a ``Prepare`` starts each repeat with new tokens."""
        self.measure_in_turns(Scenario(name, port, self.server, make, floor, warm_up))

    def measure_in_turns(self, *scenarios: Scenario) -> None:
        """Measure both as ``measure`` does, with alternating repeats, so that changes on the machine affect both."""
        wanted = [part for part in self.options.only.split(",") if part]
        if wanted and not scenarios[0].name.startswith(tuple(wanted)):
            return
        # The first requests open connections and fill caches and the buffer pool, so they are not typical.
        for one in scenarios:
            self._run(one, one.warm_up)
        results: dict[str, list[Result]] = {one.name: [] for one in scenarios}
        used = {one.name: [0.0, 0.0] for one in scenarios}
        for _ in range(self.options.repeats):
            for one in scenarios:
                before = self._cpu_seconds(one)
                results[one.name].append(self._run(one, self.options.seconds))
                spent = zip(self._cpu_seconds(one), before, strict=True)
                used[one.name] = [
                    sum(pair) for pair in zip(used[one.name], (a - b for a, b in spent), strict=True)
                ]
        for one in scenarios:
            self._add(one, results[one.name], used[one.name])

    def _run(self, one: Scenario, seconds: float) -> Result:
        connections = one.connections or self.options.connections
        return run(one.port, one.started(), connections=connections, seconds=seconds)

    def _cpu_seconds(self, one: Scenario) -> list[float]:
        return [cpu_seconds(pid) for pid in (one.pid, self.database.pid)]

    def _add(self, one: Scenario, results: list[Result], used: list[float]) -> None:
        rates = [result.rate for result in results]
        rate = statistics.median(rates)
        result = min(results, key=lambda each: abs(each.rate - rate))
        done = sum(len(each.latencies) for each in results) or 1
        app_us, database_us = (seconds / done * 1e6 for seconds in used)
        self.report.add(
            Line(
                one.name,
                result.rate,
                result.percentile(0.5),
                result.percentile(0.99),
                sum(each.errors for each in results),
                next((each.sample for each in results if each.sample), ""),
                one.floor,
                app_us,
                database_us,
                (max(rates) - min(rates)) / rate if rate else 0.0,
            )
        )

    def compare(self) -> None:
        """Measure Gatehouse, the baseline of each flow and node-oidc-provider in turns; then Gatehouse's memory."""
        instance = Instance(MariaDBDatabase(self.database, "gatehouse"), self.folder)
        floor = serving(
            "tests.bench.floor:app", self._serve_floor(), probe="/select", **self._server("floor")
        )
        hello = serving("tests.bench.hello:app", {}, probe="/hello", **self._server("hello"))
        with ExitStack() as stack:
            places: dict[str, tuple[int, int]] = {}
            for name, server in (("floor", floor), ("hello", hello)):
                port, process, _ = stack.enter_context(server)
                places[name] = (port, process.pid)
            if peer.is_available():
                log = self.folder / "peer.log"
                served = peer.serving(self.database, workers=self.options.workers, log=log)
                port, process = stack.enter_context(served)
                places["oidc-provider"] = (port, process.pid)
            server = serving(GATEHOUSE, instance.env, probe="/healthz", **self._server("gatehouse"))
            port, process, started = stack.enter_context(server)
            self.server = process.pid
            places["gatehouse"] = (port, process.pid)
            self.report.note(f"import to first answer: {started:.2f} s")
            self.report.bar("import to first answer, s", started, at_most=1.5)
            self.report.note(f"resident, idle: {resident(process.pid)[0]}")
            self._flows(instance, places)
            self._sqlite(instance, port)
            if not self.options.quick:
                self._flatness(instance, port)
            if self.options.crowd:
                self._crowd(instance, port)
            words, megabytes = resident(process.pid)
            self.report.note(f"resident, after load: {words}")
            self.report.bar("two workers after load, MB (PSS)", megabytes, at_most=200)

    def _flows(self, instance: Instance, places: Mapping[str, tuple[int, int]]) -> None:
        count, port = self.options.connections, places["gatehouse"][0]
        instance.warm(port, "/oauth/jwks")
        own = self.side(instance, port, count)
        machine, web = own.machine, own.web
        sides = {"gatehouse": own}
        if "oidc-provider" in places:
            other = places["oidc-provider"][0]
            issued = scenarios.client_tokens(other, [peer.MACHINE] * 2000)
            users = peer.cookies(other, USERS)
            sides["oidc-provider"] = _Side(other, peer.MACHINE, peer.WEB, users, issued, count)
        for flow in FLOWS:
            turns = [
                Scenario(
                    flow.name if name == "gatehouse" else f"{flow.name}: {name}",
                    *places[name],
                    flow.make(sides[name]) if name in sides else flow.floor,
                    "" if name == flow.against else f"{flow.name}: {flow.against}",
                )
                for name in (flow.against, "oidc-provider", "gatehouse")
                if name in places
            ]
            self.measure_in_turns(*turns)
            self.report.judge(flow.name, flow.against, of_floor=flow.of_floor, of_peer=flow.of_peer)
        for algorithm, client in instance.jwt_machines.items():
            signed = scenarios.client_credentials([scenarios.credentials_of(client)])
            self.measure(f"client_credentials, JWT {algorithm}", port, signed, "client_credentials: floor")
        bound = proofs.client_credentials_with_proof(machine, BASE_URL)
        self.measure("client_credentials, DPoP", port, bound, "client_credentials: floor")
        self.measure("pushed request", port, proofs.pushed_request(web), "client_credentials: floor")

    def _sqlite(self, instance: Instance, port: int) -> None:
        """Measure flows on SQLite, which one process serves, in turns with MariaDB."""
        lite = Instance(SQLiteDatabase(self.folder / "gatehouse.sqlite3"), self.folder, "sqlite")
        where = self._server("sqlite") | {"workers": 1}
        with serving(GATEHOUSE, lite.env, probe="/healthz", **where) as (own_port, process, _):
            lite.warm(own_port, "/oauth/jwks")
            sides = [
                (each_port, pid, self.side(each, each_port, SQLITE_CONNECTIONS))
                for each, each_port, pid in (
                    (instance, port, self.server),
                    (lite, own_port, process.pid),
                )
            ]
            for flow in FLOWS:
                if flow.name in {"client_credentials", "refresh", "code flow"}:
                    names = [f"{flow.name}: 8 on {engine}" for engine in ("MariaDB", "SQLite")]
                    self.measure_in_turns(
                        *(
                            Scenario(name, at, pid, flow.make(side), connections=SQLITE_CONNECTIONS)
                            for name, (at, pid, side) in zip(names, sides, strict=True)
                        )
                    )
                    self.report.judge_sqlite(*names)

    def side(self, instance: Instance, port: int, connections: int) -> _Side:
        machine, web = scenarios.credentials_of(instance.machine), scenarios.credentials_of(instance.web)
        tokens = instance.some_tokens(port, 2000)
        return _Side(port, machine, web, instance.cookies(USERS), tokens, connections)

    def _flatness(self, instance: Instance, port: int) -> None:
        machine = scenarios.credentials_of(instance.machine)
        for rows in sorted(self.options.rows):
            tokens = instance.fill(port, rows)
            self.measure(f"client_credentials, {rows} rows", port, scenarios.client_credentials([machine]))
            self.measure(f"introspection, {rows} rows", port, scenarios.introspection(machine, tokens))
        for count in sorted(self.options.organizations):
            clients = instance.organizations(count)
            # The comparison is about the steady state, in which each worker has cached each client.
            warm_up = WARM_UP_SECONDS + count / 200
            name = f"client_credentials, {count} organizations"
            self.measure(name, port, scenarios.client_credentials(clients), warm_up=warm_up)
            tokens = scenarios.client_tokens(port, clients)
            name = f"introspection, {count} organizations"
            self.measure(name, port, scenarios.introspection_by_each(clients, tokens), warm_up=warm_up)

    def _crowd(self, many: Instance, port: int) -> None:
        """Measure two installations in one database server in turns: one organization, and many."""
        few = Instance(MariaDBDatabase(self.database, "few"), self.folder, "few")
        with serving(GATEHOUSE, few.env, probe="/healthz", **self._server("few")) as (few_port, process, _):
            crowds_of = (
                (Crowd(few, each=100), few_port, process.pid),
                (Crowd(many, each=100), port, self.server),
            )
            for (crowd, *_rest), count in zip(crowds_of, (1, self.options.crowd), strict=True):
                crowd.grow(count)
            wait_until_idle(self.database)

            def compare(
                title: str, make: Callable[[Crowd], MakeVisitor], connections: int | None = None
            ) -> None:
                self.measure_in_turns(
                    *(
                        Scenario(
                            f"{title}, {crowd.made} organizations", at, pid, make(crowd),
                            warm_up=1 + crowd.made / 2500, connections=connections,
                        )
                        for crowd, at, pid in crowds_of
                    )
                )  # fmt: skip

            # It also brings every organization into the caches of both workers, as the steady state has them.
            compare("sign-in page", crowds.sign_in_pages)
            # As many as may hash at the same time: more would measure the queue.
            compare("sign-in", lambda crowd: crowds.sign_ins(crowd.places), connections=2)
            compare(
                "crowd token",
                lambda crowd: scenarios.client_credentials([one.client for one in crowd.places]),
            )
            for title, path in (("overview page", ""), ("users page", "/users")):
                compare(title, partial(crowds.pages, path=path))
            # The comparison is between full pages: a list of one would be shorter.
            crowds_of[0][0].grow(30)
            compare("list of organizations", crowds.organization_lists)
        self.report.compare_crowd()

    def _serve_floor(self) -> dict[str, str]:
        from tests.bench import floor

        self.database.create_database("floor")
        with self.database.connect("floor") as connection:
            floor.fill(connection)
        own = {"FLOOR_SOCKET": self.database.socket, "FLOOR_PASSWORD": self.database.password}
        return own | {"FLOOR_USER": "gatehouse", "FLOOR_DATABASE": "floor"}

    def _server(self, name: str) -> dict[str, object]:
        log = self.folder / f"{name}.log"
        return {"workers": self.options.workers, "threads": self.options.threads, "log": log}


def main() -> None:
    options = parse()
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-bench-"))
    database = MariaDB(folder / "mariadb", "--innodb-buffer-pool-size=2G", "--innodb-log-file-size=512M")
    try:
        bench = Bench(options, database.start(), folder)
        bench.report.head(options)
        bench.compare()
        missed = bench.report.close()
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if missed and options.check:
        raise SystemExit(1)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


if __name__ == "__main__":
    main()
