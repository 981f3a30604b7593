"""Traffic as the pages show it: periods, the chart of tokens, and trends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from app.operations.audit.usage import CredentialTraffic, Traffic
from app.portal.charts import stacked_bars


@dataclass(frozen=True, slots=True)
class Period:
    """A period that a page can show: the value in the URL, the label of its link, and its length."""

    key: str
    label: str
    hours: int
    previous: str


PERIODS = (
    Period("day", "24 h", 24, "the day before"),
    Period("week", "7 days", 7 * 24, "the week before"),
    Period("month", "30 days", 30 * 24, "the 30 days before"),
)
SERIES = (("c1", "Sign-in"), ("c2", "Refresh"), ("c3", "Service"), ("warn", "Exchange"), ("bad", "Failed"))


@dataclass(frozen=True, slots=True)
class TrafficChart:
    """The chart of tokens by grant and of failed requests, with its legend and rows of the table."""

    svg: Markup
    series: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]


def traffic_chart(traffic: Traffic) -> TrafficChart:
    """Draw the buckets of the period. Token exchange is left out unless it is used."""
    values = [
        (bucket.start, (bucket.sign_in, bucket.refresh, bucket.service, bucket.exchange, bucket.failed))
        for bucket in traffic.buckets
    ]
    shown = [index for index in range(len(SERIES)) if index != 3 or any(parts[3] for _, parts in values)]
    series = tuple(SERIES[index] for index in shown)
    rows = tuple(
        (_time_of(start, traffic.interval), tuple(parts[index] for index in shown)) for start, parts in values
    )
    return _chart(f"Tokens and failed requests per {traffic.interval}", series, rows)


def credential_chart(use: CredentialTraffic) -> TrafficChart | None:
    """Draw which secret the client used in each hour, or None if it used none. The oldest secret is at the bottom."""
    used = [credential for credential in reversed(use.credentials) if credential.total]
    if not used:
        return None
    classes = ("c1",) if len(used) == 1 else ("warn", "c1", "c2", "c3")
    series = tuple(
        (classes[min(index, len(classes) - 1)], credential.name or "Signed with a key")
        for index, credential in enumerate(used)
    )
    rows = tuple(
        (_time_of(hour, "hour"), tuple(credential.counts[index] for credential in used))
        for index, hour in enumerate(use.hours)
    )
    return _chart("Requests by secret per hour", series, rows)


def _chart(
    label: str, series: tuple[tuple[str, str], ...], rows: tuple[tuple[str, tuple[int, ...]], ...]
) -> TrafficChart:
    bars = [(time, f"{time}: {_in_words(parts, series)}", parts) for time, parts in rows]
    return TrafficChart(stacked_bars(label, bars, [name for name, _ in series]), series, rows)


def _in_words(parts: tuple[int, ...], series: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}: {count:,}" for count, (_, name) in zip(parts, series, strict=True))


def _time_of(start: datetime, interval: str) -> str:
    return f"{start:%H:%M}" if interval == "hour" else f"{start.day} {start:%b}"
