"""``script/test monitoring``: a real Prometheus scrapes a server under load.

It checks the sample configuration, the rules and their tests with promtool; that every query of the dashboard returns
data and every alert can be evaluated; and that the counts are exactly those of the clients, also after a worker was
killed under load and the code was reloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.instance import Instance
from tests.bench.servers import GATEHOUSE, serving
from tests.support import process
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "operations" / "monitoring"
CLIENTS = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="script/test monitoring", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the load")
    parser.add_argument("--keep", type=Path, help="write what the panels show into this JSON file")
    options = parser.parse_args()
    programs = Path(os.environ["GATEHOUSE_TEST_PROMETHEUS"])
    for command in ("check config prometheus.yml", "check rules alerts.yml", "test rules alerts.test.yml"):
        subprocess.run([programs / "promtool", *command.split()], cwd=FOLDER, check=True)
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-monitoring-"))
    database = MariaDB(folder / "mariadb")
    try:
        instance = Instance(MariaDBDatabase(database.start(), "gatehouse"), folder)
        run(instance, database, programs, folder, options)
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run(
    instance: Instance, database: MariaDB, programs: Path, folder: Path, options: argparse.Namespace
) -> None:
    """Serve, scrape and load the instance, then compare."""
    metrics = f"127.0.0.1:{process.free_port()}"
    env = instance.env | {"GATEHOUSE_METRICS_ADDRESS": metrics}
    log = folder / "server.log"
    with (
        serving(GATEHOUSE, env, probe="/healthz", workers=2, threads=8, log=log) as (port, server, _),
        prometheus(programs, folder, metrics) as ask,
    ):
        load = Load(f"http://127.0.0.1:{port}", instance)
        load.start()
        time.sleep(options.seconds / 3)
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        # Values are published every second; what a killed worker counted since is lost.
        load.pause(lambda: os.kill(int(children[0]), signal.SIGKILL))
        time.sleep(options.seconds / 3)
        os.kill(server.pid, signal.SIGHUP)
        time.sleep(options.seconds / 3)
        load.stop()
        time.sleep(3)
        check_counts(load, metrics)
        check_dashboard(ask, options.keep)
        check_alerts(ask)
        check_outage(ask, database)


class Load:
    """Clients that get tokens, introspect them, use a wrong secret, and look at pages."""

    def __init__(self, url: str, instance: Instance) -> None:
        self._url, self._machine = url, instance.machine
        self.counts: Counter[tuple[str, str]] = Counter()
        self.milliseconds: list[float] = []
        self._lock, self._running = threading.Lock(), threading.Event()
        self._is_over = False
        self._active = 0
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]

    def start(self) -> None:
        """Begin."""
        self._running.set()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, once every response has arrived."""
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def pause(self, act: Any) -> None:
        """Call ``act`` while no request runs and everything is published, and wait until there is a worker again."""
        self._running.clear()
        process.wait_until(lambda: self._active == 0, "the running requests", seconds=60)
        time.sleep(3)
        act()
        time.sleep(3)
        self._running.set()

    def _work(self) -> None:
        basic = b64encode(f"{self._machine.client_id}:{self._machine.secret}".encode()).decode()
        right, wrong = ({"Authorization": f"Basic {value}"} for value in (basic, b64encode(b"a:b").decode()))
        form = b"grant_type=client_credentials"
        while not self._is_over:
            self._running.wait()
            with self._lock:
                self._active += 1
            try:
                token = json.loads(self._send("oauth.token", "/oauth/token", form, right))["access_token"]
                self._send("oauth.introspect", "/oauth/introspect", f"token={token}".encode(), right)
                self._send("oauth.token", "/oauth/token", form, wrong)
                self._send("oauth.jwks", "/oauth/jwks")
                self._send("unmatched", "/nothing/here")
            finally:
                with self._lock:
                    self._active -= 1

    def _send(
        self, route: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        request = urllib.request.Request(self._url + path, body, headers or {})
        started = time.perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        with self._lock:
            self.counts[(route, str(status))] += 1
            self.milliseconds.append((time.perf_counter() - started) * 1000)
        return bytes(content)


@contextlib.contextmanager
def prometheus(programs: Path, folder: Path, target: str) -> Iterator[Any]:
    """Run Prometheus with the sample configuration, each second; return the function that asks its API."""
    sample = (FOLDER / "prometheus.yml").read_text()
    shutil.copy(FOLDER / "alerts.yml", folder)
    (folder / "prometheus.yml").write_text(sample.replace("127.0.0.1:9464", target).replace("15s", "1s"))
    port = process.free_port()
    command = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    server = process.start(
        [str(programs / "prometheus"), *command], folder / "prometheus.log", env=dict(os.environ)
    )

    def ask(path: str, **parameters: Any) -> Any:
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def is_up() -> bool:
        try:
            result = ask("query", query='up{job="gatehouse"} == 1')["result"]
        except OSError:
            return False
        return bool(result)

    try:
        process.wait_until(is_up, f"Prometheus (log: {folder}/prometheus.log)", seconds=60)
        yield ask
    finally:
        process.stop(server)


def dashboard_queries() -> list[str]:
    """Return the queries of the dashboard, with its variables as Grafana sets them for all machines."""
    return [
        target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
        for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]
        for target in panel["targets"]
    ]


