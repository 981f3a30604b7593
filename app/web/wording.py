"""Template filters that format values: initials, dates, ages, durations and counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flask import Flask
from markupsafe import Markup, escape

from app.rules.languages.moments import (
    coming_span,
    count_of,
    day_of,
    exact_span,
    moment_of,
    past_span,
)
from app.web.languages import gettext, page_language

_LONG = timedelta(days=60)


def register(app: Flask) -> None:
    """Add the filters to the template environment."""
    for function in (initials, ago, until, day, moment, duration, counted):
        app.add_template_filter(function)


def initials(name: str | None) -> str:
    """Return the text of an avatar: ``Ac`` for Acme, ``CB`` for Calendar Bot."""
    words = (name or "").split()
    if not words:
        return "?"
    if len(words) == 1:
        return words[0][:1].upper() + words[0][1:2].lower()
    return (words[0][:1] + words[1][:1]).upper()


def ago(value: datetime | None, never: str = "never") -> Markup:
    """Format a past time as ``4 minutes ago`` with the exact time as its title; ``never`` for None."""
    if value is None:
        return escape(never)
    passed = datetime.now(UTC) - value
    if passed > _LONG:
        return _time(value, day_of(value, page_language()))
    is_now = passed < timedelta(seconds=5)
    return _time(value, gettext("just now") if is_now else past_span(passed, page_language()))


def until(value: datetime | None, never: str = "never") -> Markup:
    """Format an expiry as ``in 22 hours``, or how long ago it was; ``never`` for None."""
    if value is None:
        return escape(never)
    left = value - datetime.now(UTC)
    if left <= timedelta(0):
        return ago(value)
    language = page_language()
    return _time(value, day_of(value, language) if left > _LONG else coming_span(left, language))


def day(value: datetime | None, never: str = "never") -> Markup:
    """Format a date as ``21 Nov 2026``."""
    return escape(never) if value is None else _time(value, day_of(value, page_language()))


def moment(value: datetime | None, never: str = "never") -> Markup:
    """Format a time as ``21 Nov 2026, 14:02 UTC``."""
    return escape(never) if value is None else _time(value, moment_of(value, page_language()))


def duration(seconds: int | None, never: str = "forever") -> str:
    """Format seconds in the largest unit that divides them: ``1 day``, ``90 minutes``."""
    return never if seconds is None else exact_span(seconds, page_language())


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Format a count on pages that are only in English: ``1 client``, ``12 clients``, ``1,204 clients``."""
    return count_of(number, noun, plural)


def _time(value: datetime, text: str) -> Markup:
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        value.astimezone(UTC).isoformat(timespec="seconds"),
        moment_of(value, page_language(), seconds=True),
        text,
    )
