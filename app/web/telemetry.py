"""OpenTelemetry: spans of requests and statements, and the metrics of each worker, sent to a collector by OTLP.

It is set up by OpenTelemetry's own environment variables, and only if they name an endpoint and its packages are
installed (docs/operations/monitoring.md). A span has only the attributes that are named here: no URL, header, body,
value of a statement or text of an error, because codes, tokens and personal data are in all of them. That is also why
its instrumentation of Flask and SQLAlchemy is not used; the fast path is neither.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from flask import Flask

from app.config import VERSION, Config, install_line
from app.database import trace_statements
from app.metrics import COUNTER, FAMILIES, GAUGE, METHODS, ROUTE, Family, Samples, recorder, route_of
from app.operations.maintenance.backlog import Backlog
from app.rules.identifiers import new_id
from app.tracing import Trace, current, tracing
from app.web.metrics import process_samples
from app.web.request_log import FACTS

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment
    from opentelemetry.metrics import CallbackOptions
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult

PACKAGES = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SAME_EXPORT_SECONDS = 5.0
_log = logging.getLogger("gatehouse.telemetry")


def start(app: Flask, environ: Mapping[str, str] = os.environ) -> Callable[[], None] | None:
    """Send traces and metrics if the environment names an endpoint; return what sends the last ones and ends it."""
    wanted = [signal for signal in ("TRACES", "METRICS") if _is_wanted(environ, signal)]
    if not wanted:
        return None
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        _log.warning(
            "%s is set, but OpenTelemetry is not installed. Type: %s",
            _ENDPOINT,
            install_line(PACKAGES),
        )
        return None
    from opentelemetry.sdk.resources import Resource

    of_service = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "gatehouse"}
    resource = Resource.create(
        {
            **of_service,
            "service.version": VERSION,
            "service.instance.id": str(new_id()),
            "host.name": platform.node(),
            "process.pid": os.getpid(),
        }
    )
    meters = _start_metrics(app, resource) if "METRICS" in wanted else None
    tracers = _start_traces(app, resource) if "TRACES" in wanted else None

    def stop() -> None:
        tracing.begin = tracing.query = recorder.on_request = None
        for provider in (tracers, meters):
            if provider is not None:
                provider.shutdown()

    return stop


def stop_with_process(stop: Callable[[], None]) -> None:
    """Send what is left when the main thread has ended: a worker runs no exit handlers."""

    def wait() -> None:
        threading.main_thread().join()
        stop()

    threading.Thread(target=wait, name="telemetry").start()


def _is_wanted(environ: Mapping[str, str], signal: str) -> bool:
    endpoint = environ.get(_ENDPOINT) or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return bool(endpoint) and not is_off and environ.get(f"OTEL_{signal}_EXPORTER", "otlp") != "none"


def _deciding_itself(configured: Sampler) -> Sampler:
    """Return a sampler that decides about a caller's trace as ``configured`` does without one.

    The ID of the trace is replaced in that decision, because samplers by ratio calculate with it.
    """
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.sdk.trace.sampling import ParentBased, Sampler

    ids = RandomIdGenerator()

    class OwnDecision(Sampler):
        def should_sample(
            self, parent_context: object, trace_id: int, name: str, *more: Any, **named: Any
        ) -> SamplingResult:
            return configured.should_sample(None, ids.generate_trace_id(), name, *more, **named)

        def get_description(self) -> str:
            return configured.get_description()

    own = OwnDecision()
    return ParentBased(own, remote_parent_sampled=own, remote_parent_not_sampled=own)


def _start_traces(app: Flask, resource: Resource) -> TracerProvider:
    from opentelemetry import context, trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    provider = TracerProvider(resource=resource)
    config: Config = app.config["GATEHOUSE"]
    if not config.follow_traceparent:
        provider.sampler = _deciding_itself(provider.sampler)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer, propagator = provider.get_tracer("gatehouse", VERSION), TraceContextTextMapPropagator()

    class RequestSpan(Trace):
        """The span of a request, and the current one of OpenTelemetry until it ends."""

        __slots__ = ("_context", "_span")

        def __init__(self, environ: WSGIEnvironment) -> None:
            sent = {
                name: environ[key]
                for name, key in (("traceparent", "HTTP_TRACEPARENT"), ("tracestate", "HTTP_TRACESTATE"))
                if key in environ
            }
            method = environ["REQUEST_METHOD"]
            self._span = tracer.start_span(
                method if method in METHODS else "HTTP",
                propagator.extract(sent) if sent else context.Context(),
                trace.SpanKind.SERVER,
                {"http.request.method": method if method in METHODS else "_OTHER"},
            )
            self._context = context.attach(trace.set_span_in_context(self._span))
            ids = self._span.get_span_context()
            super().__init__(trace.format_trace_id(ids.trace_id), trace.format_span_id(ids.span_id))

        def end(self, environ: WSGIEnvironment, status: str, request_id: str) -> None:
            """End the span, with the few attributes that are never secret."""
            route, span = route_of(environ.get(ROUTE)), self._span
            if span.is_recording():
                method = environ["REQUEST_METHOD"]
                name = f"{method if method in METHODS else 'HTTP'} {route}"
                span.update_name(name if route != "unmatched" else route)
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", int(status))
                span.set_attribute("gatehouse.request_id", request_id)
                for name, value in environ.get(FACTS, {}).items():
                    if value:
                        span.set_attribute(f"gatehouse.{name}", value)
                if status >= "500":
                    span.set_status(trace.StatusCode.ERROR)
            context.detach(self._context)
            span.end()
            super().end(environ, status, request_id)

    @contextmanager
    def query(sql: str) -> Iterator[None]:
        if current.get() is None:
            # Background work asks the database several times a second.
            yield
            return
        attributes = {"db.query.text": sql, "db.operation.name": sql.split(None, 1)[0]}
        span = tracer.start_span(sql.split(None, 1)[0], None, trace.SpanKind.CLIENT, attributes)
        try:
            yield
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            raise
        finally:
            span.end()

    tracing.begin, tracing.query = RequestSpan, query
    with app.app_context():
        trace_statements()
    return provider


def _start_metrics(app: Flask, resource: Resource) -> MeterProvider:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
    meter, values = provider.get_meter("gatehouse", VERSION), _Values(app)
    duration = meter.create_histogram("http.server.request.duration", "s", "Duration of requests.")

    def on_request(route: str | None, method: str, status: str, seconds: float) -> None:
        attributes: dict[str, str | int] = {
            "http.route": route_of(route),
            "http.request.method": method if method in METHODS else "_OTHER",
            "http.response.status_code": int(status),
        }
        duration.record(seconds, attributes)

    def observe(family: Family, _: CallbackOptions) -> list[Observation]:
        return [
            Observation(value, dict(zip(family.labels, labels, strict=True)))
            for labels, value in values.read().get(family.name, {}).items()
            if not isinstance(value, list)
        ]

    for family in FAMILIES:
        name = family.name.removesuffix("_total").replace("gatehouse_", "gatehouse.", 1)
        if family.kind == COUNTER:
            meter.create_observable_counter(name, [partial(observe, family)], description=family.meaning)
        elif family.kind == GAUGE:
            meter.create_observable_gauge(name, [partial(observe, family)], description=family.meaning)
    recorder.is_on, recorder.on_request = True, on_request
    return provider


class _Values:
    """The values of this worker and the backlog, read once for all instruments of an export."""

    def __init__(self, app: Flask) -> None:
        self._app, self._backlog = app, Backlog()
        self._read_at, self._samples = float("-inf"), Samples()

    def read(self) -> Samples:
        """Return them; without the backlog while the database does not answer."""
        if time.monotonic() - self._read_at > _SAME_EXPORT_SECONDS:
            with self._app.app_context():
                self._samples = process_samples()
                try:
                    self._samples |= self._backlog.read()
                except Exception as error:  # noqa: BLE001 - an export must not fail with the database
                    _log.debug("the backlog could not be read: %s", type(error).__name__)
            self._read_at = time.monotonic()
        return self._samples
