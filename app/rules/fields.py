"""Fields: checks of single values that many documents share, and the collector of all wrong fields."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from app.rules.errors import FieldError, InvalidInput
from app.rules.languages.sentences import sentence


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one value: a stable code and the fix in words."""

    code: str
    message: str


class Findings:
    """The wrong fields of one request, one message each: the first that was found."""

    def __init__(self) -> None:
        self._errors: dict[str, FieldError] = {}

    def add(self, field: str, code: str, message: str) -> None:
        self._errors.setdefault(field, FieldError(field, code, message))

    def add_problem(self, field: str, problem: Problem | None) -> bool:
        """Note the problem, if there is one; say whether there was."""
        if problem is not None:
            self.add(field, problem.code, problem.message)
        return problem is not None

    def touches(self, field: str) -> bool:
        """Whether the field, or an item of it, is already wrong."""
        return any(name == field or name.startswith((f"{field}[", f"{field}.")) for name in self._errors)

    @property
    def errors(self) -> tuple[FieldError, ...]:
        return tuple(self._errors.values())

    def raise_if_any(self) -> None:
        if self._errors:
            raise InvalidInput.of(self._errors.values())


MOST_UNKNOWN = 20


def find_unknown(
    findings: Findings,
    sent: Iterable[str],
    known: Collection[str],
    *,
    synonyms: Mapping[str, str] | None = None,
    read_only: Collection[str] = (),
    noun: str = "field",
) -> None:
    """Note each name that is not known, with the name that was probably meant, and each that is read only.

    After MOST_UNKNOWN of them no more are told: a body of nothing else would cost more than it is worth.
    """
    unknown = 0
    for name in sent:
        if unknown >= MOST_UNKNOWN:
            return
        if name in read_only:
            findings.add(name, "read_only", "This is set by the service and cannot be sent.")
        elif name not in known:
            unknown += 1
            findings.add(
                name[:100], f"unknown_{noun}", f"There is no such {noun}.{suggestion(name, known, synonyms)}"
            )


def suggestion(name: str, known: Collection[str], synonyms: Mapping[str, str] | None = None) -> str:
    """`` Did you mean "redirect_uris"?``, or nothing when no known name is near."""
    meant = (synonyms or {}).get(name) or next(iter(get_close_matches(name[:100], known, 1, 0.6)), None)
    return f' Did you mean "{meant}"?' if meant else ""


def text_problem(value: Any, *, longest: int, shortest: int = 1, lines: bool = False) -> Problem | None:
    """What is wrong with a text that people will read, or None.

    Lengths are in characters. NFC, no control, bidirectional or invisible characters: two names that look the
    same must be the same. ``lines`` lets line feeds through.
    """
    if not isinstance(value, str):
        return Problem("wrong_type", sentence("This must be a string, not %(type)s.", type=type_name(value)))
    if len(value) > longest:
        return Problem(
            "too_long",
            sentence(
                "This has %(length)s characters; at most %(most)s are allowed.",
                length=len(value),
                most=longest,
            ),
        )
    if value != value.strip():
        return Problem("surrounding_space", "Remove the spaces at the beginning or the end.")
    if len(value) < shortest:
        return Problem(
            "too_short",
            sentence("This must not be empty.")
            if shortest == 1
            else sentence("At least %(least)s characters.", least=shortest),
        )
    if not unicodedata.is_normalized("NFC", value):
        return Problem("not_normalized", "Send this text in Unicode's composed form, NFC.")
    if any(_is_invisible(char) for char in value if not (lines and char == "\n")):
        return Problem("forbidden_character", "This holds a control, bidirectional or invisible character.")
    return None


def type_name(value: Any) -> str:
    """What JSON calls the value's type, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, (list, tuple)) else "an object"


def _is_invisible(char: str) -> bool:
    # Cc control, Cf format (bidirectional marks, zero width, tags), Cs surrogates, Co private use, Zl and Zp.
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
