"""Metrics for Prometheus: one worker of the machine serves those of all its workers, on a port of their own.

Each worker writes its values into a file every second, and the one that holds a lock answers scrapes with their sum.
When that one ends, another takes the lock and the port. A worker that ends leaves its counters to the next one that
takes its file, so that no counter goes back while the service runs.

The multi-process mode of prometheus_client is not used: it writes to files at each observation, which costs a token
request ten times as much as all counting here, and leaves files behind for each worker that ended.

What comes from the database is read by a thread, and only while metrics are scraped; a scrape never waits for it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import platform
import resource
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flask import Flask

from app.config import VERSION, Config, fault_of
from app.database import breaker, connection_load, engines
from app.fast_path import cache_invalidation
from app.metrics import (
    AVAILABLE,
    BACKLOG_AGE,
    BUCKETS,
    BUILD,
    CACHE_AGE,
    CONNECTIONS,
    COUNTER,
    CPU,
    FAMILIES,
    HASHES,
    HISTOGRAM,
    MEMORY,
    STARTS,
    WORKERS,
    Family,
    Samples,
    Value,
    merge,
    recorder,
)
from app.operations.maintenance.backlog import Backlog
from app.operations.sign_in.passwords import hashing_load

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric

PUBLISH_SECONDS = 1.0
BACKLOG_SECONDS = 15.0
# How long the database is read after the last scrape.
IDLE_SECONDS = 300.0
_MERGES = {family.name: family.merge for family in FAMILIES}
_LASTING = frozenset(family.name for family in FAMILIES if family.kind != "gauge")
_log = logging.getLogger("gatehouse.metrics")


def start(app: Flask) -> None:
    """Count requests, and publish the values of this worker, if an address is set."""
    config: Config = app.config["GATEHOUSE"]
    if config.metrics_address is not None:
        recorder.is_on = True
        publisher = Publisher(app, config.instance / "metrics", config.metrics_address)
        # Not a daemon: the last values of a worker that is stopped must not be lost.
        threading.Thread(target=publisher.publish_for_ever, name="metrics").start()


def process_samples() -> Samples:
    """Return the values of this worker. An application context must be open."""
    samples = recorder.samples()
    running, waiting = hashing_load()
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    samples[HASHES.name] = {("running",): running, ("waiting",): waiting}
    samples[CONNECTIONS.name] = {
        (pool, state): value
        for pool, load in connection_load().items()
        for state, value in zip(("in_use", "waiting", "limit"), load, strict=True)
    }
    samples[AVAILABLE.name] = {(): float(not breaker().is_open)}
    samples[CACHE_AGE.name] = {(): cache_invalidation.age()}
    samples[CPU.name] = {(): used.ru_utime + used.ru_stime}
    samples[MEMORY.name] = {(): pages * os.sysconf("SC_PAGE_SIZE")}
    samples[BUILD.name] = {(VERSION, platform.python_version(), engines()[0].dialect.name): 1}
    samples[STARTS.name] = {(): 1}
    samples[WORKERS.name] = {(): 1}
    return samples


class Files:
    """The values of this machine's workers, each in a file that its worker has locked."""

    def __init__(self, folder: Path) -> None:
        """Take a file. If no other worker serves, all values begin at zero. Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._held: dict[str, int] = {}
        self._known: dict[str, Samples] = {}
        # One worker at a time, or two that start together would each take the other for one that serves.
        turn = _open(folder / "start")
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            names = sorted(path.name for path in folder.iterdir() if path.name.isdigit())
            free = [name for name in names if self._lock(name)]
            if len(free) == len(names):
                for name in free:
                    os.ftruncate(self._held[name], 0)
            self._name = free[0] if free else str(len(names))
            if not free:
                self._lock(self._name)
            for name in free[1:]:
                os.close(self._held.pop(name))
            self._before = {
                name: values for name, values in self._read(self._name).items() if name in _LASTING
            }
        finally:
            os.close(turn)

    def write(self, samples: Samples) -> None:
        """Replace the values of this worker; what earlier workers counted in this file is added. Raises OSError."""
        values = merge([self._before, samples], _MERGES)
        body = json.dumps([[name, [*found.items()]] for name, found in values.items()]).encode()
        os.pwrite(self._held[self._name], b"%08x" % zlib.crc32(body) + body + b"\n", 0)

    def read_all(self) -> Samples:
        """Return the values of all workers, of those that ended only their counters."""
        found = []
        for path in self._folder.iterdir():
            if path.name.isdigit():
                samples = self._read(path.name)
                found.append(
                    samples
                    if self._is_alive(path)
                    else {name: values for name, values in samples.items() if name in _LASTING}
                )
        return merge(found, _MERGES)

    def close(self) -> None:
        """Let another worker take the file, and the lead."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held = {}

    def take_lead(self) -> bool:
        """Return whether this worker is the one that answers scrapes, until it ends."""
        return "leader" in self._held or self._lock("leader")

    def _lock(self, name: str) -> bool:
        descriptor = _open(self._folder / name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._held[name] = descriptor
        return True

    def _is_alive(self, path: Path) -> bool:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _read(self, name: str) -> Samples:
        """Return the values in the file, or those before if they are being written at this moment."""
        content = (self._folder / name).read_bytes().partition(b"\n")[0]
        if content[:8] == b"%08x" % zlib.crc32(content[8:]) and content[8:]:
            self._known[name] = {
                family: {tuple(labels): value for labels, value in values}
                for family, values in json.loads(content[8:])
            }
        return self._known.get(name, {})


class Publisher:
    """Writes the values of this worker, and serves those of all workers if this is the one that does."""

    def __init__(self, app: Flask, folder: Path, address: tuple[str, int]) -> None:
        self._app, self._folder, self._address = app, folder, address
        self._files: Files | None = None
        self._server: WSGIServer | None = None
        self._scraped_at = float("-inf")
        self._backlog: Samples = {}
        self._backlog_at: float | None = None
        self._is_warned = False

    def publish_for_ever(self) -> None:
        """Publish every second, and for the last time when the main thread has ended."""
        main = threading.main_thread()
        while main.is_alive():
            self._try_to_publish()
            main.join(PUBLISH_SECONDS)
        self._try_to_publish()
        self.close()

    def _try_to_publish(self) -> None:
        try:
            self.publish()
            self._is_warned = False
        except Exception as error:  # noqa: BLE001 - a full disk or a busy port may pass, and the thread must go on
            # Once for each outage.
            level = logging.DEBUG if self._is_warned else logging.WARNING
            reason: object = error
            if isinstance(error, OSError) and error.filename is not None:
                reason = fault_of(self._folder, error)
            _log.log(level, "metrics are not up to date: %s", reason)
            self._is_warned = True

    def publish(self) -> None:
        """Write the values of this worker, and begin to serve if no other worker does. Raises OSError."""
        if self._files is None:
            self._files = Files(self._folder)
        with self._app.app_context():
            self._files.write(process_samples())
        if self._server is None and self._files.take_lead():
            self._serve()

    def collect(self) -> Samples:
        """Return the values of the machine."""
        self._scraped_at = time.monotonic()
        samples = self._files.read_all() if self._files is not None else {}
        samples |= self._backlog
        if self._backlog_at is not None:
            samples[BACKLOG_AGE.name] = {(): self._scraped_at - self._backlog_at}
        return samples

    def close(self) -> None:
        """Serve no more, and leave the counters to another worker."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._files is not None:
            self._files.close()

    def _serve(self) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(_Collector(self))
        host, port = self._address
        self._server, _ = start_http_server(port, host, registry)
        threading.Thread(target=self._read_backlog_for_ever, name="backlog", daemon=True).start()
        _log.info("metrics are served at http://%s:%d/metrics", host, port)

    def _read_backlog_for_ever(self) -> None:
        pause, backlog = threading.Event(), Backlog()
        while True:
            if time.monotonic() - self._scraped_at < IDLE_SECONDS:
                with self._app.app_context():
                    try:
                        self._backlog, self._backlog_at = backlog.read(), time.monotonic()
                    except Exception as error:  # noqa: BLE001 - the age of the figures shows it, and the thread must go on
                        _log.debug("the backlog could not be read: %s", type(error).__name__)
            pause.wait(BACKLOG_SECONDS if self._backlog else PUBLISH_SECONDS)


class _Collector:
    """What prometheus_client asks at each scrape."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def collect(self) -> Iterator[Metric]:
        samples = self._publisher.collect()
        return (to_prometheus(family, samples.get(family.name, {})) for family in FAMILIES)


def to_prometheus(family: Family, values: dict[tuple[str, ...], Value]) -> Metric:
    """Return the metric as prometheus_client writes it."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.meaning, labels=family.labels)
        for labels, value in values.items():
            if isinstance(value, list):
                *counts, total = value
                limits = [*map(str, BUCKETS), "+Inf"]
                at_most = [sum(counts[: index + 1]) for index in range(len(counts))]
                histogram.add_metric(labels, [*zip(limits, at_most, strict=True)], total)
        return histogram
    make = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    metric = make(family.name, family.meaning, labels=family.labels)
    for labels, value in values.items():
        if not isinstance(value, list):
            metric.add_metric(labels, value)
    return metric


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
