"""Leak reports: the format in which secret scanners report secrets that were found in public."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from app.rules.fields import ValidationErrors, wrong_type
from app.rules.redaction import redact

MAX_REPORTS = 100
MAX_TOKEN_LENGTH = 8_192
"""Signed access tokens are the longest secrets of this server."""

_MAX_URL_LENGTH, _MAX_WORD_LENGTH = 500, 64
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/-]*")


class LeakReport(Struct, frozen=True):
    """A reported string. ``url``, ``source`` and ``type`` come from the reporter and are sanitized."""

    token: str
    url: str | None
    source: str | None
    type: str | None


def parse_leak_reports(sent: Any) -> tuple[LeakReport, ...]:
    """Parse a body with an array of reports or a single one. Raises InvalidInput naming every invalid field.

    Unknown fields are ignored, because the format belongs to the scanners.
    """
    errors = ValidationErrors()
    items = sent if isinstance(sent, list) else [sent]
    if not 1 <= len(items) <= MAX_REPORTS:
        errors.add("", "out_of_range", f"Send 1 to {MAX_REPORTS} reports.")
        errors.raise_if_any()
    reports = [_report(errors, item, f"[{number}]") for number, item in enumerate(items)]
    errors.raise_if_any()
    return tuple(report for report in reports if report is not None)


def _report(errors: ValidationErrors, item: Any, path: str) -> LeakReport | None:
    if not isinstance(item, dict):
        errors.add_problem(path, wrong_type("an object", item))
        return None
    values = {}
    for name in ("token", "url", "source", "type"):
        value = item.get(name)
        if value is not None and not isinstance(value, str):
            errors.add_problem(f"{path}.{name}", wrong_type("a string", value))
        values[name] = value
    if not values["token"]:
        errors.add(f"{path}.token", "required", "Send the string that was found.")
        return None
    if not isinstance(values["token"], str) or len(values["token"]) > MAX_TOKEN_LENGTH:
        # Too long to be a secret of this server. Accept it like any other unknown string.
        return LeakReport("", None, None, None)
    return LeakReport(
        values["token"].strip(),
        _sanitize_url(values["url"]),
        _sanitize_word(values["source"]),
        _sanitize_word(values["type"]),
    )


def _sanitize_url(value: Any) -> str | None:
    """Return the URL without parts that may be secret, or None if it is not a web URL."""
    if not isinstance(value, str) or len(value) > 4 * _MAX_URL_LENGTH or not value.isprintable():
        return None
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not host:
        return None
    authority = host if port is None else f"{host}:{port}"
    return redact(f"{parts.scheme}://{authority}{parts.path}")[:_MAX_URL_LENGTH]


def _sanitize_word(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > _MAX_WORD_LENGTH or _WORD.fullmatch(value) is None:
        return None
    return redact(value)
