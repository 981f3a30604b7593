"""``python -m tests.bench``: operations per second, p50, p99 and ratios to the baseline, in one run.

The database is a private MariaDB that is durable at each commit. Baseline, bare Flask and Gatehouse run one after
another in the same server with the same workers, threads, load generator and connections.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench import crowd as crowds
from tests.bench import proofs, scenarios
from tests.bench.crowd import Crowd
from tests.bench.idle_database import wait_until_idle
from tests.bench.instance import BASE_URL, Instance
from tests.bench.load import MakeVisitor, Result, run
from tests.bench.report import Line, Report
from tests.bench.scenario import WARM_UP_SECONDS, Prepare, Scenario
from tests.bench.servers import GATEHOUSE, cpu_seconds, resident, serving
from tests.support.mariadb import MariaDB


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="the median of so many counts")
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
        if wanted and not scenarios[0].name.startswith((*wanted, "floor", "hello")):
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
        rate = statistics.median(result.rate for result in results)
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
            )
        )

    def floors(self) -> None:
        """Measure the baseline."""
        env = self._serve_floor()
        with serving("tests.bench.floor:app", env, probe="/select", **self._server("floor")) as (
            port,
            process,
            _,
        ):
            self.server = process.pid
            self.measure("floor: one durable INSERT", port, scenarios.insert())
            self.measure("floor: one SELECT by key", port, scenarios.get("/select", b'"active"'))
        with serving("tests.bench.hello:app", {}, probe="/hello", **self._server("hello")) as (
            port,
            process,
            _,
        ):
            self.server = process.pid
            self.measure("hello: bare Flask", port, scenarios.get("/hello", b"world"))

    def gatehouse(self) -> None:
        """Measure Gatehouse, its start-up and its memory."""
        instance = Instance(self.database, self.folder)
        server = serving(GATEHOUSE, instance.env, probe="/healthz", **self._server("gatehouse"))
        with server as (port, process, started):
            self.server = process.pid
            self.report.note(f"import to first answer: {started:.2f} s")
            self.report.bar("import to first answer, s", started, at_most=1.5)
            self.report.note(f"resident, idle: {resident(process.pid)[0]}")
            self._flows(instance, port)
            if not self.options.quick:
                self._flatness(instance, port)
            if self.options.crowd:
                self._crowd(instance, port)
            words, megabytes = resident(process.pid)
            self.report.note(f"resident, after load: {words}")
            self.report.bar("two workers resident after load, MB", megabytes, at_most=200)

    def _flows(self, instance: Instance, port: int) -> None:
        insert, select, hello = "floor: one durable INSERT", "floor: one SELECT by key", "hello: bare Flask"
        count = self.options.connections
        machine = scenarios.credentials_of(instance.machine)
        self.measure("client_credentials", port, scenarios.client_credentials([machine]), insert)
        for algorithm, client in instance.jwt_machines.items():
            signed = scenarios.client_credentials([scenarios.credentials_of(client)])
            self.measure(f"client_credentials, JWT {algorithm}", port, signed, insert)
        bound = proofs.client_credentials_with_proof(machine, BASE_URL)
        self.measure("client_credentials, DPoP", port, bound, insert)
        tokens = instance.some_tokens(port, 2000)
        self.measure("introspection", port, scenarios.introspection(machine, tokens), insert)
        self.report.ratio("introspection", select)
        web = scenarios.credentials_of(instance.web)
        afresh = Prepare(lambda: scenarios.refresh(web, instance.refresh_tokens(port, count)))
        self.measure("refresh", port, afresh, insert)
        self.measure("issue and revoke", port, scenarios.issue_and_revoke(machine), insert)
        self.measure("pushed request", port, proofs.pushed_request(web), insert)
        self.measure("code flow", port, scenarios.code_flow(web, instance.cookies(count)), insert)
        instance.warm(port, "/oauth/jwks")
        discovery = "/.well-known/openid-configuration"
        self.measure("discovery", port, scenarios.get(discovery, b'"token_endpoint"'), hello)
        self.measure("jwks", port, scenarios.get("/oauth/jwks", b'"keys"'), hello)

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
            tokens = instance.tokens_of(port, clients)
            name = f"introspection, {count} organizations"
            self.measure(name, port, scenarios.introspection_by_each(clients, tokens), warm_up=warm_up)

    def _crowd(self, many: Instance, port: int) -> None:
        """Measure two installations in one database server in turns: one organization, and many."""
        few = Instance(self.database, self.folder, "few")
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
        bench.floors()
        bench.gatehouse()
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
