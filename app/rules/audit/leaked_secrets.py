"""Leak reports: secrets that somebody found where they should not be, in the form that secret scanners send."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from app.rules.fields import Findings, type_name
from app.rules.redaction import redact

MOST = 100
LONGEST_TOKEN = 8_192
"""A signed access token is longer than any other string of ours."""

_LONGEST_URL, _LONGEST_WORD = 500, 64
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/-]*")


@dataclass(frozen=True, slots=True)
class LeakReport:
    """One string that was found; ``url``, ``source`` and ``type`` are what the finder says, made harmless."""

    token: str
    url: str | None
    source: str | None
    type: str | None


def read_reports(sent: Any) -> tuple[LeakReport, ...]:
    """The reports in a body: an array of objects, or one of them. Raises InvalidInput naming every wrong field.

    Fields that are not known are left alone: the form is that of other people's scanners.
    """
    findings = Findings()
    items = sent if isinstance(sent, list) else [sent]
    if not 1 <= len(items) <= MOST:
        findings.add("", "out_of_range", f"Send 1 to {MOST} reports.")
        findings.raise_if_any()
    reports = [_report(findings, item, f"[{number}]") for number, item in enumerate(items)]
    findings.raise_if_any()
    return tuple(report for report in reports if report is not None)


def _report(findings: Findings, item: Any, place: str) -> LeakReport | None:
    if not isinstance(item, dict):
        findings.add(place, "wrong_type", f"This must be an object, not {type_name(item)}.")
        return None
    values = {}
    for name in ("token", "url", "source", "type"):
        value = item.get(name)
        if value is not None and not isinstance(value, str):
            message = f"This must be a string, not {type_name(value)}."
            findings.add(f"{place}.{name}", "wrong_type", message)
        values[name] = value
    if not values["token"]:
        findings.add(f"{place}.token", "required", "Send the string that was found.")
        return None
    if not isinstance(values["token"], str) or len(values["token"]) > LONGEST_TOKEN:
        # Too long to be one of ours: taken like every other string that is none.
        return LeakReport("", None, None, None)
    return LeakReport(
        values["token"].strip(), _address(values["url"]), _word(values["source"]), _word(values["type"])
    )


def _address(value: Any) -> str | None:
    """A web address without what may be secret in it; None for anything else."""
    if not isinstance(value, str) or len(value) > 4 * _LONGEST_URL or not value.isprintable():
        return None
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not host:
        return None
    authority = host if port is None else f"{host}:{port}"
    return redact(f"{parts.scheme}://{authority}{parts.path}")[:_LONGEST_URL]


def _word(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > _LONGEST_WORD or _WORD.fullmatch(value) is None:
        return None
    return redact(value)
