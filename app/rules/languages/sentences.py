"""Messages that rules and operations raise in English and that pages show in the user's language.

Rules must not import Flask, so ``lazy_gettext`` only marks a message for extraction; ``translate`` looks it up later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self


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


def translate(text: str, gettext: Callable[[str], str]) -> str:
    """Translate the text with ``gettext``; a text that is in no catalog stays as it is."""
    if isinstance(text, TranslatableString):
        return gettext(text.msgid) % text.params
    return gettext(text) if text else text
