"""Translation of messages, and the choice of the language of a page or an email."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from gettext import GNUTranslations, NullTranslations
from pathlib import Path
from typing import Any, Self

FOLDER = Path(__file__).parents[2] / "translations"
ENGLISH = "en"
LANGUAGES = (ENGLISH, "de")
"""Languages of the pages and emails."""
_RIGHT_TO_LEFT = frozenset({"ar", "fa", "he", "ur"})


@functools.cache
def catalog_of(language: str) -> NullTranslations:
    """Return the catalog of one of ``LANGUAGES``; English has an empty one because message IDs are English."""
    if language == ENGLISH:
        return NullTranslations()
    with (FOLDER / language / "LC_MESSAGES" / "messages.mo").open("rb") as file:
        return GNUTranslations(file)


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


class TranslatableString(str):
    """An English message that remembers its message id and parameters.

    It behaves like the English text. A message without parameters is an ordinary ``str``: its text is the message id.
    """

    __slots__ = ("msgid", "params")
    msgid: str
    params: dict[str, Any]

    def __new__(cls, msgid: str, params: dict[str, Any]) -> Self:
        made = super().__new__(cls, msgid % params)
        made.msgid, made.params = msgid, params
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msgid, self.params)


def lazy_gettext(msgid: str, **params: Any) -> str:
    """Mark a message for translation; its parameters are written ``%(name)s``."""
    return TranslatableString(msgid, params) if params else msgid


def lazy_value(msgid: str) -> str:
    """Mark a message that is a parameter of others."""
    return TranslatableString(msgid, {})


def translate(text: str, gettext: Callable[[str], str], language: str = ENGLISH) -> str:
    """Translate the text with ``gettext``; a text that is in no catalog stays as it is.

    Parameters that are messages or durations (``dates.Elapsed``) are translated too.
    """
    if isinstance(text, TranslatableString):
        params = {name: translate_value(value, gettext, language) for name, value in text.params.items()}
        return gettext(text.msgid) % params
    return gettext(text) if text else text


def translate_value(value: Any, gettext: Callable[[str], str], language: str = ENGLISH) -> Any:
    """Translate a message or a duration; any other value, such as the name of a client, stays as it is."""
    if isinstance(value, TranslatableString):
        return translate(value, gettext, language)
    tell: Callable[[str], str] | None = getattr(value, "in_language", None)
    return tell(language) if tell is not None else value


def lazy_ngettext(singular: str, plural: str) -> tuple[str, str]:
    """Mark a message with a number for translation; ``%(num)s`` is the number."""
    return singular, plural


COUNTS: dict[str, tuple[str, str]] = {
    "access token": lazy_ngettext("%(num)s access token", "%(num)s access tokens"),
    "active access token": lazy_ngettext("%(num)s active access token", "%(num)s active access tokens"),
    "active secret": lazy_ngettext("%(num)s active secret", "%(num)s active secrets"),
    "active session": lazy_ngettext("%(num)s active session", "%(num)s active sessions"),
    "active token": lazy_ngettext("%(num)s active token", "%(num)s active tokens"),
    "authorization code": lazy_ngettext("%(num)s authorization code", "%(num)s authorization codes"),
    "API": lazy_ngettext("%(num)s API", "%(num)s APIs"),
    "client": lazy_ngettext("%(num)s client", "%(num)s clients"),
    "connected app": lazy_ngettext("%(num)s connected app", "%(num)s connected apps"),
    "consent": lazy_ngettext("%(num)s consent", "%(num)s consents"),
    "day": lazy_ngettext("%(num)s day", "%(num)s days"),
    "failed request": lazy_ngettext("%(num)s failed request", "%(num)s failed requests"),
    "grant": lazy_ngettext("%(num)s grant", "%(num)s grants"),
    "member": lazy_ngettext("%(num)s member", "%(num)s members"),
    "open access request": lazy_ngettext("%(num)s open access request", "%(num)s open access requests"),
    "open client request": lazy_ngettext("%(num)s open client request", "%(num)s open client requests"),
    "organization": lazy_ngettext("%(num)s organization", "%(num)s organizations"),
    "other session": lazy_ngettext("%(num)s other session", "%(num)s other sessions"),
    "pending sign-up": lazy_ngettext("%(num)s pending sign-up", "%(num)s pending sign-ups"),
    "permission": lazy_ngettext("%(num)s permission", "%(num)s permissions"),
    "recovery code": lazy_ngettext("%(num)s recovery code", "%(num)s recovery codes"),
    "refresh token": lazy_ngettext("%(num)s refresh token", "%(num)s refresh tokens"),
    "row": lazy_ngettext("%(num)s row", "%(num)s rows"),
    "scope": lazy_ngettext("%(num)s scope", "%(num)s scopes"),
    "secret": lazy_ngettext("%(num)s secret", "%(num)s secrets"),
    "session": lazy_ngettext("%(num)s session", "%(num)s sessions"),
    "setting": lazy_ngettext("%(num)s setting", "%(num)s settings"),
    "time": lazy_ngettext("%(num)s time", "%(num)s times"),
    "token": lazy_ngettext("%(num)s token", "%(num)s tokens"),
    "user": lazy_ngettext("%(num)s user", "%(num)s users"),
    "verification method": lazy_ngettext("%(num)s verification method", "%(num)s verification methods"),
}
