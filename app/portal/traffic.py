"""Traffic as the pages show it: periods, the chart of tokens, and trends."""

from __future__ import annotations

from datetime import datetime

from markupsafe import Markup
from msgspec import Struct

from app.operations.audit.usage import CredentialTraffic, Traffic
from app.portal.charts import CHART_HEIGHT, stacked_bars
from app.web.languages import gettext, lazy_gettext, number, short_day, translate


class Comparison(Struct, frozen=True):
    """How the page says that a figure was zero in the period before, is the same, or how it compares with it."""

    none: str
    same: str
    versus: str


class Period(Struct, frozen=True):
    """A period that a page can show: the value in the URL, its label, its length, and what its figures are of."""

    key: str
    label: str
    hours: int
    comparison: Comparison
    figures: str


PERIODS = (
    Period(
        "day",
        lazy_gettext("24 h"),
        24,
        Comparison(
            lazy_gettext("None the day before"),
            lazy_gettext("Same as the day before"),
            lazy_gettext("vs. the day before"),
        ),
        lazy_gettext("Figures of the last 24 h"),
    ),
    Period(
        "week",
        lazy_gettext("7 days"),
        7 * 24,
        Comparison(
            lazy_gettext("None the week before"),
            lazy_gettext("Same as the week before"),
            lazy_gettext("vs. the week before"),
        ),
        lazy_gettext("Figures of the last 7 days"),
    ),
    Period(
        "month",
        lazy_gettext("30 days"),
        30 * 24,
        Comparison(
            lazy_gettext("None the 30 days before"),
            lazy_gettext("Same as the 30 days before"),
            lazy_gettext("vs. the 30 days before"),
        ),
        lazy_gettext("Figures of the last 30 days"),
    ),
)
_LOW = 150
"""The height of a chart that is not the first of its page."""
SERIES = (
    ("c1", lazy_gettext("Sign-in")),
    ("c2", lazy_gettext("Refresh")),
    ("c3", lazy_gettext("Service")),
    ("warn", lazy_gettext("Exchange")),
    ("bad", lazy_gettext("Failed")),
)


class TrafficChart(Struct, frozen=True):
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
    # Translated once: each bar and each cell of the table names its series.
    series = tuple((SERIES[index][0], translate(SERIES[index][1])) for index in shown)
    rows = tuple(
        (_time_of(start, traffic.interval), tuple(parts[index] for index in shown)) for start, parts in values
    )
    is_hourly = traffic.interval == "hour"
    label = (
        gettext("Tokens and failed requests per hour")
        if is_hourly
        else gettext("Tokens and failed requests per day")
    )
    return _chart(label, series, rows)


def credential_chart(use: CredentialTraffic) -> TrafficChart | None:
    """Draw which secret the client used in each hour, or None if it used none. The oldest secret is at the bottom."""
    used = [credential for credential in reversed(use.credentials) if credential.total]
    if not used:
        return None
    classes = ("c1",) if len(used) == 1 else ("warn", "c1", "c2", "c3")
    series = tuple(
        (classes[min(index, len(classes) - 1)], credential.name or gettext("Signed with a key"))
        for index, credential in enumerate(used)
    )
    rows = tuple(
        (_time_of(hour, "hour"), tuple(credential.counts[index] for credential in used))
        for index, hour in enumerate(use.hours)
    )
    return _chart(gettext("Requests by secret per hour"), series, rows, _LOW)


def _chart(
    label: str,
    series: tuple[tuple[str, str], ...],
    rows: tuple[tuple[str, tuple[int, ...]], ...],
    height: int = CHART_HEIGHT,
) -> TrafficChart:
    bars = [(time, f"{time}: {_in_words(parts, series)}", parts) for time, parts in rows]
    return TrafficChart(stacked_bars(label, bars, [name for name, _ in series], height), series, rows)


def _in_words(parts: tuple[int, ...], series: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}: {number(count)}" for count, (_, name) in zip(parts, series, strict=True))


def _time_of(start: datetime, interval: str) -> str:
    return f"{start:%H:%M}" if interval == "hour" else short_day(start)
