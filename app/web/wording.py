"""How values read on a page: initials, days, ages and durations, as filters of every template."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flask import Flask
from markupsafe import Markup, escape

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def register(app: Flask) -> None:
    """The filters ``initials``, ``ago``, ``until``, ``day``, ``moment``, ``duration`` and ``counted`` stand."""
    for function in (initials, ago, until, day, moment, duration, counted):
        app.add_template_filter(function)


def initials(name: str | None) -> str:
    """``Ac`` for Acme, ``CB`` for Calendar Bot: what an avatar shows."""
    words = (name or "").split()
    if not words:
        return "?"
    if len(words) == 1:
        return words[0][:1].upper() + words[0][1:2].lower()
    return (words[0][:1] + words[1][:1]).upper()


def ago(value: datetime | None, never: str = "never") -> Markup:
    """``4 minutes ago``, with the exact time as its title; ``never`` where there is none."""
    if value is None:
        return escape(never)
    passed = datetime.now(UTC) - value
    if passed > timedelta(days=60):
        return _time(value, _day(value))
    return _time(value, f"{_rough(passed)} ago" if passed >= timedelta(seconds=5) else "just now")


def until(value: datetime | None, never: str = "never") -> Markup:
    """``in 22 hours``, or how long ago it ended; ``never`` where there is no end."""
    if value is None:
        return escape(never)
    left = value - datetime.now(UTC)
    if left <= timedelta(0):
        return ago(value)
    return _time(value, _day(value) if left > timedelta(days=60) else f"in {_rough(left, rounded=True)}")


def day(value: datetime | None, never: str = "never") -> Markup:
    """``21 Nov 2026``."""
    return escape(never) if value is None else _time(value, _day(value))


def moment(value: datetime | None, never: str = "never") -> Markup:
    """``21 Nov 2026, 14:02 UTC``."""
    if value is None:
        return escape(never)
    return _time(value, f"{_day(value)}, {value.astimezone(UTC):%H:%M} UTC")


def duration(seconds: int | None, never: str = "for ever") -> str:
    """``1 day``, ``90 minutes``: the largest unit that divides the seconds."""
    if seconds is None:
        return never
    for size, unit in _UNITS:
        if seconds % size == 0 and seconds >= size:
            return counted(seconds // size, unit)
    return "0 seconds"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 client``, ``12 clients``, ``1,204 clients``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _rough(span: timedelta, *, rounded: bool = False) -> str:
    # What is to come is rounded: a day that has just begun has 24 hours left, not 23.
    seconds = int(span.total_seconds())
    for size, unit in _UNITS:
        if seconds >= size:
            return counted((seconds + (size // 2 if rounded else 0)) // size, unit)
    return "a second"


def _day(value: datetime) -> str:
    value = value.astimezone(UTC)
    return f"{value.day} {value:%b} {value.year}"


def _time(value: datetime, text: str) -> Markup:
    exact = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(timespec="seconds"), f"{_day(value)}, {exact:%H:%M:%S} UTC", text
    )
