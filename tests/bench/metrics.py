"""``python -m tests.bench.metrics``: what metrics cost a token and an introspection request.

Two servers on one MariaDB, one with metrics that are scraped every second and one without, take turns. The medians of
the CPU time of both, per request, are compared; rates depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import tempfile
import threading
import urllib.request
from pathlib import Path

from tests.bench import scenarios
from tests.bench.instance import Instance
from tests.bench.load import run
from tests.bench.servers import GATEHOUSE, cpu_seconds, serving
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.process import free_port


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.metrics", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2, help="length of each run")
    parser.add_argument("--repeats", type=int, default=15, help="pairs of runs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-bench-"))
    database = MariaDB(folder / "mariadb", "--innodb-buffer-pool-size=1G")
    try:
        compare(Instance(MariaDBDatabase(database.start(), "gatehouse"), folder), folder, options)
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def compare(instance: Instance, folder: Path, options: argparse.Namespace) -> None:
    """Print microseconds of CPU per request, and the ratio, with metrics off and on."""
    metrics_port = free_port()
    on = instance.env | {"GATEHOUSE_METRICS_ADDRESS": f"127.0.0.1:{metrics_port}"}
    with contextlib.ExitStack() as stack:
        ports, pids = {}, {}
        for name, env in (("off", instance.env), ("on", on)):
            server = serving(
                GATEHOUSE, env, probe="/healthz", workers=2, threads=8, log=folder / f"{name}.log"
            )
            ports[name], process, _ = stack.enter_context(server)
            pids[name] = process.pid
        ended = threading.Event()
        stack.callback(ended.set)
        threading.Thread(target=scrape, args=(metrics_port, ended), daemon=True).start()
        machine = scenarios.credentials_of(instance.machine)
        tokens = instance.some_tokens(ports["off"], 2000)
        for flow, make in (
            ("client_credentials", scenarios.client_credentials([machine])),
            ("introspection", scenarios.introspection(machine, tokens)),
        ):
            used: dict[str, list[float]] = {"off": [], "on": []}
            rates: dict[str, list[float]] = {"off": [], "on": []}
            for turn in range(options.repeats + 1):
                # Whoever is first alternates, and the first turn warms up.
                for name in ("off", "on") if turn % 2 else ("on", "off"):
                    before = cpu_seconds(pids[name])
                    result = run(ports[name], make, connections=16, seconds=options.seconds)
                    assert not result.errors, result.sample
                    if turn:
                        used[name].append((cpu_seconds(pids[name]) - before) / len(result.latencies) * 1e6)
                        rates[name].append(result.rate)
            pairs = [with_metrics / without for without, with_metrics in zip(*used.values(), strict=True)]
            off, with_metrics = (statistics.median(values) for values in used.values())
            slow, fast = (statistics.median(values) for values in rates.values())
            print(
                f"{flow}: {off:.1f} to {with_metrics:.1f} µs of CPU, median ratio of pairs "
                f"{statistics.median(pairs):.3f}; {slow:.0f} and {fast:.0f} requests per second"
            )


def scrape(port: int, ended: threading.Event) -> None:
    """Scrape every second."""
    while not ended.wait(1):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()


if __name__ == "__main__":
    main()
