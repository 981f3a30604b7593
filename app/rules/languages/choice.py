"""Which language somebody is spoken to in."""

from __future__ import annotations

from collections.abc import Iterable

ENGLISH = "en"
LANGUAGES = (ENGLISH, "de")
"""Spoken on the pages and in the mails that people meet. The portal is English as a whole."""
_RIGHT_TO_LEFT = frozenset({"ar", "fa", "he", "ur"})


def spoken(tag: object) -> str | None:
    """The language of ours that a tag means (RFC 4647 section 3.4: what is more precise is cut off), or None."""
    if not isinstance(tag, str):
        return None
    language = tag.replace("_", "-").partition("-")[0].lower()
    return language if language in LANGUAGES else None


def first_spoken(tags: Iterable[object]) -> str | None:
    """The first of the tags, most wanted first, that means a language of ours."""
    return next(filter(None, map(spoken, tags)), None)


def language_for(
    *, wished: Iterable[str] = (), own: object = None, accepted: Iterable[str] = (), default: object = None
) -> str:
    """The language of a page or mail.

    ``wished`` is ``ui_locales`` of the app's request, which knows what its person reads; ``own`` the ``locale`` of
    the person's profile; ``accepted`` what the browser says, most wanted first; ``default`` the organization's.
    """
    return first_spoken([*wished, own, *accepted, default]) or ENGLISH


def direction_of(language: str) -> str:
    """``ltr`` or ``rtl``, for the ``dir`` of a page."""
    return "rtl" if language in _RIGHT_TO_LEFT else "ltr"
