"""OpenTelemetry and trace ids: traces are continued, and no secret reaches the collector."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.metrics import recorder
from app.web import telemetry
from app.web.request_log import configure_logging
from tests.factories import PASSWORD, Factory

pytestmark = pytest.mark.either
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


class Collector(ThreadingHTTPServer):
    """Receives OTLP over HTTP; ``bodies`` are those of each path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/metrics": []}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def spans(self) -> list[Any]:
        """Return all spans."""
        exports = [ExportTraceServiceRequest.FromString(body) for body in self.bodies["/v1/traces"]]
        return [
            span
            for export in exports
            for of_resource in export.resource_spans
            for scope in of_resource.scope_spans
            for span in scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        server.bodies[self.path].append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.server_port}")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "id-test")
    monkeypatch.setattr(recorder, "is_on", False)
    yield made
    made.shutdown()
    made.server_close()
    recorder.forget()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}


def test_spans_of_requests_continue_the_trace_and_hold_no_secret(
    app: Flask, http: FlaskClient, make: Factory, collector: Collector
) -> None:
    make.root()
    acme = make.organization("acme")
    machine, user = make.machine(acme, "clients:read"), make.user(acme)
    stop = telemetry.start(app)
    assert stop is not None
    form = {"grant_type": "client_credentials"}
    answer = http.post("/oauth/token", data=form, headers=machine.basic | TRACEPARENT)
    token = answer.get_json()["access_token"]
    secrets = {machine.secret, token, token.rsplit("_", 1)[-1], "gth_ac_abcdef", PASSWORD, user.email}
    http.post("/oauth/introspect", data={"token": token}, headers=machine.basic | {"tracestate": "a=b"})
    http.get("/oauth/authorize?client_id=x&state=my-state&code=gth_ac_abcdef&login_hint=" + user.email)
    http.post("/organizations/acme/login", data={"email": user.email, "password": PASSWORD})
    http.get("/invitations/gth_in_secretsecretsecret")
    http.open("/nothing/here", method="PASSWORD")
    http.get("/clients?organization_id=acme", headers={"Authorization": f"Bearer {token}"})
    stop()
    spans = collector.spans()
    sent = b"".join(body for bodies in collector.bodies.values() for body in bodies)
    assert [secret for secret in (*secrets, "my-state", "secretsecret") if secret.encode() in sent] == []
    (of_token,) = [span for span in spans if span.name == "POST oauth.token"]
    assert (of_token.trace_id.hex(), of_token.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(of_token) == {
        "http.request.method": "POST",
        "http.route": "oauth.token",
        "http.response.status_code": 200,
        "gatehouse.request_id": answer.headers["X-Request-Id"],
        "gatehouse.organization": "acme",
        "gatehouse.client": machine.client_id,
    }
    statements = [span for span in spans if span.parent_span_id == of_token.span_id]
    assert "INSERT" in {span.name for span in statements}
    assert all(set(attributes(span)) == {"db.query.text", "db.operation.name"} for span in statements)
    assert "unmatched" in {span.name for span in spans}
    assert {span.trace_id.hex() for span in spans if span.name == "POST oauth.introspect"} != {TRACE}
    by_id = {span.span_id for span in spans}
    assert all(span.parent_span_id in by_id for span in spans if span.kind == span.SPAN_KIND_CLIENT)


def test_metrics_are_exported_with_the_name_of_the_service(
    app: Flask, http: FlaskClient, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    recorder.forget()
    stop = telemetry.start(app)
    assert stop is not None
    http.get("/healthz")
    stop()
    assert collector.bodies["/v1/traces"] == []
    (resource,) = ExportMetricsServiceRequest.FromString(collector.bodies["/v1/metrics"][-1]).resource_metrics
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "id-test"
    exported = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    (point,) = exported["http.server.request.duration"].histogram.data_points
    assert point.count == 1
    assert {"gatehouse.requests", "gatehouse.workers", "gatehouse.audit_unsealed_events"} <= exported.keys()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "x"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "none",
        },
    ],
)
def test_nothing_is_set_up_without_an_endpoint(app: Flask, environ: dict[str, str]) -> None:
    assert telemetry.start(app, environ) is None
    assert telemetry.tracing.begin is telemetry.tracing.query is None


def test_missing_packages_are_a_warning_with_the_command_to_type(
    app: Flask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert telemetry.start(app, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}) is None
    assert f"pip install {telemetry.PACKAGES}" in caplog.text


@pytest.mark.parametrize(
    ("follows", "sampler", "flag", "is_traced"),
    [
        (False, "parentbased_always_off", "01", False),
        (False, "parentbased_always_on", "00", True),
        # Its last half is the least one, which each ratio samples.
        (False, "parentbased_traceidratio", "01", False),
        (False, "traceidratio", "01", False),
        (True, "parentbased_always_off", "01", True),
    ],
)
def test_callers_decide_what_is_traced_only_if_the_settings_say_so(
    app: Flask,
    http: FlaskClient,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    follows: bool,
    sampler: str,
    flag: str,
    is_traced: bool,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.000000001")
    changed = dataclasses.replace(app.config["GATEHOUSE"], follow_traceparent=follows)
    monkeypatch.setitem(app.config, "GATEHOUSE", changed)
    stop = telemetry.start(app)
    assert stop is not None
    http.get("/readyz", headers={"traceparent": f"00-{TRACE[:16]}{1:016x}-{PARENT}-{flag}"})
    stop()
    assert bool(collector.spans()) is is_traced
    assert all(span.trace_id.hex().startswith(TRACE[:16]) for span in collector.spans())


def test_log_lines_have_the_trace_id_of_the_caller_without_opentelemetry(
    http: FlaskClient, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("info")
    http.get("/readyz", headers=TRACEPARENT)
    for wrong in ("", "x", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", f'00-{TRACE}-"-01'):
        http.get("/readyz", headers={"traceparent": wrong})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    ids = [line.get("trace_id") for line in lines if line["logger"] == "gatehouse.request"]
    assert ids == [TRACE, None, None, None, None, None]
    assert not any("span_id" in line for line in lines)


def test_log_lines_within_a_request_have_its_trace_id(
    app: Flask, http: FlaskClient, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("info")
    app.config["IS_DRAINING"] = lambda: True
    try:
        http.get("/readyz", headers=TRACEPARENT)
    finally:
        del app.config["IS_DRAINING"]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["trace_id"] for line in lines] == [TRACE, TRACE]


@pytest.mark.slow
def test_worker_that_is_stopped_sends_its_last_spans(collector: Collector, tmp_path: Path) -> None:
    """Granian ends workers without exit handlers."""
    code = (
        "import os, threading\n"
        "from wsgi import app\n"
        "app.test_client().get('/healthz', base_url='http://127.0.0.1')\n"
        "threading._shutdown()\n"
        "os._exit(0)\n"
    )
    root = Path(__file__).resolve().parents[2]
    environ = {
        "GATEHOUSE_INSTANCE": str(tmp_path),
        "GATEHOUSE_LOG_LEVEL": "error",
        "PATH": "/usr/bin:/bin",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
    }
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=root, env=environ, check=True, timeout=120, capture_output=True)
    assert [span.name for span in collector.spans() if span.name.startswith("GET")] == ["GET health.alive"]
