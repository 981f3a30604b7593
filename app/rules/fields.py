"""Field errors: collect everything that is wrong with a request, and check single texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from app.rules.errors import FieldError, InvalidInput
from app.rules.languages.translation import lazy_gettext, lazy_value

# After this many unknown fields the rest is not reported: a body full of them would be expensive to answer.
MAX_UNKNOWN = 20
MAX_MARKS = 6
"""Marks on one character, more than any language stacks."""
# Cc: control, Cf: format (bidirectional marks, zero width, tags), Cs: surrogates, Co: private use, Cn: unassigned,
# Zl and Zp: line and paragraph separators.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters, marks and symbols that are drawn as nothing: the grapheme joiner, fillers, Khmer inherent vowels, and the
# blank of Braille.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_EMOJI_JOINER = "\u200d"
_JOINERS = frozenset(f"\u200c{_EMOJI_JOINER}")
# The first words of the names of characters in scripts that use joiners.
_JOINING = (
    "ARABIC ", "SYRIAC ", "DEVANAGARI ", "BENGALI ", "GURMUKHI ", "GUJARATI ", "ORIYA ", "TAMIL ", "TELUGU ",
    "KANNADA ", "MALAYALAM ", "SINHALA ", "MYANMAR ", "KHMER ",
)  # fmt: skip


class FieldProblem(Struct, frozen=True):
    """A problem with one value: a stable code, and a message that says how to fix it."""

    code: str
    message: str

    def at(self, field: str) -> FieldError:
        """Return the problem as the error of a field."""
        return FieldError(field, self.code, self.message)


class ValidationErrors:
    """The invalid fields of one request, with the first error found for each."""

    def __init__(self) -> None:
        self._errors: dict[str, FieldError] = {}

    def add(self, field: str, code: str, message: str) -> None:
        """Add an error, unless the field already has one."""
        self._errors.setdefault(field, FieldError(field, code, message))

    def add_problem(self, field: str, problem: FieldProblem | None) -> bool:
        """Add the problem, if there is one, and return whether there was."""
        if problem is not None:
            self.add(field, problem.code, problem.message)
        return problem is not None

    def add_choice(self, field: str, value: object, allowed: Collection[str]) -> None:
        """Add an error unless the value is one of those allowed."""
        self.add_problem(field, choice_problem(value, allowed))

    def has_error(self, field: str) -> bool:
        """Return whether the field, or something inside it, is invalid."""
        return any(name == field or name.startswith((f"{field}[", f"{field}.")) for name in self._errors)

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """All errors, in the order in which they were found."""
        return tuple(self._errors.values())

    def raise_if_any(self) -> None:
        """Raise InvalidInput with every error."""
        if self._errors:
            raise InvalidInput.of(self._errors.values())


def find_unknown(
    errors: ValidationErrors,
    sent: Iterable[str],
    known: Collection[str],
    *,
    synonyms: Mapping[str, str] | None = None,
    noun: str = "field",
) -> None:
    """Add an error for each unknown name, with a suggestion."""
    unknown = 0
    for name in sent:
        if unknown >= MAX_UNKNOWN:
            return
        if name not in known:
            unknown += 1
            errors.add(
                name[:100], f"unknown_{noun}", f"There is no such {noun}.{suggestion(name, known, synonyms)}"
            )


def suggestion(name: str, known: Collection[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Return `` Did you mean "redirect_uris"?``, or nothing if no known name is similar."""
    meant = (synonyms or {}).get(name.lower()) or next(
        iter(get_close_matches(name[:100], known, 1, 0.6)), None
    )
    return f' Did you mean "{meant}"?' if meant else ""


