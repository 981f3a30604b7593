"""Filters of lists: what a list can be filtered and sorted by.

Each list declares its own once, and its operation and the parameters in the OpenAPI document follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.rules.actor import Actor
from app.rules.fields import FieldProblem, ValidationErrors, find_unknown
from app.rules.identifiers import parse_client_id, parse_public_id
from app.rules.shapes import INVALID_TIME, Check, ClientId, OneOf, PublicId, Rule, Text, parse_time

MAX_LENGTH = 64
LENGTHS = (("minLength", 1), ("maxLength", MAX_LENGTH))


class Filter(Struct, frozen=True):
    """A filter of a list, or its order.

    ``read`` returns what an operation compares rows with. ``code`` is the error code of a value that is not valid, by
    default that of the check.
    """

    check: Check
    description: str
    read: Callable[[Actor, str], Any] = lambda actor, value: value
    code: str | None = None
    default: str | None = None


Filters = Mapping[str, Filter]


def choice_filter(choices: Collection[str], description: str) -> Filter:
    """Return a filter that is one of a few words."""
    return Filter(OneOf(choices), description)


def text_filter(description: str) -> Filter:
    """Return a filter that is a short text."""
    return Filter(Text(MAX_LENGTH), description)


def time_filter(description: str) -> Filter:
    """Return a filter that is a time of this or the next century, which is read in UTC."""
    return Filter(Rule(_time_problem, LENGTHS), description, lambda actor, value: parse_time(value))


def id_filter(prefix: str, noun: str, description: str) -> Filter:
    """Return a filter that is a public id, which is read as the id of a row."""
    check = PublicId(prefix, noun)
    return Filter(check, description, lambda actor, value: parse_public_id(prefix, value), "invalid")


def sort_filter(*fields: str) -> Filter:
    """Return the order of a list, by default by the first field. It is read as (field, whether it is descending)."""
    orders = [sign + name for name in fields for sign in ("", "-")]
    return Filter(
        OneOf(orders),
        "The order. `-` reverses it.",
        lambda actor, value: (value.removeprefix("-"), value.startswith("-")),
        default=fields[0],
    )


def read_filters(actor: Actor, known: Filters, sent: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the filters that are sent or have a default.

    The id of another organization's client is read as None. Raises InvalidInput naming the filters that are unknown or
    not valid.
    """
    errors = ValidationErrors()
    find_unknown(errors, sent, known, noun="filter")
    values: dict[str, Any] = {}
    for name, declared in known.items():
        value = sent.get(name, declared.default)
        if value is None:
            continue
        problem = declared.check.problem(value)
        if problem is None:
            values[name] = declared.read(actor, value)
        else:
            errors.add(name, declared.code or problem.code, problem.message)
    errors.raise_if_any()
    return values


def _time_problem(value: str) -> FieldProblem | None:
    parsed = parse_time(value) if len(value) <= MAX_LENGTH else None
    # The first hours of 2000 in the east are in 1999, the last ones of 2199 in the west in 2200.
    if parsed is None or not 1999 <= parsed.year <= 2200:
        return FieldProblem("invalid_format", INVALID_TIME.message)
    return None


def _row_id_of_client(actor: Actor, client_id: str) -> UUID | None:
    found = parse_client_id(client_id)
    return found[1] if found is not None and found[0] == actor.organization_id else None


OF_CLIENT = Filter(ClientId(), "Of this client.", _row_id_of_client, "invalid")
OF_USER = id_filter("usr", "user", "Of this user.")
OF_OWNER = id_filter("usr", "user", "Owned by this user.")
