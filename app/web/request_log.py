"""Request ids and the request log: every answer names its request, and every request is one JSON line.

A WSGI layer around Flask, so that answers Flask never sees the inside of (400 for a foreign Host, 500) have
their line too. The line costs about 10 microseconds; it holds the path without its query, since codes and
tokens travel there.
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
_LONGEST_PATH = 512


def request_id() -> str | None:
    """The id of the request that is being answered, ``req_…``; None outside one."""
    return request.environ.get(ID) if has_request_context() else None


def note(**facts: str | None) -> None:
    """Add to this request's line who asked: ``organization``, ``client`` or ``actor``. Public ids alone."""
    request.environ.setdefault(FACTS, {}).update(facts)


class RequestLog:
    """The WSGI application with ids on every answer and, when ``enabled``, a line for every request."""

    def __init__(self, application: WSGIApplication, enabled: bool = True) -> None:
        self.application = application
        self.enabled = enabled

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        # Always our own: a caller's id would let one log line pretend to be another's.
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
    if len(path) > _LONGEST_PATH:
        path = path[:_LONGEST_PATH] + "..."
    if "gth_" in path or "eyJ" in path:  # An invitation's link, a token pasted into an address bar.
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
    """The second as RFC 3339 has it; formatted once a second."""
    global _last_date
    known, text = _last_date
    if known != seconds:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        _last_date = (seconds, text)
    return text


def register(app: Flask) -> None:
    """Every answer has ``X-Request-Id``, every request a line unless switched off; logs are JSON without secrets."""
    config: Config = app.config["GATEHOUSE"]
    configure_logging(config.log_level)
    app.wsgi_app = RequestLog(app.wsgi_app, config.request_log)  # type: ignore[method-assign]
