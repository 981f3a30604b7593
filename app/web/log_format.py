"""Logs: one JSON object per line, with secrets removed before any handler sees them (LG-1, LG-2, LG-3)."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from app.rules.redaction import redact

_plain_factory = logging.LogRecord


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


_traceback = logging.Formatter()


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