def text_problem(
    value: Any, *, max_length: int, min_length: int = 1, multiline: bool = False
) -> FieldProblem | None:
    """Return what is wrong with a text for display, or None.

    Lengths are in characters. The text must be in NFC and without control, bidirectional and invisible
    characters, because two names that look the same must be the same, and without stacks of marks, which cover the
    words around them. ``multiline`` allows line feeds.
    """
    if not isinstance(value, str):
        return wrong_type("a string", value)
    if len(value) > max_length:
        return FieldProblem(
            "too_long",
            lazy_gettext(
                "Use at most %(most)s characters. This has %(length)s.",
                length=len(value),
                most=max_length,
            ),
        )
    if value != value.strip():
        return FieldProblem("surrounding_space", "Remove the spaces at the beginning or the end.")
    if len(value) < min_length:
        return FieldProblem(
            "too_short",
            lazy_gettext("This must not be empty.")
            if min_length == 1
            else lazy_gettext("Use at least %(least)s characters.", least=min_length),
        )
    if not unicodedata.is_normalized("NFC", value):
        return FieldProblem("not_normalized", "Send this text in Unicode's composed form, NFC.")
    if has_invisible_character(value.replace("\n", "") if multiline else value):
        return FieldProblem("forbidden_character", "Remove control, bidirectional and invisible characters.")
    if _has_stacked_marks(value):
        return FieldProblem("forbidden_character", "Use fewer accents or marks on one character.")
    return None


def choice_problem(value: object, allowed: Collection[str]) -> FieldProblem | None:
    """Return what is wrong with a value that is not one of those allowed, or None."""
    if value in allowed:
        return None
    message = lazy_gettext("This must be one of: %(choices)s.", choices=", ".join(allowed))
    return FieldProblem("not_allowed", message)


def wrong_type(valid: str, value: Any) -> FieldProblem:
    """Return what is wrong with a value of another JSON type; values are never converted. ``valid`` has an article."""
    message = lazy_gettext(
        "This must be %(valid)s, not %(value)s.", valid=lazy_value(valid), value=type_name(value)
    )
    return FieldProblem("wrong_type", message)


def type_name(value: Any) -> str:
    """Return the JSON name of the value's type, with its article."""
    if value is None:
        return lazy_value("null")
    if isinstance(value, bool):
        return lazy_value("a boolean")
    if isinstance(value, (int, float)):
        return lazy_value("a number")
    if isinstance(value, str):
        return lazy_value("a string")
    return lazy_value("an array") if isinstance(value, (list, tuple)) else lazy_value("an object")


def has_invisible_character(text: str) -> bool:
    """Return whether the text has a character that cannot be seen, reorders the others or breaks the line.

    Variation selectors are allowed where they choose the form of an emoji, an ideograph or a Mongolian letter, joiners
    within emojis and words of scripts that are not written without them, such as Persian and Sinhala.
    """
    if text.isascii():
        return not text.isprintable()
    return any(
        not _is_joined(before, char, after)
        if char in _JOINERS
        else char in _BLANK
        or _is_stray_selector(before, char)
        or unicodedata.category(char) in _INVISIBLE_CATEGORIES
        for before, char, after in zip(f" {text}", text, f"{text[1:]} ", strict=False)
    )


def _is_joined(before: str, joiner: str, after: str) -> bool:
    if joiner == _EMOJI_JOINER and (before == "\ufe0f" or _is_emoji(before)):
        return _is_emoji(after)
    return all(unicodedata.name(char, "").startswith(_JOINING) for char in (before, after))


def _is_stray_selector(before: str, char: str) -> bool:
    name = unicodedata.name(char, "")
    if name.startswith("MONGOLIAN FREE VARIATION SELECTOR "):
        return not unicodedata.name(before, "").startswith("MONGOLIAN LETTER ")
    if not name.startswith("VARIATION SELECTOR-"):
        return False
    # The first 16 choose between the text and the picture of an emoji, the others between forms of an ideograph.
    is_for_emoji = char <= "\ufe0f"
    return not (
        _is_emoji(before) if is_for_emoji else unicodedata.name(before, "").startswith("CJK UNIFIED ")
    )


def _is_emoji(char: str) -> bool:
    # Wide characters are emojis too, such as skin tones, but most are letters of East Asian scripts.
    category = unicodedata.category(char)
    return category == "So" or (unicodedata.east_asian_width(char) == "W" and category[0] in "SP")


def _has_stacked_marks(text: str) -> bool:
    run = 0
    for char in text:
        run = run + 1 if unicodedata.category(char) in {"Mn", "Me"} else 0
        if run > MAX_MARKS:
            return True
    return False