def check_counts(load: Load, metrics: str) -> None:
    """Compare the counts of the clients with those of the service."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        counted = Counter(
            {
                (sample.labels["route"], sample.labels["status"]): int(sample.value)
                for family in families
                for sample in family.samples
                if sample.name == "gatehouse_requests_total"
                and not sample.labels["route"].startswith("health")
            }
        )
    print(f"requests of the clients: {sum(load.counts.values())}, counted: {sum(counted.values())}")
    print(f"median {statistics.median(load.milliseconds):.1f} ms")
    assert counted == load.counts, (counted, load.counts)


def check_dashboard(ask: Any, keep: Path | None) -> None:
    """Require data from each query."""
    end = time.time()
    kept = {}
    for query in dashboard_queries():
        # A worker that has just begun to answer scrapes has yet to read the backlog.
        process.wait_until(
            lambda query=query: ask("query", query=query)["result"], query, seconds=60, pause=1
        )
        kept[query] = ask("query_range", query=query, start=end - 60, end=end, step=1)["result"]
    print(f"{len(kept)} queries of the dashboard return data")
    if keep is not None:
        keep.write_text(json.dumps(kept))


def check_alerts(ask: Any) -> None:
    """Require that each rule can be evaluated, and that none of those that wake somebody up fires."""
    (group,) = ask("rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}, group
    firing = [rule["name"] for rule in group["rules"] if rule["state"] == "firing"]
    print(f"{len(group['rules'])} alerts evaluate; firing: {', '.join(firing) or 'none'}")
    assert not [
        rule for rule in group["rules"] if rule["state"] == "firing" and rule["labels"]["severity"] == "page"
    ]


def check_outage(ask: Any, database: MariaDB) -> None:
    """Require that scrapes go on while the database is suspended, and show it."""

    def shows(value: str) -> bool:
        up, available = (
            ask("query", query=name)["result"] for name in ("up", "gatehouse_database_available")
        )
        assert [row["value"][1] for row in up] == ["1"], "a scrape failed"
        return [row["value"][1] for row in available] == [value]

    os.kill(database.pid, signal.SIGSTOP)
    try:
        process.wait_until(lambda: shows("0"), "the outage", seconds=60, pause=1)
        time.sleep(10)
        assert shows("0")
    finally:
        os.kill(database.pid, signal.SIGCONT)
    process.wait_until(lambda: shows("1"), "the database to answer", seconds=60, pause=1)
    print("scrapes go on while the database does not answer")


if __name__ == "__main__":
    main()
