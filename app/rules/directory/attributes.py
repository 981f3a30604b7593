"""Custom attributes of an organization's users: their definitions, and the values that fit them.

The definitions are the setting ``user_profile.attributes``. A value whose attribute was removed or changed is ignored
until the user's attributes are saved the next time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from itertools import islice
from typing import Annotated, Any

from msgspec import Struct

from app.rules.fields import (
    MAX_UNKNOWN,
    FieldProblem,
    ValidationErrors,
    choice_problem,
    suggestion,
    text_problem,
    wrong_type,
)
from app.rules.languages.translation import lazy_gettext
from app.rules.scopes import is_scope
from app.rules.shapes import Items, OneOf, Rule, Text, create_shape, described

MAX_ATTRIBUTES = 50
MAX_TEXT, MAX_ITEM, MAX_ITEMS = 500, 200, 50
STRING, INTEGER, BOOLEAN, DATE, LIST = TYPES = ("string", "integer", "boolean", "date", "list")
ADMINISTRATOR, USER = EDITORS = ("administrator", "user")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,39}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
# JSON numbers up to this are exact in every language.
_MAX_INTEGER = 2**53 - 1
_JSON_TYPES = {STRING: "a string", INTEGER: "a whole number", BOOLEAN: "true or false", DATE: "a string"}


def _key_problem(value: str) -> FieldProblem | None:
    if _KEY.fullmatch(value):
        return None
    return FieldProblem(
        "invalid_format", "Use at most 40 lowercase letters, digits and _, and begin with a letter."
    )


def _scope_problem(value: str) -> FieldProblem | None:
    return (
        None
        if is_scope(value)
        else FieldProblem("invalid_format", lazy_gettext("This must be the name of a scope."))
    )


class Attribute(Struct, frozen=True):
    """The definition of an attribute. ``scope`` releases it to clients that map it, ``choices`` limit its values."""

    key: Annotated[
        str,
        Text(40),
        Rule(_key_problem),
        described("The permanent ID of the attribute, as in `attributes` of a user."),
    ]
    name: Annotated[str, Text(100), described("The name that people see.")]
    type: Annotated[str, OneOf(TYPES), described("The type of its values.")]
    choices: Annotated[
        tuple[Annotated[str, Text(MAX_ITEM)], ...],
        Items(100),
        described("The only values that are allowed. Of strings and lists."),
    ] = ()
    required: Annotated[bool, described("Whether users are asked for it.")] = False
    editable_by: Annotated[str, OneOf(EDITORS), described("Who can change it.")] = ADMINISTRATOR
    scope: Annotated[
        str, Text(128), Rule(_scope_problem), described("The scope that releases it to clients.")
    ] = "profile"


FIELDS = Attribute.__struct_fields__
UserAttribute = create_shape("UserAttribute", Attribute, required=("key", "name", "type"), not_null=FIELDS)


def attributes_of(settings: Mapping[str, Any]) -> tuple[Attribute, ...]:
    """Return the definitions in an organization's effective settings."""
    return tuple(_attribute(entry) for entry in settings["user_profile"]["attributes"])


def _attribute(entry: Mapping[str, Any]) -> Attribute:
    known = {name: value for name, value in entry.items() if name in FIELDS}
    return Attribute(**known | {"choices": tuple(known.get("choices", ()))})


def attribute_problem(attribute: Attribute, value: Any) -> FieldProblem | None:
    """Return what is wrong with a value, or None."""
    if attribute.type == LIST:
        return _list_problem(attribute, value)
    wanted = _JSON_TYPES[attribute.type]
    is_right = {
        STRING: isinstance(value, str),
        INTEGER: isinstance(value, int) and not isinstance(value, bool),
        BOOLEAN: isinstance(value, bool),
        DATE: isinstance(value, str),
    }[attribute.type]
    if not is_right:
        return wrong_type(wanted, value)
    if attribute.type == INTEGER and abs(value) > _MAX_INTEGER:
        return FieldProblem(
            "out_of_range", lazy_gettext("This must be from -%(max)s to %(max)s.", max=_MAX_INTEGER)
        )
    if attribute.type == DATE and not _is_date(value):
        return FieldProblem("invalid_date", "Enter a date as YYYY-MM-DD.")
    if attribute.type == STRING:
        return text_problem(value, max_length=MAX_TEXT) or _choice_problem(attribute, value)
    return None


def current_values(attributes: Iterable[Attribute], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored values that fit their definitions, in the order of the definitions."""
    return {
        attribute.key: stored[attribute.key]
        for attribute in attributes
        if attribute.key in stored and attribute_problem(attribute, stored[attribute.key]) is None
    }


def validate_attributes(
    attributes: Iterable[Attribute],
    sent: Any,
    stored: Mapping[str, Any],
    errors: ValidationErrors,
    *,
    by_user: bool = False,
) -> dict[str, Any]:
    """Return the values to store, and add what is wrong to ``errors``. Null and empty values are left out.

    ``sent`` replaces all values. ``by_user`` replaces only those that users may edit, and keeps the others.
    """
    known = {attribute.key: attribute for attribute in attributes}
    if not isinstance(sent, Mapping):
        errors.add_problem("attributes", wrong_type("an object", sent))
        return {}
    for key in islice((key for key in sent if key not in known), MAX_UNKNOWN):
        message = f"There is no such attribute.{suggestion(key, list(known))}"
        errors.add(f"attributes.{key[:100]}", "unknown_field", message)
    for key in sent:
        if by_user and key in known and known[key].editable_by != USER:
            errors.add(f"attributes.{key}", "read_only", "Only administrators can change this.")
    values: dict[str, Any] = {}
    for key, attribute in known.items():
        if by_user and attribute.editable_by != USER:
            values |= current_values((attribute,), stored)
            continue
        value = sent.get(key)
        if value is None or value in ("", []):
            if attribute.required:
                errors.add(f"attributes.{key}", "required", f"{attribute.name} is required.")
        elif not errors.add_problem(f"attributes.{key}", attribute_problem(attribute, value)):
            values[key] = value
    return values


def _list_problem(attribute: Attribute, value: Any) -> FieldProblem | None:
    if not isinstance(value, list):
        return wrong_type("an array", value)
    too_many = Items(MAX_ITEMS).problem(value)
    if too_many is not None:
        return too_many
    for position, item in enumerate(value):
        problem = text_problem(item, max_length=MAX_ITEM) or _choice_problem(attribute, item)
        if problem is not None:
            return problem
        if item in value[:position]:
            return FieldProblem("duplicate", lazy_gettext("%(item)s is listed twice.", item=item))
    return None


def _choice_problem(attribute: Attribute, value: str) -> FieldProblem | None:
    return choice_problem(value, attribute.choices) if attribute.choices else None


def _is_date(value: str) -> bool:
    try:
        return _DATE.fullmatch(value) is not None and date.fromisoformat(value) is not None
    except ValueError:
        return False
