"""Traces: which distributed trace a request belongs to, for its log lines and, if it is set up, for OpenTelemetry.

A caller names the trace in the header ``traceparent`` (W3C Trace Context). ``app.web.telemetry`` replaces ``begin`` and
``query`` when OpenTelemetry is set up; otherwise they cost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)


class Trace:
    """The trace of the current request; ``span_id`` is None if the request is no span of it."""

    __slots__ = ("_token", "span_id", "trace_id")

    def __init__(self, trace_id: str, span_id: str | None = None) -> None:
        self.trace_id, self.span_id = trace_id, span_id
        self._token: Token[Trace | None] = current.set(self)

    def end(self, environ: WSGIEnvironment, status: str, request_id: str) -> None:
        """End the request. ``status`` are three digits."""
        current.reset(self._token)


current: ContextVar[Trace | None] = ContextVar("gatehouse trace", default=None)


def follow(environ: WSGIEnvironment) -> Trace | None:
    """Return the trace that the caller names, or None."""
    named = _TRACEPARENT.fullmatch(environ.get("HTTP_TRACEPARENT", ""))
    return None if named is None else Trace(named[1])


class Tracing:
    """What begins a trace at each request, and a span around each statement; None if nothing does."""

    def __init__(self) -> None:
        self.begin: Callable[[WSGIEnvironment], Trace] | None = None
        self.query: Callable[[str], AbstractContextManager[object]] | None = None


tracing = Tracing()
