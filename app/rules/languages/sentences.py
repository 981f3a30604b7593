"""Sentences for people that a rule or operation says in English, and a page says again in the person's language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self


class Sentence(str):
    """An English sentence that remembers what it was made of, so that it can be said in another language.

    Programs read it as the text that it is. One without parameters needs none of this: it is looked up as it stands.
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


def sentence(msgid: str, **params: Any) -> str:
    """The sentence with its parameters, written ``%(name)s``; the catalogs of other languages hold the ``msgid``."""
    return Sentence(msgid, params) if params else msgid


def said(text: str, gettext: Callable[[str], str]) -> str:
    """The text in the language of ``gettext``; what no catalog knows stays as it is."""
    if isinstance(text, Sentence):
        return gettext(text.msgid) % text.params
    return gettext(text) if text else text
