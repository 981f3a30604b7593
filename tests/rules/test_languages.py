"""Choosing a language, and translating messages and times."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

from app.rules.languages import dates
from app.rules.languages.translation import (
    LANGUAGES,
    catalog_of,
    direction_of,
    language_for,
    lazy_gettext,
    spoken,
    translate,
)
from tests.support.cases import each

GERMAN = {"Use at least %(least)s characters.": "Mindestens %(least)s Zeichen.", "Saved.": "Gespeichert."}


@each(
    ("tag", "language"),
    [
        ("de", "de"), ("de-CH", "de"), ("DE_at", "de"), ("en-GB", "en"), ("fr", None), ("", None), ("*", None),
        (None, None), ("deu", None), ("de-Latn-AT-1996", "de"),
    ],
)  # fmt: skip
def test_language_tag_maps_to_a_supported_language(tag: object, language: str | None) -> None:
    assert spoken(tag) == language


@each(
    ("known", "language"),
    [
        ({"wished": ["fr", "de-CH"], "own": "en", "accepted": ["en"], "default": "en"}, "de"),
        ({"wished": ["fr"], "own": "de-AT", "accepted": ["en"], "default": "en"}, "de"),
        ({"own": "fr", "accepted": ["it", "de"], "default": "en"}, "de"),
        ({"own": None, "accepted": ["it"], "default": "de"}, "de"),
        ({"accepted": ["en-US", "de"], "default": "de"}, "en"),
        ({"default": "fr"}, "en"),
        ({}, "en"),
    ],
)
def test_first_supported_language_is_chosen(known: dict[str, Any], language: str) -> None:
    assert language_for(**known) == language


def test_direction_follows_the_language() -> None:
    assert {direction_of(language) for language in LANGUAGES} == {"ltr"}
    assert direction_of("ar") == "rtl"


def test_translatable_string_is_english_and_can_be_translated() -> None:
    told = lazy_gettext("Use at least %(least)s characters.", least=12)
    assert told == "Use at least 12 characters."
    assert translate(told, lambda text: GERMAN.get(text, text)) == "Mindestens 12 Zeichen."
    assert translate("Saved.", lambda text: GERMAN.get(text, text)) == "Gespeichert."
    assert translate("100 % of it", lambda text: GERMAN.get(text, text)) == "100 % of it"
    assert translate("", lambda text: "the header of a catalog") == ""
    copied = pickle.loads(pickle.dumps(told))  # noqa: S301 - made a line above
    assert translate(copied, lambda text: GERMAN.get(text, text)) == "Mindestens 12 Zeichen."


def test_times_are_formatted_in_the_language() -> None:
    then = datetime(2026, 3, 5, 14, 2, 9, tzinfo=UTC)
    assert dates.format_time(then) == "5 Mar 2026, 14:02 UTC"
    assert dates.format_exact_time(then, "de") == "5. März 2026, 14:02:09 UTC"
    assert dates.format_long_time(then) == "5 March 2026, 14:02 UTC"
    assert dates.format_long_time(then, "de") == "5. März 2026, 14:02 UTC"
    assert dates.format_elapsed(timedelta(days=3)) == "3 days ago"
    assert dates.format_elapsed(timedelta(days=3), "de") == "vor 3 Tagen"
    assert dates.format_remaining(timedelta(hours=21, minutes=40)) == "in 22 hours"
    assert dates.format_remaining(timedelta(hours=21, minutes=40), "de") == "in 22 Stunden"
    assert (dates.format_duration(5400), dates.format_duration(0)) == ("90 minutes", "0 seconds")
    assert (dates.format_duration(60, "de"), dates.format_duration(86_400 * 30, "de")) == (
        "1 Minute",
        "30 Tage",
    )


@each(
    ("zone", "day", "moment", "exact"),
    [
        ("Europe/Zurich", "6 Mar 2026", "6 Mar 2026, 00:02 CET", "6 Mar 2026, 00:02:09 Europe/Zurich"),
        (
            "America/Sao_Paulo",
            "5 Mar 2026",
            "5 Mar 2026, 20:02 UTC-03:00",
            "5 Mar 2026, 20:02:09 America/Sao_Paulo",
        ),
        ("Nowhere/At-all", "5 Mar 2026", "5 Mar 2026, 23:02 UTC", "5 Mar 2026, 23:02:09 UTC"),
        ("../etc/passwd", "5 Mar 2026", "5 Mar 2026, 23:02 UTC", "5 Mar 2026, 23:02:09 UTC"),
        (None, "5 Mar 2026", "5 Mar 2026, 23:02 UTC", "5 Mar 2026, 23:02:09 UTC"),
    ],
)
def test_time_is_formatted_in_the_time_zone_of_the_reader(
    zone: str | None, day: str, moment: str, exact: str
) -> None:
    then = datetime(2026, 3, 5, 23, 2, 9, tzinfo=UTC)
    found = dates.time_zone_of(zone)
    assert dates.format_date(then, zone=found) == day
    assert dates.format_time(then, zone=found) == moment
    assert dates.format_exact_time(then, zone=found) == exact


def test_durations_and_messages_inside_message_are_translated() -> None:
    text = lazy_gettext(
        "Used %(ago)s%(origin)s. Still needed.",
        ago=dates.Elapsed(timedelta(minutes=3), is_past=True),
        origin=lazy_gettext(" from %(count)s IP addresses", count="2"),
    )
    assert text == "Used 3 minutes ago from 2 IP addresses. Still needed."
    german = translate(text, catalog_of("de").gettext, "de")
    assert german == "Verwendet vor 3 Minuten von 2 IP-Adressen aus. Wird noch gebraucht."
