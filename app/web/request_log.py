"""Request IDs and the request log: one JSON line per request.

This is a WSGI middleware around Flask, so that responses that Flask's own hooks never see (400 for an unknown Host,
500) are logged too. A line costs about 10 microseconds. It contains the path without its query, which may carry codes
and tokens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, Any

from flask import Flask, has_request_context, request

from app.config import Config
from app.rules.identifiers import new_public_id
from app.rules.redaction import redact
from app.web.log_format import configure_logging

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ID = "gatehouse.request_id"
FACTS = "gatehouse.request_facts"
_MAX_PATH = 512


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
        started = time.perf_counter()

        def start(
            line: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], object]:
            nonlocal status
            status = line
            headers.append(("X-Request-Id", name))
            return start_response(line, headers, exc_info) if exc_info else start_response(line, headers)

        try:
            return self.application(environ, start)
        finally:
            if self.enabled:
                _write(environ, name, status[:3], (time.perf_counter() - started) * 1000)


def _write(environ: WSGIEnvironment, name: str, status: str, milliseconds: float) -> None:
    now = time.time()
    seconds = int(now)
    path = environ.get("PATH_INFO", "")
    if len(path) > _MAX_PATH:
        path = path[:_MAX_PATH] + "..."
    if "gth_" in path or "eyJ" in path:  # An invitation link, or a token pasted into the URL.
        path = redact(path)
    facts = environ.get(FACTS)
    extra = "".join(f',"{key}":{quoted(value)}' for key, value in facts.items() if value) if facts else ""
    sys.stderr.write(
        f'{{"time":"{_date(seconds)}.{int((now - seconds) * 1000):03d}Z","level":"info","logger":"gatehouse.request",'
        f'"request_id":"{name}","method":{quoted(environ["REQUEST_METHOD"][:16])},"path":{quoted(path)},'
        f'"status":{status},"duration_ms":{milliseconds:.2f}{extra}}}\n'
    )


_last_date = (0, "")


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
