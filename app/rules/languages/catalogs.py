"""Translation catalogs, compiled by ``script/translate`` and loaded on first use."""

from __future__ import annotations

import functools
from gettext import GNUTranslations, NullTranslations
from pathlib import Path

from app.rules.languages.choice import ENGLISH

FOLDER = Path(__file__).parents[2] / "translations"


@functools.cache
def catalog_of(language: str) -> NullTranslations:
    """Return the catalog of one of ``LANGUAGES``; English has an empty one because message IDs are English."""
    if language == ENGLISH:
        return NullTranslations()
    with (FOLDER / language / "LC_MESSAGES" / "messages.mo").open("rb") as file:
        return GNUTranslations(file)
