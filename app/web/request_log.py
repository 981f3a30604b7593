"""The log: one JSON object per line, with secrets removed before any handler sees them (LG-1, LG-2, LG-3)."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, Any

from flask import Flask, has_request_context, request

from app.config import Config
from app.metrics import ROUTE, recorder
from app.rules.identifiers import new_public_id
from app.rules.redaction import redact
from app.tracing import Trace, follow, tracing
from app.tracing import current as current_trace

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


ID = "gatehouse.request_id"
FACTS = "gatehouse.request_facts"
_MAX_PATH = 512
_last_date = (0, "")
_plain_factory = logging.LogRecord
_traceback = logging.Formatter()


def request_id() -> str | None:
    """Return the ID of the current request, ``req_…``, or None."""
    return request.environ.get(ID) if has_request_context() else None


def note(**facts: str | None) -> None:
    """Add ``organization``, ``client`` or ``actor`` to the log line of this request. Only public IDs are allowed."""
    request.environ.setdefault(FACTS, {}).update(facts)


class RequestLog:
    """WSGI middleware that adds the ID to every response and, when ``enabled``, logs every request."""

    def __init__(self, application: WSGIApplication, enabled: bool = True) -> None:
        self.application = application
        self.enabled = enabled

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        # Never taken from the caller, who could otherwise forge log lines.
        environ[ID] = name = new_public_id("req")
        status = "500 "
        trace = None
        if tracing.begin is not None:
            trace = tracing.begin(environ)
        elif "HTTP_TRACEPARENT" in environ:
            trace = follow(environ)
        started = time.perf_counter()

        def start(
            line: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], object]:
            nonlocal status
            status = line
            if (recorder.is_on or trace is not None) and ROUTE not in environ:
                # Flask's request, which it removes when this returns, unless something in front of it answers.
                environ[ROUTE] = getattr(environ.get("werkzeug.request"), "endpoint", None)
            headers.append(("X-Request-Id", name))
            return start_response(line, headers, exc_info) if exc_info else start_response(line, headers)

        try:
            return self.application(environ, start)
        finally:
            seconds = time.perf_counter() - started
            if recorder.is_on:
                recorder.record_request(environ, status[:3], seconds)
            if self.enabled:
                _write(environ, name, status[:3], seconds * 1000, trace)
            if trace is not None:
                trace.end(environ, status[:3], name)


def _write(
    environ: WSGIEnvironment, name: str, status: str, milliseconds: float, trace: Trace | None
) -> None:
    now = time.time()
    seconds = int(now)
    path = environ.get("PATH_INFO", "")
    if len(path) > _MAX_PATH:
        path = path[:_MAX_PATH] + "..."
    if "gth_" in path or "eyJ" in path:  # An invitation link, or a token pasted into the URL.
        path = redact(path)
    facts = environ.get(FACTS)
    extra = "".join(f',"{key}":{quoted(value)}' for key, value in facts.items() if value) if facts else ""
    if trace is not None:
        # Hexadecimal digits.
        extra += "".join(f',"{key}":"{value}"' for key, value in _ids_of(trace).items())
    sys.stderr.write(
        f'{{"time":"{_date(seconds)}.{int((now - seconds) * 1000):03d}Z","level":"info","logger":"gatehouse.request",'
        f'"request_id":"{name}","method":{quoted(environ["REQUEST_METHOD"][:16])},"path":{quoted(path)},'
        f'"status":{status},"duration_ms":{milliseconds:.2f}{extra}}}\n'
    )


def _ids_of(trace: Trace) -> dict[str, str]:
    return {"trace_id": trace.trace_id} | ({"span_id": trace.span_id} if trace.span_id else {})


def _date(seconds: int) -> str:
    """Return the time in RFC 3339 format; formatted once per second."""
    global _last_date
    known, text = _last_date
    if known != seconds:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        _last_date = (seconds, text)
    return text


def register(app: Flask) -> None:
    """Add ``X-Request-Id`` to every response, log every request unless disabled, and configure logging."""
    config: Config = app.config["GATEHOUSE"]
    configure_logging(config.log_level)
    app.wsgi_app = RequestLog(app.wsgi_app, config.request_log)  # type: ignore[method-assign]


def redacting_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    """Create a log record whose message and traceback contain no secret.

    Secrets are removed when records are created and not in a handler, because Authlib logs whole tokens at DEBUG and
    any library or test may add a handler. A record without a secret keeps its arguments.
    """
    record = _plain_factory(*args, **kwargs)
    try:
        text = record.getMessage()
    except (TypeError, ValueError, KeyError) as error:  # A broken format string must not raise in the caller.
        text = f"{record.msg} (arguments do not fit: {type(error).__name__})"
        record.msg, record.args = redact(text), ()
        return record
    safe = redact(text)
    if safe is not text:
        record.msg, record.args = safe, ()
    if record.exc_info and record.exc_info[0] is not None:
        # logging.Formatter prints this cached text in place of its own.
        record.exc_text = redact(_traceback.formatException(record.exc_info))
    return record


class JsonFormatter(logging.Formatter):
    """One JSON object per line, in ASCII with escapes, with times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request_id = getattr(record, "request_id", None)
        if request_id is not None:
            entry["request_id"] = request_id
        trace = current_trace.get()
        if trace is not None:
            entry |= _ids_of(trace)
        if record.exc_text is None and record.exc_info:
            record.exc_text = redact(self.formatException(record.exc_info))
        if record.exc_text:
            entry["exception"] = record.exc_text
        return json.dumps(entry)


class _Stderr(logging.StreamHandler):
    """Writes to the current sys.stderr, which a test may have replaced."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure_logging(level: str) -> None:
    """Send all logs of the process to standard error as JSON, at ``level`` and above. May be called again."""
    logging.setLogRecordFactory(redacting_record)
    # Of Alembic's messages only those about a migration: it logs two more at every call.
    migrations = logging.getLogger("alembic.runtime.migration")
    migrations.filters = [lambda record: record.levelno > logging.INFO or record.msg.startswith("Running")]
    # It logs seven plugins at each command.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
    root = logging.getLogger()
    root.setLevel(level.upper())
    if not any(isinstance(handler, _Stderr) for handler in root.handlers):
        handler = _Stderr()
        handler.setFormatter(JsonFormatter())
        root.addHandler(handler)
