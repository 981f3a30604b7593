"""``python -m tests.bench.flood``: what another organization's flood does to one organization's requests.

In turns on one private MariaDB: the organization alone; while another one sends as much as it can; and while that one
has a limit of requests per minute. Each both directly and through HAProxy with the file of docs/operations. Both use
client_credentials.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from app.operations.organizations.settings import update_settings
from tests.bench.fill import Credentials
from tests.bench.instance import Instance
from tests.bench.load import DONE, Ask, MakeVisitor, Visitor, request, run
from tests.bench.scenarios import TOKEN, basic, client_credentials, credentials_of
from tests.bench.servers import GATEHOUSE, serving
from tests.support import process
from tests.support.databases import MariaDBDatabase
from tests.support.haproxy import HAProxy, gatehouse_names
from tests.support.mariadb import MariaDB

ALONE, FLOOD, LIMITED = "alone", "flood without limit", "flood with limit"
DIRECT, PROXY = "direct", "HAProxy"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.flood", description=__doc__)
    parser.add_argument("--connections", type=int, default=64, help="of the flood")
    parser.add_argument(
        "--limit", type=int, default=6000, help="requests per minute of the flooding organization"
    )
    parser.add_argument("--threads", type=int, default=8, help="of each of the two workers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
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
    instance = Instance(MariaDBDatabase(server, "flood"), folder)
    flooding = instance.make.organization("flooding")
    credentials = credentials_of(instance.make.machine(flooding, "clients:read"))
    mine = client_credentials([credentials_of(instance.machine)])
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {
        (name, way): [] for name in (ALONE, FLOOD, LIMITED) for way in (DIRECT, PROXY)
    }
    env, log = instance.env | {"GATEHOUSE_PROXY_HOPS": "1"}, folder / "server.log"
    with (
        serving(GATEHOUSE, env, probe="/healthz", workers=2, threads=options.threads, log=log) as (
            port,
            _,
            _,
        ),
        _in_front(port, folder) as front,
    ):
        ports = {DIRECT: port, PROXY: front}
        run(port, mine, connections=2, seconds=2, processes=1)
        for _ in range(options.repeats):
            for (name, way), sample in found.items():
                limit = options.limit if name == LIMITED else None
                with instance.app.app_context():
                    change = {"limits": {"organization_requests_per_minute": limit}}
                    update_settings(instance.make.system(flooding), "flooding", change)
                connections = 0 if name == ALONE else options.connections
                flood = _Flood(ports[way], credentials, connections, options.seconds + 4)
                # Until the flood has used up what it may send.
                time.sleep(2)
                result = run(ports[way], mine, connections=2, seconds=options.seconds, processes=1)
                assert not result.errors, result.sample
                sample.append((result.percentile(0.5), result.percentile(0.99), flood.rate()))
    print(f"{'':30}{'p50 ms':>8}{'p99 ms':>8}{'ratio':>8}{'answers/s to the flood':>26}")
    for (name, way), sample in found.items():
        p50, p99, rate = (statistics.median(column) for column in zip(*sample, strict=True))
        alone = statistics.median(p99 for _, p99, _ in found[ALONE, way])
        print(f"{name + ', ' + way:30}{p50:8.1f}{p99:8.1f}{p99 / alone:8.2f}{rate:26.0f}")


@contextlib.contextmanager
def _in_front(node: int, folder: Path) -> Iterator[int]:
    """Start HAProxy in front of the node and return its port."""
    port = process.free_port()
    names = gatehouse_names(port, process.free_port(), [node], "127.0.0.1")
    proxy = HAProxy("haproxy-gatehouse.cfg", folder / "haproxy", names)
    try:
        proxy.start()
        process.wait_until(lambda: proxy.states() == {"node1": "UP"}, "the node behind HAProxy")
        yield port
    finally:
        proxy.stop()


class _Flood:
    """Requests on many connections in the background, whatever the responses are."""

    def __init__(self, port: int, credentials: Credentials, connections: int, seconds: float) -> None:
        self._rate = 0.0
        arguments = (port, credentials, connections, seconds)
        self._thread = threading.Thread(target=self._send, args=arguments)
        self._thread.start()

    def rate(self) -> float:
        """Wait for the end and return the responses per second."""
        self._thread.join()
        return self._rate

    def _send(self, port: int, credentials: Credentials, connections: int, seconds: float) -> None:
        if connections:
            result = run(
                port, _insistent(credentials), connections=connections, seconds=seconds - 1, processes=1
            )
            self._rate = result.rate


def _insistent(client: Credentials) -> MakeVisitor:
    sent = request("POST", TOKEN, b"grant_type=client_credentials", headers=basic(client))

    def visitor(_number: int) -> Visitor:
        while True:
            answer = yield Ask(sent)
            assert answer.status in (200, 429, 503), answer
            yield DONE

    return visitor


if __name__ == "__main__":
    main()
