"""Metrics: each request is counted once, under labels of bounded number, also across workers that end."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from app import metrics
from app.metrics import FAMILIES, recorder
from app.operations.maintenance.backlog import Backlog
from app.operations.store import clock, outbox, usage_counters
from app.operations.store.transactions import transaction
from app.rules.errors import Unavailable
from app.web.metrics import Files, Publisher
from tests.factories import Factory
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.process import free_port, wait_until
from tests.support.servers import LiveServer

REQUEST = metrics.REQUESTS.name


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count requests, from zero."""
    recorder.forget()
    monkeypatch.setattr(recorder, "is_on", True)
    yield
    recorder.forget()


def scrape(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples of a metrics port by name and by the values of their labels, sorted by label."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


@pytest.mark.either
def test_requests_are_counted_by_route_with_and_without_the_fast_path(
    http: FlaskClient, make: Factory, counting: None
) -> None:
    make.root()
    make.organization("acme")
    for issuer in ("", "/organizations/acme"):
        assert http.get(f"{issuer}/oauth/jwks").status_code == 200
        http.get(f"{issuer}/.well-known/openid-configuration")
        # Not a plain form, so that Flask answers.
        http.post(f"{issuer}/oauth/token", json={})
        http.post(f"{issuer}/oauth/token", data={"grant_type": "client_credentials"})
    http.get("/api/v1/clients")
    http.get("/clients")
    for name in ("first", "second"):
        http.open(f"/missing/{name}", method=name.upper())
    assert recorder.samples()[REQUEST] == {
        ("oauth.jwks", "GET", "200"): 2,
        ("discovery.metadata", "GET", "200"): 2,
        ("oauth.token", "POST", "400"): 2,
        ("oauth.token", "POST", "401"): 2,
        ("api.list_clients", "GET", "401"): 2,
        ("unmatched", "other", "404"): 2,
    }


@pytest.mark.either
def test_tokens_and_refusals_are_counted_by_grant_and_cause(
    http: FlaskClient, make: Factory, counting: None
) -> None:
    machine = make.machine(make.organization(), "reports:read")
    form = {"grant_type": "client_credentials"}
    for _ in range(3):
        assert http.post("/oauth/token", data=form, headers=machine.basic).status_code == 200
    assert http.post("/oauth/token", data=form | {"scope": "none"}, headers=machine.basic).status_code == 400
    samples = recorder.samples()
    assert samples[metrics.TOKENS.name] == {("client_credentials",): 3}
    assert samples[metrics.REFUSALS.name] == {("oauth.token", "scope_not_allowed"): 1}
    (duration,) = samples[metrics.DURATION.name].values()
    assert isinstance(duration, list) and sum(duration[:-1]) == 4 and duration[-1] > 0


@pytest.mark.either
def test_nothing_is_counted_for_requests_when_metrics_are_off(http: FlaskClient) -> None:
    recorder.forget()
    http.get("/healthz")
    assert REQUEST not in recorder.samples()


@pytest.mark.either
def test_counters_of_a_worker_that_ended_remain_and_its_gauges_do_not(tmp_path: Path) -> None:
    values: metrics.Samples = {REQUEST: {("r", "GET", "200"): 5}, metrics.WORKERS.name: {(): 1}}
    first, second = Files(tmp_path), Files(tmp_path)
    first.write(values)
    second.write(values)
    assert first.read_all() == {REQUEST: {("r", "GET", "200"): 10}, metrics.WORKERS.name: {(): 2}}
    assert first.take_lead() and not second.take_lead()
    first.close()
    assert second.read_all() == {REQUEST: {("r", "GET", "200"): 10}, metrics.WORKERS.name: {(): 1}}
    assert second.take_lead()
    successor = Files(tmp_path)
    successor.write({REQUEST: {("r", "GET", "200"): 1}})
    assert second.read_all()[REQUEST] == {("r", "GET", "200"): 11}
    for files in (second, successor):
        files.close()
    assert Files(tmp_path).read_all() == {}, "a service that starts anew counts from zero"


@pytest.mark.either
def test_file_that_is_half_written_counts_as_before(tmp_path: Path) -> None:
    writer, reader = Files(tmp_path), Files(tmp_path)
    writer.write({REQUEST: {("r", "GET", "200"): 5}})
    assert reader.read_all()[REQUEST] == {("r", "GET", "200"): 5}
    content = (tmp_path / "0").read_bytes()
    (tmp_path / "0").write_bytes(content.replace(b"5", b"6"))
    assert reader.read_all()[REQUEST] == {("r", "GET", "200"): 5}


def test_backlog_tells_what_waits(app: Flask, make: Factory) -> None:
    acme = make.organization()

    @transaction
    def enqueue() -> None:
        outbox.enqueue(acme.id, "mail", {}, receiver="mail_server")

    make.client(acme)
    with app.app_context():
        enqueue()
        old = clock.now() - usage_counters.RETENTION - timedelta(days=2)
        usage_counters.add_past([(old, (acme.id, ((usage_counters.TOKENS, ""),), None, None), 1)])
        samples = Backlog().read()
    assert samples[metrics.OUTBOX.name][("mail",)] == 1
    assert 0 <= value(samples, metrics.OUTBOX_AGE, "mail") < 600
    assert value(samples, metrics.UNSEALED) > 0
    assert value(samples, metrics.JANITOR_LAG, "access_tokens") == 0
    assert value(samples, metrics.JANITOR_LAG, "usage_counters") > timedelta(days=1).total_seconds()


def refuse(_: Backlog) -> None:
    raise Unavailable


def value(samples: metrics.Samples, family: metrics.Family, *labels: str) -> Any:
    return samples[family.name][labels]


@pytest.mark.either
@pytest.mark.parametrize("is_away", [False, True])
def test_every_metric_of_a_served_worker_is_in_the_text_format(
    app: Flask, tmp_path: Path, counting: None, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """A scrape has each metric, and those from the database only while it answers."""
    if is_away:
        monkeypatch.setattr(Backlog, "read", refuse)
    port = free_port()
    publisher = Publisher(app, tmp_path, ("127.0.0.1", port))
    publisher.publish()
    url = f"http://127.0.0.1:{port}/metrics"
    wait_until(lambda: is_away or metrics.BACKLOG_AGE.name in scrape(url), "the backlog", seconds=60)
    text = urllib.request.urlopen(url, timeout=30).read().decode()
    names = {family.name.removesuffix("_total") for family in text_string_to_metric_families(text)}
    assert names == {family.name.removesuffix("_total") for family in FAMILIES}
    assert (metrics.UNSEALED.name in scrape(url)) is not is_away
    assert scrape(url)[metrics.WORKERS.name] == {(): 1}
    publisher.close()


def holds(pid: int, file: str) -> bool:
    """Return whether the process has the file open."""
    return any(str(entry.readlink()).endswith(file) for entry in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.live
def test_counts_of_two_workers_are_right_when_one_is_killed(
    mariadb: MariaDB, instance: Path, tmp_path: Path, worker: str
) -> None:
    port = free_port()
    settings = {"GATEHOUSE_METRICS_ADDRESS": f"127.0.0.1:{port}"}
    log = tmp_path / "server.log"
    server = LiveServer(MariaDBDatabase(mariadb, f"metrics_{worker}"), instance, log, settings=settings)
    server.database.clean()
    server.start()
    url = f"http://127.0.0.1:{port}/metrics"
    key = ("GET", "oauth.jwks", "200")
    make = Factory(server.app)
    make.root()

    def counted() -> float:
        try:
            return scrape(url).get(REQUEST, {}).get(key, 0.0)
        except OSError:
            # Another worker is about to take the port.
            return -1

    def fetch(times: int) -> None:
        for _ in range(times):
            urllib.request.urlopen(f"{server.url}/oauth/jwks", timeout=60).close()

    fetch(40)
    wait_until(lambda: counted() == 40, "all requests", seconds=60)
    leader = next(pid for pid in server.worker_pids() if holds(pid, "metrics/leader"))
    os.kill(leader, signal.SIGKILL)
    wait_until(lambda: counted() == 40, "another worker that serves the same counts", seconds=60)
    wait_until(lambda: scrape(url)[metrics.STARTS.name][()] == 3, "the worker's successor", seconds=60)
    fetch(10)
    wait_until(lambda: counted() == 50, "the new requests", seconds=60)
    wait_until(lambda: scrape(url).get(metrics.OUTBOX.name) is not None, "the backlog", seconds=60)
    server.stop()
