"""Choosing the language of a page or an email."""

from __future__ import annotations

from collections.abc import Iterable

ENGLISH = "en"
LANGUAGES = (ENGLISH, "de")
"""Languages of the pages and emails for users. The portal is always in English."""
_RIGHT_TO_LEFT = frozenset({"ar", "fa", "he", "ur"})


def spoken(tag: object) -> str | None:
    """Return the supported language for a language tag (lookup by RFC 4647, section 3.4), or None."""
    if not isinstance(tag, str):
        return None
    language = tag.replace("_", "-").partition("-")[0].lower()
    return language if language in LANGUAGES else None


def first_spoken(tags: Iterable[object]) -> str | None:
    """Return the supported language of the first tag that has one; the most preferred tag comes first."""
    return next(filter(None, map(spoken, tags)), None)


def language_for(
    *, wished: Iterable[str] = (), own: object = None, accepted: Iterable[str] = (), default: object = None
) -> str:
    """Return the language of a page or an email.

    ``wished`` is ``ui_locales`` of the client's request, ``own`` the ``locale`` of the user's profile, ``accepted`` the
    browser's ``Accept-Language`` with the most preferred first, and ``default`` the organization's language.
    """
    return first_spoken([*wished, own, *accepted, default]) or ENGLISH


def direction_of(language: str) -> str:
    """Return ``ltr`` or ``rtl`` for the ``dir`` attribute of a page."""
    return "rtl" if language in _RIGHT_TO_LEFT else "ltr"
