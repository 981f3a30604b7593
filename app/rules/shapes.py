"""Shapes of requests: typed models that validate a body, and describe it in the OpenAPI document.

A shape is declared once, beside the rules between its fields. ``check_shape`` adds every field error of a body to
the errors of those rules, in the notation of this API: ``redirect_uris[1]``, ``admin.email``. Values are never
converted, and unknown fields are rejected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, cast, get_args, get_type_hints

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic import create_model as create_pydantic_model
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from app.rules.fields import (
    MAX_UNKNOWN,
    FieldProblem,
    ValidationErrors,
    choice_problem,
    suggestion,
    text_problem,
    wrong_type,
)
from app.rules.identifiers import (
    ENCODED_UUID_PATTERN,
    ROUTING_KEY_PATTERN,
    parse_client_id,
    parse_public_id,
)
from app.rules.languages.translation import lazy_gettext

INVALID_TIME = FieldProblem(
    "invalid_time", "Enter a time with its time zone, such as 2030-01-31T12:00:00Z (RFC 3339)."
)
_TYPES = {
    "string_type": "a string",
    "int_type": lazy_gettext("a whole number"),
    "bool_type": lazy_gettext("true or false"),
    "tuple_type": "an array",
    "list_type": "an array",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


class Shape(BaseModel):
    """Base of the models of request bodies."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


S = TypeVar("S", bound=Shape)


class Check:
    """A constraint of a value that a type alone does not express; used as ``Annotated[str, Text(100)]``."""

    def problem(self, value: Any) -> FieldProblem | None:
        """Return what is wrong with a value of the right type, or None."""
        return None

    def json_schema(self) -> dict[str, Any]:
        """Return the same as keywords of JSON Schema."""
        return {}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | self.json_schema()

    def _validate(self, value: Any) -> Any:
        problem = self.problem(value)
        if problem is not None:
            # The message is passed as a value: braces in it are no placeholders.
            raise PydanticCustomError(
                "problem", "{message}", {"code": problem.code, "message": problem.message}
            )
        return value


class Text(Check, Struct, frozen=True):
    """A text for display of at most ``max_length`` characters."""

    max_length: int
    min_length: int = 1
    multiline: bool = False

    def problem(self, value: Any) -> FieldProblem | None:
        return text_problem(
            value, max_length=self.max_length, min_length=self.min_length, multiline=self.multiline
        )

    def json_schema(self) -> dict[str, Any]:
        return ({"minLength": self.min_length} if self.min_length else {}) | {"maxLength": self.max_length}


class OneOf(Check, Struct, frozen=True):
    """One of a few words."""

    choices: Collection[str]

    def problem(self, value: Any) -> FieldProblem | None:
        return choice_problem(value, self.choices)

    def json_schema(self) -> dict[str, Any]:
        return {"enum": list(self.choices)}


class Between(Check, Struct, frozen=True):
    """A whole number within bounds, both included."""

    minimum: int
    maximum: int
    unit: str = ""

    def problem(self, value: Any) -> FieldProblem | None:
        if self.minimum <= value <= self.maximum:
            return None
        unit = f" {self.unit}" if self.unit else ""
        return FieldProblem(
            "out_of_range",
            lazy_gettext(
                "This must be from %(minimum)s to %(maximum)s%(unit)s.",
                minimum=self.minimum,
                maximum=self.maximum,
                unit=unit,
            ),
        )

    def json_schema(self) -> dict[str, Any]:
        return {"minimum": self.minimum, "maximum": self.maximum}


class Items(Check, Struct, frozen=True):
    """A list with a bounded number of entries; ``unique`` rejects an entry that repeats an earlier one."""

    max_items: int
    min_items: int = 0
    unique: bool = True

    def problem(self, value: Any) -> FieldProblem | None:
        if self.min_items and not value:
            return FieldProblem("too_few", "Enter at least one value.")
        if len(value) > self.max_items:
            return FieldProblem(
                "too_many",
                lazy_gettext(
                    "There are %(count)s entries, but at most %(max_items)s are allowed.",
                    count=len(value),
                    max_items=self.max_items,
                ),
            )
        return None

    def json_schema(self) -> dict[str, Any]:
        bounds = {"minItems": self.min_items} if self.min_items else {}
        return bounds | {"maxItems": self.max_items} | ({"uniqueItems": True} if self.unique else {})

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        # An array of JSON is a list, and becomes the tuple of the field. Its size is checked before its entries,
        # so that a list of a million entries gives one error.
        entries: Any = {**handler(source), "strict": False}
        return core_schema.no_info_before_validator_function(self._check_size, entries)

    def _check_size(self, value: Any) -> Any:
        return self._validate(value) if isinstance(value, (list, tuple)) else value


