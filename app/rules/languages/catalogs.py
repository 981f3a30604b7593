"""Catalogs: what the sentences are in the languages that we speak. ``script/translate`` makes them.

They are read at the first sentence that somebody wants in another language, once a process.
"""

from __future__ import annotations

import functools
from gettext import GNUTranslations, NullTranslations
from pathlib import Path

from app.rules.languages.choice import ENGLISH

FOLDER = Path(__file__).parents[2] / "translations"


@functools.cache
def catalog_of(language: str) -> NullTranslations:
    """The catalog of one of ``LANGUAGES``; that of English is empty, for the sentences are English themselves."""
    if language == ENGLISH:
        return NullTranslations()
    with (FOLDER / language / "LC_MESSAGES" / "messages.mo").open("rb") as file:
        return GNUTranslations(file)
