"""Query parameters of the API. Unknown ones are rejected, because a typo must not return every object."""

from __future__ import annotations

import re
from collections.abc import Collection

from flask import request

from app.rules.errors import InvalidInput
from app.rules.fields import ValidationErrors, find_unknown

MAX_LENGTH = 1000
_NUMBER = re.compile(r"[0-9]{1,12}")


def query_parameters(known: Collection[str]) -> dict[str, str]:
    """Return the parameters of the request.

    Raises InvalidInput with every parameter that is unknown, empty, too long or sent more than once.
    """
    errors = ValidationErrors()
    find_unknown(errors, request.args, known, noun="parameter")
    for name, values in request.args.lists():
        if len(values) > 1:
            errors.add(name[:100], "repeated", "Send this parameter once.")
        elif not values[0]:
            errors.add(name[:100], "empty", "Enter a value, or omit the parameter.")
        elif len(values[0]) > MAX_LENGTH or any(char < " " for char in values[0]):
            errors.add(name[:100], "malformed", "This value is too long or contains control characters.")
    errors.raise_if_any()
    return {name: values[0] for name, values in request.args.lists()}


def boolean_parameter(parameters: dict[str, str], name: str) -> bool:
    """Return a parameter that is ``true`` or ``false``. The default is false."""
    value = parameters.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidInput("Enter true or false.", field=name, code="not_allowed")
    return value == "true"


def integer_parameter(parameters: dict[str, str], name: str) -> int:
    """Return a parameter that is a number of at most twelve digits. The default is 0."""
    value = parameters.get(name, "0")
    if _NUMBER.fullmatch(value) is None:
        raise InvalidInput("Enter a whole number.", field=name, code="out_of_range")
    return int(value)


def is_descending(parameters: dict[str, str], column: str) -> bool:
    """Return whether ``sort`` reverses the only order of a list: ``id`` or ``-id``."""
    sort = parameters.get("sort", column)
    if sort.removeprefix("-") != column:
        raise InvalidInput(f"Enter {column} or -{column}.", field="sort", code="not_allowed")
    return sort.startswith("-")
