"""Strict parsing of JSON request bodies: whatever RFC 8259 leaves ambiguous is rejected."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from app.rules.errors import InvalidInput

MAX_DEPTH = 32
MAX_INTEGER = 2**53
MAX_BODY_BYTES = 64 * 1024

# Only brackets outside of strings count for the depth, so strings are skipped.
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


class InvalidJson(InvalidInput):
    """The body is not JSON that this service accepts."""

    code = "invalid_json"


def load_object(body: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object. Raises InvalidJson as ``load_value`` does, and for other top-level
    values.
    """
    value = load_value(body)
    if not isinstance(value, dict):
        raise InvalidJson("The body must be a JSON object, {…}.")
    return value


def load_value(body: bytes) -> Any:
    """Parse a JSON body.

    Raises InvalidJson for bytes that are not UTF-8, a byte order mark, duplicate keys, NaN and Infinity, NUL, lone
    surrogates, numbers that do not fit a double, and nesting deeper than 32 levels.
    """
    text = _decode(body)
    if not text.strip():
        raise InvalidJson("The body is empty. Send a JSON object.")
    _require_shallow(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidJson(f"The body is not valid JSON ({where}).") from error
    _require_plain_strings(value)
    return value


def _decode(body: bytes) -> str:
    try:
        text = body.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise InvalidJson("The body is not UTF-8.") from error
    if text.startswith("\ufeff"):
        raise InvalidJson("The body begins with a byte order mark. Send plain UTF-8.")
    return text


def _require_shallow(text: str) -> None:
    depth = 0
    for match in _STRUCTURE.finditer(text):
        char = match[0]
        if char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidJson(f"The body is nested deeper than {MAX_DEPTH} levels.")
        elif char in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            _reject_duplicate_key(key)
        result[key] = value
    return result


def _reject_duplicate_key(key: str) -> NoReturn:
    if has_surrogate(key) or "\x00" in key:
        raise InvalidJson("An object has a duplicate key.")
    raise InvalidJson("This key appears twice in one object.", field=key[:100])


def _integer(text: str) -> int:
    # Check the length first: converting a million digits to a number is itself an attack.
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        raise InvalidJson("A number is larger than 2^53 and would lose precision.")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidJson("A number is too large.")
    return value


def _constant(text: str) -> NoReturn:
    raise InvalidJson(f"{text} is not valid JSON.")


def _require_plain_strings(value: Any) -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise InvalidJson("A string contains a NUL character.")
        if has_surrogate(value):
            raise InvalidJson("A string contains half of a surrogate pair.")
    elif isinstance(value, dict):
        for key, item in value.items():
            _require_plain_strings(key)
            _require_plain_strings(item)
    elif isinstance(value, list):
        for item in value:
            _require_plain_strings(item)


def has_surrogate(text: str) -> bool:
    """Return whether the text contains half of a surrogate pair, which has no UTF-8 form."""
    return any("\ud800" <= char <= "\udfff" for char in text)
