"""Query parameters of the API: each known, each once; a typo must not return everything."""

from __future__ import annotations

import re
from collections.abc import Collection

from flask import request

from app.rules.errors import InvalidInput
from app.rules.fields import Findings, find_unknown

LONGEST = 1000
_NUMBER = re.compile(r"[0-9]{1,12}")


def query_parameters(known: Collection[str]) -> dict[str, str]:
    """The parameters of the request. Raises InvalidInput naming each that is unknown, empty, long or sent twice."""
    findings = Findings()
    find_unknown(findings, request.args, known, noun="parameter")
    for name, values in request.args.lists():
        if len(values) > 1:
            findings.add(name[:100], "repeated", "Send this parameter once.")
        elif not values[0]:
            findings.add(name[:100], "empty", "Send a value, or leave the parameter out.")
        elif len(values[0]) > LONGEST or any(char < " " for char in values[0]):
            findings.add(
                name[:100], "malformed", "This value is too long or holds characters that cannot be."
            )
    findings.raise_if_any()
    return {name: values[0] for name, values in request.args.lists()}


def flag(parameters: dict[str, str], name: str) -> bool:
    """A parameter that is ``true`` or ``false``; false when left out."""
    value = parameters.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidInput("This must be true or false.", field=name, code="not_allowed")
    return value == "true"


def whole_number(parameters: dict[str, str], name: str) -> int:
    """A parameter that is a number of at most twelve digits; 0 when left out."""
    value = parameters.get(name, "0")
    if _NUMBER.fullmatch(value) is None:
        raise InvalidInput("This must be a whole number.", field=name, code="out_of_range")
    return int(value)


def is_descending(parameters: dict[str, str], column: str) -> bool:
    """Whether ``sort`` turns the one order there is round: ``id`` or ``-id``."""
    sort = parameters.get("sort", column)
    if sort.removeprefix("-") != column:
        raise InvalidInput(f"This must be {column} or -{column}.", field="sort", code="not_allowed")
    return sort.startswith("-")