class Rule(Check, Struct, frozen=True):
    """A function that returns the problem of a value, and the JSON Schema keywords that describe it."""

    find_problem: Callable[[Any], FieldProblem | None]
    keywords: tuple[tuple[str, Any], ...] = ()

    def problem(self, value: Any) -> FieldProblem | None:
        return self.find_problem(value)

    def json_schema(self) -> dict[str, Any]:
        return dict(self.keywords)


class PublicId(Check, Struct, frozen=True):
    """The public id of an object: a prefix and 26 characters that sort by time."""

    prefix: str
    noun: str

    def problem(self, value: Any) -> FieldProblem | None:
        if parse_public_id(self.prefix, value) is not None:
            return None
        return FieldProblem("invalid_id", lazy_gettext("This is not a valid %(noun)s ID.", noun=self.noun))

    def json_schema(self) -> dict[str, Any]:
        described = {"description": f"The ID of the {self.noun}."} if self.noun else {}
        return described | {"pattern": f"^{self.prefix}_{ENCODED_UUID_PATTERN}$"}


class ClientId(Check):
    """The ``client_id`` of a client of this service."""

    def problem(self, value: Any) -> FieldProblem | None:
        if parse_client_id(value) is not None:
            return None
        return FieldProblem("invalid_id", "This is not the ID of a client.")

    def json_schema(self) -> dict[str, Any]:
        return {
            "description": "The `client_id` of the client.",
            "pattern": f"^cli_{ROUTING_KEY_PATTERN}_{ENCODED_UUID_PATTERN}$",
        }


class ObjectOf(Struct, frozen=True):
    """The fields of a JSON object that stays a mapping: ``Annotated[Mapping[str, Any], ObjectOf(AppRole)]``."""

    shape: type[Shape]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return handler.generate_schema(self.shape)


class SchemaOnly(Check):
    """JSON Schema keywords of a value that other code validates."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords

    def json_schema(self) -> dict[str, Any]:
        return self.keywords

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return handler(source)


class TimeSent(Check):
    """A time in RFC 3339 with its time zone; the pages of this service send an aware ``datetime``."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "format": "date-time", "minLength": 1}

    def problem(self, value: Any) -> FieldProblem | None:
        return INVALID_TIME if parse_time(value) is None else None


