"""Dates, times and durations as text, in UTC or the time zone of the reader.

English is formatted here, with the day before the month. Other languages are formatted by Babel, which is imported on
first use.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from app.rules.languages.translation import ENGLISH

Unit = Literal["day", "hour", "minute", "second"]
_UNITS: tuple[tuple[int, Unit], ...] = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def time_zone_of(name: str | None) -> tzinfo:
    """Return the time zone with this IANA name; UTC for None and for a name that this system does not know."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def format_date(value: datetime, language: str = ENGLISH, zone: tzinfo = UTC) -> str:
    """Format a date as ``21 Nov 2026``."""
    value = value.astimezone(zone)
    if language == ENGLISH:
        return f"{value.day} {value:%b} {value.year}"
    from babel.dates import format_date

    return format_date(value, "d. MMM y", locale=language)


def format_short_date(value: datetime, language: str = ENGLISH) -> str:
    """Format a date without the year for charts, as ``21 Nov`` or ``21.11.``, in UTC."""
    value = value.astimezone(UTC)
    if language == ENGLISH:
        return f"{value.day} {value:%b}"
    from babel.dates import format_skeleton

    return format_skeleton("Md", value, locale=language)


def format_time(value: datetime, language: str = ENGLISH, zone: tzinfo = UTC) -> str:
    """Format a time as ``21 Nov 2026, 15:02 CET``."""
    value = value.astimezone(zone)
    return f"{format_date(value, language, zone)}, {value:%H:%M} {_short_name(value)}"


def format_exact_time(value: datetime, language: str = ENGLISH, zone: tzinfo = UTC) -> str:
    """Format a time with seconds and the name of the zone: ``21 Nov 2026, 15:02:07 Europe/Zurich``."""
    value = value.astimezone(zone)
    return f"{format_date(value, language, zone)}, {value:%H:%M:%S} {zone.key if isinstance(zone, ZoneInfo) else 'UTC'}"


def _short_name(value: datetime) -> str:
    """Return ``CET``, or ``UTC+03:00`` for a zone without letters."""
    name = value.tzname() or ""
    offset = f"{value:%z}"
    return name if name.isalpha() else f"UTC{offset[:3]}:{offset[3:5]}"


def format_long_time(value: datetime, language: str = ENGLISH) -> str:
    """Format a time as ``21 November 2026, 14:02 UTC``, for emails."""
    value = value.astimezone(UTC)
    if language == ENGLISH:
        return f"{value:%-d %B %Y, %H:%M} UTC"
    from babel.dates import format_date

    return f"{format_date(value, 'long', locale=language)}, {value:%H:%M} UTC"


def format_number(number: float, language: str = ENGLISH, decimals: int = 0) -> str:
    """Format a number with separators: ``1,204``, or ``1,204.5`` with one decimal."""
    text = f"{number:,.{decimals}f}"
    if language == ENGLISH:
        return text
    from babel.numbers import get_decimal_symbol, get_group_symbol

    marks = {",": get_group_symbol(language), ".": get_decimal_symbol(language)}
    return "".join(marks.get(letter, letter) for letter in text)


def format_duration(seconds: int, language: str = ENGLISH) -> str:
    """Format a duration in the largest unit that divides it: ``1 day``, ``90 minutes``."""
    for size, unit in _UNITS:
        if seconds % size == 0 and seconds >= size:
            return _units(seconds // size, unit, language)
    return _units(0, "second", language)


def format_rounded_duration(span: timedelta, *, rounded: bool = False) -> str:
    """Format a duration as ``22 hours`` in English; a remaining one is ``rounded``: a new day has 24 hours left."""
    return _units(*_rough(span, rounded=rounded), ENGLISH)


def format_elapsed(span: timedelta, language: str = ENGLISH) -> str:
    """Format a past duration as ``4 minutes ago``."""
    if language != ENGLISH:
        return _directed(-1, span, language, rounded=False)
    return f"{format_rounded_duration(span)} ago"


def format_remaining(span: timedelta, language: str = ENGLISH) -> str:
    """Format a remaining duration as ``in 22 hours``."""
    if language != ENGLISH:
        return _directed(1, span, language, rounded=True)
    return f"in {format_rounded_duration(span, rounded=True)}"


class Elapsed(str):
    """A duration as ``22 hours``, or ``22 hours ago`` if it ``is_past``, which other languages say in their words."""

    __slots__ = ("is_past", "span")
    is_past: bool
    span: timedelta

    def __new__(cls, span: timedelta, is_past: bool = False) -> Self:
        is_now = is_past and span < timedelta(seconds=1)
        made = super().__new__(
            cls, "just now" if is_now else format_elapsed(span) if is_past else format_rounded_duration(span)
        )
        made.is_past, made.span = is_past, span
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.span, self.is_past)

    def in_language(self, language: str) -> str:
        """Return the text in the language."""
        if self.is_past:
            return format_elapsed(self.span, language)
        return _units(*_rough(self.span, rounded=False), language)


def _rough(span: timedelta, *, rounded: bool) -> tuple[int, Unit]:
    seconds = max(1, int(span.total_seconds()))
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return (seconds + (size // 2 if rounded else 0)) // size, unit


def _directed(sign: int, span: timedelta, language: str, *, rounded: bool) -> str:
    """Format a duration relative to now with the right grammatical case: ``vor 3 Tagen``, ``in 3 Tagen``."""
    from babel.dates import format_timedelta

    number, unit = _rough(span, rounded=rounded)
    exact = timedelta(**{f"{unit}s": sign * number})
    return format_timedelta(exact, granularity=unit, threshold=1e9, add_direction=True, locale=language)


def _units(number: int, unit: str, language: str) -> str:
    if language == ENGLISH:
        return f"{number:,} {unit}{'s' * (number != 1)}"
    from babel.units import format_unit

    return format_unit(number, f"duration-{unit}", locale=language)
