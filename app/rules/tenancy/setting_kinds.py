"""Kinds of settings: what a value of each must be, why another is wrong, and the same said as JSON Schema."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.rules.errors import FieldError
from app.rules.fields import suggestion, text_problem, type_name
from app.rules.people.emails import is_email
from app.rules.people.permissions import ALL_PERMISSIONS, ROOT_ONLY, is_permission_name

_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])"
)
_HTTPS = re.compile(r"https://[^\s\"'<>\\^`{|}@\x00-\x20]{1,500}")


def wrong_type(path: str, wanted: str, value: Any) -> FieldError:
    """The field error for a value of another JSON type; nothing is ever coerced."""
    return FieldError(path, "wrong_type", f"Must be {wanted}, not {type_name(value)}.")


@dataclass(frozen=True, slots=True)
class Kind(ABC):
    """What a setting may hold. ``null`` never reaches ``check``: it stands for the default."""

    @abstractmethod
    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        """Every reason why the value is wrong."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema 2020-12."""


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """true or false."""

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, bool):
            yield wrong_type(path, "true or false", value)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """An integer within bounds, both included."""

    minimum: int
    maximum: int

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, bool) or not isinstance(value, int):
            yield wrong_type(path, "an integer", value)
        elif not self.minimum <= value <= self.maximum:
            code = "too_small" if value < self.minimum else "too_large"
            yield FieldError(path, code, f"Must be {self.minimum} to {self.maximum}.")

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, str):
            yield wrong_type(path, "a string", value)
        elif value not in self.words:
            yield FieldError(path, "not_allowed", f"Must be one of: {', '.join(self.words)}.")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """Words for people, or a string of one form."""

    longest: int
    form: str = "text"
    lines: bool = False

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if found := text_problem(value, longest=self.longest, lines=self.lines):
            yield FieldError(path, found.code, found.message)
        elif wrong := _FORMS[self.form](value):
            yield FieldError(path, "invalid_format", wrong)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Listing(Kind):
    """A list of strings without repetition, each of one kind."""

    item: Kind
    most: int
    least: int = 0

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, list):
            yield wrong_type(path, "a list", value)
            return
        if not self.least <= len(value) <= self.most:
            code = "too_few" if len(value) < self.least else "too_many"
            yield FieldError(
                path, code, f"Must hold {self.least} to {self.most} entries; these are {len(value)}."
            )
            return
        for position, entry in enumerate(value):
            yield from self.item.check(f"{path}[{position}]", entry)
            if entry in value[:position]:
                yield FieldError(f"{path}[{position}]", "duplicate", "Is in the list already.")

    def schema(self) -> dict[str, Any]:
        return {
            "type": "array",
            "items": self.item.schema(),
            "minItems": self.least,
            "maxItems": self.most,
            "uniqueItems": True,
        }


@dataclass(frozen=True, slots=True)
class Ours(Kind):
    """A value that this service makes: sent back as it stands it changes nothing, and any other is refused."""

    pattern: str
    reason: str

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        # One that has the form is held against what stands, where a request is merged.
        if not isinstance(value, str) or re.fullmatch(self.pattern, value) is None:
            yield self.refusal(path)

    def refusal(self, path: str) -> FieldError:
        """Why a value that somebody else made is not taken."""
        return FieldError(path, "read_only", self.reason)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.pattern}$"}


def _domain(value: str) -> str | None:
    return None if _DOMAIN.fullmatch(value) else "Must be a domain name in lower case, such as example.com."


def _host(value: str) -> str | None:
    plain = value.removeprefix("*.")
    return (
        None
        if _DOMAIN.fullmatch(plain) or plain == "localhost"
        else "Must be a host such as app.example.com or *.example.com."
    )


def _color(value: str) -> str | None:
    return None if re.fullmatch(r"#[0-9a-fA-F]{6}", value) else "Must be a colour such as #3347c9."


def _email(value: str) -> str | None:
    return None if is_email(value) else "Must be an e-mail address."


def _uri(value: str) -> str | None:
    return None if _HTTPS.fullmatch(value) else "Must be an https address."


def _role(value: str) -> str | None:
    return (
        None
        if re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", value)
        else "Must be the key of a role: lower-case letters, digits, _ and -."
    )


def _permission(value: str) -> str | None:
    if is_permission_name(value):
        return None
    if value in ROOT_ONLY:
        return "Is for root alone."
    return f"There is no such permission.{suggestion(value, sorted(ALL_PERMISSIONS))}"


_FORMS: dict[str, Callable[[str], str | None]] = {
    "text": lambda value: None,
    "permission": _permission,
    "domain": _domain,
    "host": _host,
    "color": _color,
    "email": _email,
    "uri": _uri,
    "role": _role,
}