def parse_time(value: Any) -> datetime | None:
    """Return the time in UTC that an RFC 3339 string or an aware datetime names, or None."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
        return time.astimezone(UTC) if isinstance(time, datetime) and time.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def rfc3339(value: datetime | None) -> str | None:
    """Return ``2026-11-21T05:04:03.123456Z``, or None."""
    if value is None:
        return None
    text = value.isoformat() if value.tzinfo is UTC else value.astimezone(UTC).isoformat()
    return f"{text[:-6]}Z"


Time = Annotated[datetime, TimeSent()]


def described(description: str) -> Any:
    """Return the description of a field for the OpenAPI document."""
    return Field(description=description)


def create_shape(
    name: str,
    source: type,
    *,
    required: Collection[str] = (),
    without: Collection[str] = (),
    not_null: Collection[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> type[Shape]:
    """Return the shape of a request that sets the fields of ``source``, a record or shape.

    Every field may be left out, except the ``required`` ones, and may be null, which means its default, except the
    ``required`` and the ``not_null`` ones. ``extra`` are types of further optional fields.
    """
    fields: dict[str, Any] = {}
    for field, hint in get_type_hints(source, include_extras=True).items():
        if field in without or field.startswith("_") or field == "model_config":
            continue
        nullable = hint if field in required or field in not_null else hint | None
        fields[field] = (nullable, ... if field in required else None)
    fields |= {field: (hint, None) for field, hint in (extra or {}).items()}
    return cast("type[Shape]", create_pydantic_model(name, __base__=Shape, **fields))


def check_shape(
    errors: ValidationErrors,
    shape: type[Shape],
    sent: Mapping[str, Any],
    *,
    synonyms: Mapping[str, str] | None = None,
    read_only: Collection[str] = (),
    required: Mapping[str, str] | None = None,
) -> None:
    """Add everything that is wrong with the fields of a body, and unknown fields with what was probably meant.

    ``required`` holds messages for fields that are missing.
    """
    try:
        shape.model_validate(dict(sent))
    except ValidationError as invalid:
        unknown = 0
        for detail in invalid.errors(include_url=False):
            if detail["type"] == "extra_forbidden":
                unknown += _is_unknown(detail, read_only)
                if unknown > MAX_UNKNOWN:
                    continue
                problem = _unknown_field(shape, detail, synonyms, read_only)
            else:
                problem = _problem(detail, required or {})
            errors.add_problem(_path(detail["loc"]), problem)
    _find_duplicates(errors, shape, sent)


def parse_shape(
    shape: type[S],
    sent: Mapping[str, Any],
    *,
    synonyms: Mapping[str, str] | None = None,
    read_only: Collection[str] = (),
    required: Mapping[str, str] | None = None,
) -> S:
    """Return the body as its shape. Raises InvalidInput with every invalid field, as ``check_shape`` finds them."""
    errors = ValidationErrors()
    check_shape(errors, shape, sent, synonyms=synonyms, read_only=read_only, required=required)
    errors.raise_if_any()
    return shape.model_validate(dict(sent))


def _problem(detail: ErrorDetails, required: Mapping[str, str]) -> FieldProblem:
    kind, value = detail["type"], detail["input"]
    message = required.get(_path(detail["loc"]))
    if kind == "missing" or (message and value is None):
        return FieldProblem("required", message or "This field is required.")
    if kind == "problem":
        context = detail["ctx"]
        text = context["message"]
        return FieldProblem(context["code"], text)
    return wrong_type(_TYPES.get(kind, "valid"), value)


def _is_unknown(detail: ErrorDetails, read_only: Collection[str]) -> bool:
    return _path(detail["loc"]) not in read_only


def _unknown_field(
    shape: type[Shape], detail: ErrorDetails, synonyms: Mapping[str, str] | None, read_only: Collection[str]
) -> FieldProblem:
    if not _is_unknown(detail, read_only):
        return FieldProblem("read_only", "This is set by the service and cannot be sent.")
    known = tuple(shape.model_fields) if len(detail["loc"]) == 1 else ()
    name = str(detail["loc"][-1])
    return FieldProblem(
        "unknown_field",
        lazy_gettext("There is no such field.%(synonyms)s", synonyms=suggestion(name, known, synonyms)),
    )


def _path(location: tuple[int | str, ...]) -> str:
    """Return ``redirect_uris[1]`` for ``("redirect_uris", 1)``; names of the caller's own are cut short."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":  # pydantic's mark of an invalid key, behind the key itself.
            path += f".{part[:100]}" if path else part[:100]
    return path


def _find_duplicates(errors: ValidationErrors, shape: type[Shape], sent: Mapping[str, Any]) -> None:
    for name in _unique_lists(shape):
        value = sent.get(name)
        if not isinstance(value, (list, tuple)) or any(error.field == name for error in errors.errors):
            continue
        seen: set[str] = set()
        for position, item in enumerate(value):
            if isinstance(item, str) and item in seen:
                errors.add(f"{name}[{position}]", "duplicate", "Duplicate entry.")
            elif isinstance(item, str):
                seen.add(item)


@functools.cache
def _unique_lists(shape: type[Shape]) -> tuple[str, ...]:
    return tuple(name for name, field in shape.model_fields.items() if _is_unique(field))


def _is_unique(node: Any) -> bool:
    """Return whether a field, or the type in a nullable one, is a list whose entries must be unique."""
    metadata = (*getattr(node, "metadata", ()), *getattr(node, "__metadata__", ()))
    if any(isinstance(item, Items) and item.unique for item in metadata):
        return True
    return any(_is_unique(part) for part in get_args(getattr(node, "annotation", node)))
