"""``python -m tests.bench.metrics``: what metrics and traces cost a token and an introspection request.

One process sends itself requests on MariaDB. The cases take turns at each request, so that whatever else the machine
does meets all of them, and the medians of the thread's CPU time are compared. What happens in the background is
printed beside them: a worker publishes its values every second, and one of the machine answers a scrape every 15.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from prometheus_client import CollectorRegistry, generate_latest

from app.fast_path import cache_invalidation
from app.metrics import recorder
from app.tracing import tracing
from app.web import telemetry
from app.web.metrics import Publisher, _Collector
from tests.bench.instance import Instance
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB

CASES = ("off", "metrics", "traces")
# Within this time a process trusts what it has cached.
POLL_SECONDS = 0.4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.metrics", description=__doc__)
    parser.add_argument("--requests", type=int, default=5000, help="in each case")
    options = parser.parse_args()
    # Nobody listens there, which would be logged: the export happens in another thread.
    logging.disable(logging.CRITICAL)
    os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "none"}
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-bench-"))
    database = MariaDB(folder / "mariadb")
    try:
        instance = Instance(MariaDBDatabase(database.start(), "gatehouse"), folder)
        measure(instance, folder, options.requests)
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(instance: Instance, folder: Path, requests: int) -> None:
    """Print microseconds of CPU per request in each case, and the ratio to ``off``."""
    stop = telemetry.start(instance.app)
    assert stop is not None
    on = (tracing.begin, tracing.query)
    sent: list[bytes] = []

    def send(path: str, **form: str) -> None:
        body = urlencode(form).encode()
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": path,
            "CONTENT_TYPE": "application/x-www-form-urlencoded",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_HOST": "127.0.0.1",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_AUTHORIZATION": instance.machine.basic["Authorization"],
            "wsgi.input": io.BytesIO(body),
            "wsgi.url_scheme": "http",
        }
        sent[:] = instance.app.wsgi_app(environ, lambda *_: lambda _: None)

    def issue() -> None:
        send("/oauth/token", grant_type="client_credentials")

    # The log of requests would be most of the output.
    for layer in layers(instance.app.wsgi_app):
        if hasattr(layer, "enabled"):
            layer.enabled = False
    issue()
    token = sent[0].decode().partition('"access_token":"')[2].partition('"')[0]
    flows: dict[str, Callable[[], None]] = {
        "client_credentials": issue,
        "introspection": lambda: send("/oauth/introspect", token=token),
    }
    for name, flow in flows.items():
        used: dict[str, list[float]] = {case: [] for case in CASES}
        polled = 0.0
        for turn in range(requests):
            for case in CASES[turn % 3 :] + CASES[: turn % 3]:
                if time.monotonic() - polled > POLL_SECONDS:
                    with instance.app.app_context():
                        cache_invalidation.poll()
                    polled = time.monotonic()
                recorder.is_on = case == "metrics"
                tracing.begin, tracing.query = on if case == "traces" else (None, None)
                began = time.thread_time_ns()
                flow()
                used[case].append((time.thread_time_ns() - began) / 1000)
        medians = {case: statistics.median(values) for case, values in used.items()}
        print(
            name, *(f"{case} {each:.1f} µs ({each / medians['off']:.3f})" for case, each in medians.items())
        )
    publisher = Publisher(instance.app, folder / "metrics", ("127.0.0.1", 0))
    registry = CollectorRegistry()
    registry.register(_Collector(publisher))
    for name, work in (("publish", publisher.publish), ("scrape", lambda: generate_latest(registry))):
        began = time.thread_time()
        for _ in range(20):
            work()
        print(f"{name}: {(time.thread_time() - began) / 20 * 1000:.2f} ms")
    publisher.close()


def layers(application: object) -> list[object]:
    """Return the WSGI application and those inside it."""
    found: list[object] = []
    while application is not None:
        found.append(application)
        application = getattr(application, "application", None) or getattr(application, "app", None)
    return found


if __name__ == "__main__":
    main()
